"""Profiles are files: ours, and those of a workspace."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from everturn.errors import WorkspaceError
from everturn_activities.profiles import (
    OPTIONS,
    SOURCES,
    load_profile,
    profile_names,
    read_profile,
)
from everturn_activities.sources.plain import PLAIN
from everturn_activities.workspace import load

ROOT = Path(__file__).parents[2]
OURS = ("boxagnts", "default", "eggent", "kiro", "kontekst", "krill")

HEAD = """\
[recipe]
separator = '''
[[recipe.layers]]
frame = "none"
'''

[[recipe.layers]]
id = "first"
source = "text"

[[recipe.layers]]
id = "second"
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "everturn.toml").touch()
    (tmp_path / "profiles").mkdir()
    return tmp_path


def wrong(path: Path) -> str:
    with pytest.raises(WorkspaceError) as raised:
        read_profile(path)
    text = str(raised.value)
    assert "\n" not in text
    return text.replace(str(path), "FILE")


def test_six_profiles_come_with_us():
    assert profile_names(None) == OURS
    assert [load_profile(name).name for name in OURS] == [*OURS]


def test_a_workspace_adds_profiles_and_wins_over_ours(workspace: Path):
    text = '[recipe]\nlayers = [{id = "a", source = "text", text = "mine"}]\n'
    (workspace / "profiles/krill.toml").write_text(text)
    (workspace / "profiles/zebra.toml").write_text(text)

    assert profile_names(workspace) == (*OURS, "zebra")
    assert load_profile("krill", workspace).recipe.layers[0].text == "mine"
    assert load_profile("krill").recipe.layers[0].source == "agent_prompt"


def test_an_agent_names_its_profile_else_the_settings_do(workspace: Path):
    (workspace / "everturn.toml").write_text('[agent]\nprofile = "krill"\n')
    (workspace / "agents").mkdir()
    (workspace / "agents/own.md").write_text("---\nprofile: kiro\n---\nWork.\n")

    assert load(workspace).spec().profile.name == "krill"
    assert load(workspace).spec("own").profile.name == "kiro"


def test_a_profile_that_changed_is_read_again_and_changes_the_hash(workspace: Path):
    file = workspace / "profiles/default.toml"
    file.write_text('[recipe]\nlayers = [{id = "a", source = "text", text = "one"}]\n')
    before = load(workspace).spec()
    again = load(workspace).spec()
    file.write_text('[recipe]\nlayers = [{id = "a", source = "text", text = "another"}]\n')
    after = load(workspace).spec()

    assert again is before
    assert after.hash != before.hash
    assert after.profile.recipe.layers[0].text == "another"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (HEAD, "FILE line 11: the key 'recipe.layers.source' is missing; add it."),
        (HEAD + 'source = "txt"', "FILE line 13: layer 'second' has an unknown source 'txt' (did"
         f" you mean 'text'?); the sources are {', '.join(SOURCES)}."),
        (HEAD + 'source = "text"\nframe = "box"', "FILE line 14: recipe.layers.frame is 'box', and"
         " the input should be 'none', 'entry', 'heading', 'xml' or 'prefix'; mend it."),
        (HEAD + 'source = "text"\nframe = "xml"', "FILE line 11: layer 'second' has the frame 'xml'"
         " and no title; mend it."),
        (HEAD + 'source = "text"\nitem = "{a!r}"', "FILE line 14: the template '{a!r}' has a field"
         " that is not {name}, {name:xml} or {name:line}; mend it."),
        (HEAD + 'source = "text"\noptions = { path = "a" }', "FILE line 14: layer 'second' gives"
         " source 'text' an unknown option 'path'; it has none."),
        (HEAD + 'source = "file"\n[recipe.layers.options]\npaht = "a"', "FILE line 14: layer"
         " 'second' gives source 'file' an unknown option 'paht' (did you mean 'path'?); its"
         " options are path."),
        (HEAD + 'source = "facts"\noptions = { names = ["tmie"] }', "FILE line 14: layer 'second'"
         " asks for 'tmie', which source 'facts' has not (did you mean 'time'?); it has cwd,"
         " folder, date, time."),
        (HEAD + 'source = "text"\n[agent]\nsteps = 3', "FILE line 15: unknown key 'agent.steps'"),
        (HEAD + 'source = "text"\n[agent]\nsteps_max = 0', "FILE line 15: agent.steps_max is 0, and"
         " the input should be greater than or equal to 1; mend it."),
        (HEAD + 'source = "text"\n[agent]\nname = "a"', "FILE line 15: a profile cannot say 'name'"
         " for all of its agents; leave it out."),
        ('name = "other"\n[recipe]\nlayers = []', "FILE line 1 calls its profile 'other', and by"
         " its file it is 'mine'; leave the name out, or rename the file."),
        ("[recipes]\nlayers = []", "FILE line 1: unknown key 'recipes' (did you mean 'recipe'?)"),
        ("x", "FILE is not valid TOML"),
    ],
)  # fmt: skip
def test_a_wrong_profile_is_named_with_its_line_and_the_mend(tmp_path: Path, text: str, error: str):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    assert wrong(path).startswith(error)


