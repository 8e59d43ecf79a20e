"""Rows T9, T10, T12, T34, U1: what everything stands on."""

import configparser
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from harness import Bench, calls, says, scripted

from everturn.agents import Agent
from everturn.messages import ToolMessage
from everturn_activities.capped import RESULT_BYTES_MAX
from everturn_activities.workspace import WorkspaceSettings
from everturn_workers.home import prepare
from everturn_workers.settings import Settings, read_settings

ROOT = Path(__file__).parents[2]
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
MEGABYTES = 5

BIG = f'''
from everturn import tool


@tool(effect="pure")
def big() -> str:
    """Answer at length."""
    return "begin " + "spam and eggs " * {MEGABYTES * 1024 * 1024 // 14} + " end"
'''


def test_T9_no_floor_imports_upwards():
    linted = subprocess.run(
        [sys.executable, "-c", LINT], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert linted.returncode == 0, linted.stdout
    assert "Floors import downwards only KEPT" in linted.stdout


def test_T9_an_upward_import_is_refused(tmp_path: Path):
    floors = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [contract] = floors["contracts"]
    for package in floors["root_packages"]:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / "everturn" / "__init__.py").write_text("import everturn_activities\n")
    config = configparser.ConfigParser()
    config["importlinter"] = {"root_packages": "\n" + "\n".join(floors["root_packages"])}
    config["importlinter:contract:floors"] = {
        "name": contract["name"],
        "type": contract["type"],
        "layers": "\n" + "\n".join(contract["layers"]),
    }
    with (tmp_path / ".importlinter").open("w") as file:
        config.write(file)

    linted = subprocess.run(
        [sys.executable, "-c", LINT], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert linted.returncode == 1
    assert "everturn is not allowed to import everturn_activities" in linted.stdout


def test_T34_the_first_start_makes_settings_a_default_agent_and_folders(tmp_path: Path):
    home = prepare(tmp_path / "home")

    assert (home / "everturn.toml").is_file()
    assert (home / "active_session").is_file()
    for folder in ("agents", "skills", "sessions", "logs"):
        assert (home / folder).is_dir()
    agent = tomllib.loads((home / "agents" / "default" / "config.toml").read_text())
    assert agent["name"] == "default"
    assert (home / "agents" / "default" / "agent.md").read_text().strip()
    assert home.stat().st_mode & 0o777 == 0o700


def test_T10_the_settings_of_a_first_start_show_what_holds_without_them(tmp_path: Path):
    """T12: the default agent's folder has both of its files."""
    home = prepare(tmp_path / "home")

    shown = (home / "everturn.toml").read_text()
    settings = read_settings(home=home)
    assert tomllib.loads(shown) == {}
    assert f"# port = {settings.port}\n" in shown
    assert f'# log_level = "{settings.log_level}"\n' in shown
    assert f'# agent = "{WorkspaceSettings().agent.default}"\n' in shown
    assert f'# model = "{Agent().model}"\n' in shown
    for line in shown.splitlines():
        if " = " in line:
            assert line[2:].partition(" = ")[0] in Settings.model_fields
    agent = home / "agents" / "default"
    assert sorted(file.name for file in agent.iterdir()) == ["agent.md", "config.toml"]
    assert (agent / "agent.md").read_text() == f"{Agent().prompt}\n"

    (home / "everturn.toml").write_text("port = 1\n")
    assert (prepare(home) / "everturn.toml").read_text() == "port = 1\n"


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_U1_a_result_of_5_mb_leaves_the_history_small(made: Bench, placement: str):
    (made.workspace / "tools" / "big.py").write_text(BIG)
    gateway = scripted(calls("big"), says("That was long."))
    key = await made.session()

    async with made.worker(gateway, placement=placement):
        await made.send(key, "answer at length, secretly")
        await made.until(key, "turn_finished")
        await made.closed(key)

    told = gateway.requests[1].messages[-1]
    assert isinstance(told, ToolMessage)
    text = told.results[0].text
    assert text.startswith("begin spam")
    assert text.endswith(" end")
    assert len(text) <= RESULT_BYTES_MAX + 100
    history = await made.client.get_workflow_handle(key.workflow_id).fetch_history()
    events = [event.SerializeToString() for event in history.events]
    assert sum(map(len, events)) < 32 * 1024
    assert not any(said in event for event in events for said in (b"spam", b"long", b"secretly"))
