"""profiles and agents: list, show, check."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Ran

from everturn_workers.cli.main import main

Commands = Callable[..., Ran]

WRONG = '[recipe]\n[[recipe.layers]]\nid = "a"\nsource = "txt"\n'
RIGHT = WRONG.replace("txt", "text")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace to stand in."""
    (tmp_path / "everturn.toml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVERTURN_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def everturn(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Commands:
    """The command in this process: it starts no runtime, and a process takes a second."""

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["everturn", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        return Ran(code if isinstance(code, int) else 0, *capfd.readouterr())

    return run


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_profiles_are_listed_with_where_they_are_from(everturn: Commands, folder: Path):
    write(folder, "profiles/krill.toml", RIGHT)
    write(folder, "profiles/mine.toml", f'description = "My own."\n{RIGHT}')

    ran = everturn("profiles", "list", "--json")

    told = {line["name"]: line for line in map(json.loads, ran.out.splitlines())}
    assert set(told) == {"boxagnts", "default", "eggent", "kiro", "kontekst", "krill", "mine"}
    assert told["kiro"]["from"] == "built in"
    assert told["krill"]["from"] == "profiles/krill.toml"
    assert (told["mine"]["description"], told["mine"]["layers"]) == ("My own.", 1)
    shown = everturn("profiles", "list")
    assert "My own." in shown.out


def test_a_profile_is_shown_layer_by_layer_and_as_a_file_to_begin_with(
    everturn: Commands,
    folder: Path,
):
    shown = everturn("profiles", "show", "kiro")
    assert "skill_hints" in shown.out
    assert "Tool read_file is shown as fs_read." in shown.out

    none = everturn("profiles", "check")
    assert (none.code, none.out) == (0, "")
    assert none.err == f"{folder / 'profiles'} has no profile; ours are in use.\n"
    copied = everturn("profiles", "show", "kiro", "--toml")
    write(folder, "profiles/mine.toml", copied.out)
    checked = everturn("profiles", "check")
    assert (checked.code, checked.err) == (0, "")
    assert "mine.toml: 7 layers, can be used." in checked.out


def test_what_is_wrong_with_a_profile_is_one_sentence_with_file_and_line(
    everturn: Commands,
    folder: Path,
):
    file = write(folder, "profiles/mine.toml", WRONG)
    write(folder, "profiles/other.toml", RIGHT)

    for arguments in (["check"], ["check", str(file)]):
        ran = everturn("profiles", *arguments)
        assert ran.code == 2
        [line] = ran.err.splitlines()
        assert line.startswith(f"{file} line 4: layer 'a' has an unknown source 'txt'")

    write(folder, "profiles/mine.toml", f'{RIGHT}[aliases]\nview = "rd_file"\n')
    aliased = everturn("profiles", "check")
    assert f"{file} line 6 names tool 'rd_file', which does not exist" in aliased.err

    gone = everturn("profiles", "show", "kirro")
    assert gone.code == 2
    assert "did you mean 'kiro'?" in gone.err


def test_agents_are_listed_shown_and_checked(everturn: Commands, folder: Path):
    write(folder, "agents/hidden.md", "---\nvisible: false\ncolor: red\n---\nWork.\n")

    listed = everturn("agents", "list", "--json")
    every = everturn("agents", "list", "--json", "--all")
    shown = everturn("agents", "show", "plan")

    agents = [json.loads(line)["name"] for line in listed.out.splitlines()]
    assert agents == ["build", "default", "explore", "plan"]
    assert '"hidden"' in every.out
    assert "access: read-only" in shown.out
    assert "withheld: write_file" in shown.out
    told = json.loads(everturn("agents", "show", "plan", "--json").out)
    assert (told["name"], told["access"], told["steps_max"]) == ("plan", "read-only", 20)
    assert "write_file" in told["withheld"]
    assert told["prompt"] in shown.out

    file = write(folder, "agents/hidden.md", "---\naccess: root\n---\nWork.\n")
    checked = everturn("agents", "check")
    assert checked.code == 2
    assert checked.err.startswith(f"{file} line 2: access is 'root'")
    assert "plan: " in checked.out


def test_an_agent_is_shown_with_its_hooks_and_none_of_their_arguments(
    everturn: Commands, folder: Path
):
    (folder / "everturn.toml").write_text(
        "[[hooks.agent_spawn]]\ncommand = ['git', 'status']\n"
        "[[hooks.pre_tool_use]]\nmatcher = 'write_*|edit_file'\ncommand = ['gate', 'secret']\n"
        "[[hooks.post_tool_use]]\ncommand = 'echo secret'\n"
        "[[hooks.turn_end]]\ncommand = ['tell', 'secret']\n"
    )
    ran = everturn("agents", "show", "default")
    assert "secret" not in ran.out
    (line,) = [line for line in ran.out.splitlines() if line.startswith("  hooks: ")]
    assert line == (
        "  hooks: AgentSpawn runs git, PreToolUse of write_*|edit_file runs gate,"
        " PostToolUse of * runs sh, TurnEnd runs tell"
    )