def test_a_profile_that_is_not_there_is_named_where_it_is_asked_for(workspace: Path):
    (workspace / "agents").mkdir()
    (workspace / "agents/default.md").write_text("---\ncolor: red\nprofile: kirro\n---\nWork.\n")

    with pytest.raises(WorkspaceError, match=r"there is no profile 'kirro'.*mean 'kiro'") as raised:
        load(workspace).spec()

    assert str(raised.value).startswith(f"{workspace}/agents/default.md line 3: ")


def test_aliases_show_tools_under_other_names_and_may_not_clash(workspace: Path):
    layers = '[recipe]\nlayers = [{id = "a", source = "text"}]\n'
    file = workspace / "profiles/mine.toml"
    (workspace / "everturn.toml").write_text('[agent]\nprofile = "mine"\n')
    file.write_text(f'{layers}[aliases]\nfs_read = "read_file"\n')
    (workspace / "agents").mkdir()
    for name in ("fs_read", "read_file"):
        (workspace / f"agents/by_{name}.md").write_text(f"---\ntools: {name}\n---\nWork.\n")

    shown = {tool.name: tool.runs for tool in load(workspace).spec().tools}
    assert shown["fs_read"] == "read_file"
    assert "read_file" not in shown
    for name in ("fs_read", "read_file"):
        assert [tool.name for tool in load(workspace).spec(f"by_{name}").tools] == ["fs_read"]

    file.write_text(f'{layers}[aliases]\nedit_file = "read_file"\n')
    with pytest.raises(WorkspaceError, match="'edit_file', which is the name of another"):
        load(workspace).spec()

    file.write_text(f'{layers}[aliases]\nfs_read = "rd_file"\n')
    with pytest.raises(WorkspaceError, match=r"line 4 names .*'rd_file'.*mean 'read_file'"):
        load(workspace).spec()


def test_U7_no_module_branches_on_the_name_of_a_profile():
    """The names stand in files of data and in the default of a setting, and nowhere in code."""
    named = re.compile(r"""["'](boxagnts|eggent|kiro|kontekst|krill)["']""")
    compared = re.compile(r"profile\.name\s*(==|!=|in\b|not\b)|match .*profile\.name")
    packages = ("everturn", "activities", "workflows", "workers")
    modules = [path for package in packages for path in (ROOT / package).rglob("*.py")]

    found = {
        str(path.relative_to(ROOT)): line
        for path in modules
        for line in path.read_text().splitlines()
        if named.search(line) or compared.search(line)
    }

    assert len(modules) > 100
    assert found == {}


def test_a_profile_may_name_every_source_and_ours_name_all_of_them():
    ours = {layer.source for name in OURS for layer in load_profile(name).recipe.layers}
    assert ours == set(SOURCES)
    assert set(PLAIN) | set(OPTIONS) <= set(SOURCES)


@pytest.mark.long
def test_the_wheel_has_the_profiles_and_the_bundled_skills(tmp_path: Path):
    command = (sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", str(tmp_path))
    subprocess.run([*command, str(ROOT)], check=True)
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"everturn/profiles/{name}.toml" for name in OURS} <= set(names)
    assert "everturn_activities/skills/bundled/code-review/SKILL.md" in names
