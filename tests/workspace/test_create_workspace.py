"""What `everturn init` writes."""

import tomllib

import pytest

from everturn.agents import Agent
from everturn.errors import WorkspaceError
from everturn_activities.starter import create, starter_files
from everturn_activities.workspace import ModelSettings, WorkspaceSettings, load


def test_t34_a_new_workspace_has_settings_a_default_agent_and_its_folders(tmp_path):
    """T34: given first start, when listed, then config, default agent and directories exist."""
    root = tmp_path / "new" / "workspace"

    written = create(root)

    assert [path.relative_to(root).as_posix() for path in written] == [
        "everturn.toml",
        "agents/default.md",
        "tools/words.py",
    ]
    assert sorted(path.name for path in root.iterdir()) == [
        "agents",
        "context",
        "everturn.toml",
        "skills",
        "tools",
    ]


def test_T10_the_settings_of_a_first_use_are_the_defaults(tmp_path):
    create(tmp_path)

    written = tomllib.loads((tmp_path / "everturn.toml").read_text())

    assert WorkspaceSettings.model_validate(written) == WorkspaceSettings(
        model=ModelSettings(name=Agent().model)
    )
    assert written == {
        "working_dir": ".",
        "agent": {"default": "default"},
        "model": {"name": "openai/gpt-5-mini"},
        "tools": {"exclude": []},
    }


def test_a_new_workspace_loads_with_its_example_tool(tmp_path):
    create(tmp_path)

    workspace = load(tmp_path)

    assert workspace.spec().agent.description == "Works on the files of the working folder."
    count = workspace.tool("count_words")
    assert count is not None
    assert count.run(text="a b c") == 3


def test_creating_again_keeps_every_file_as_it_is(tmp_path):
    create(tmp_path)
    (tmp_path / "everturn.toml").write_text("# mine\n")
    (tmp_path / "tools/words.py").unlink()

    written = create(tmp_path)

    assert written == [tmp_path / "tools/words.py"]
    assert set(starter_files(tmp_path)) - set(written) == {
        tmp_path / "everturn.toml",
        tmp_path / "agents/default.md",
    }
    assert (tmp_path / "everturn.toml").read_text() == "# mine\n"


def test_a_folder_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(WorkspaceError, match=r"file.* cannot be created: Not a directory"):
        create(tmp_path / "file")
