"""The home folder's layout, and where sockets go."""

import tomllib
from pathlib import Path

import pytest

from everturn.errors import UsageError
from everturn_workers.home import prepare, socket_dir
from everturn_workers.settings import read_settings


def test_t34_the_first_start_makes_config_default_agent_and_directories(tmp_path: Path):
    home = prepare(tmp_path / "deep" / "home")

    made = {str(path.relative_to(home)) for path in home.rglob("*")}
    assert made == {
        "active_session",
        "agents",
        "agents/default",
        "agents/default/agent.md",
        "agents/default/config.toml",
        "blobs",
        "config.toml",
        "logs",
        "run",
        "sessions",
        "skills",
    }
    assert home.stat().st_mode & 0o777 == 0o700


def test_the_default_agent_of_the_first_start_says_what_it_is(tmp_path: Path):
    agent = prepare(tmp_path / "home") / "agents" / "default"

    told = tomllib.loads((agent / "config.toml").read_text())
    assert told == {"name": "default", "model": "openai/gpt-5-mini", "tool_role": True}
    assert "careful assistant" in (agent / "agent.md").read_text()


def test_the_first_config_changes_no_setting(tmp_path: Path):
    home = tmp_path / "home"
    before = read_settings(home=home)

    prepare(home)

    assert read_settings(home=home) == before


def test_a_later_start_leaves_what_a_person_changed(tmp_path: Path):
    home = prepare(tmp_path / "home")
    (home / "config.toml").write_text("port = 8000\n")
    (home / "agents" / "default" / "agent.md").write_text("Speak like a pirate.")

    prepare(home)

    assert read_settings(home=home).port == 8000
    assert (home / "agents" / "default" / "agent.md").read_text() == "Speak like a pirate."


def test_a_home_that_cannot_be_made_is_named_with_the_mend(tmp_path: Path):
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match=r"file/home cannot be used: .*; set EVERTURN_HOME"):
        prepare(tmp_path / "file" / "home")


def test_a_socket_in_its_folder_fits_the_limit_however_long_the_store_url(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("tempfile.tempdir", "/tmp")

    folder = socket_dir(f"sqlite:///{'deep/' * 100}everturn.db")

    assert len(str(folder / ("w" * 32 + ".sock"))) < 104
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder != socket_dir("sqlite:///other.db")


def test_a_socket_folder_that_others_can_enter_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    socket_dir("sqlite:///everturn.db").parent.chmod(0o755)

    with pytest.raises(UsageError, match="not a private folder"):
        socket_dir("sqlite:///everturn.db")


def test_a_socket_folder_that_is_a_link_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = socket_dir("sqlite:///everturn.db")
    folder.rmdir()
    folder.symlink_to(tmp_path, target_is_directory=True)

    with pytest.raises(UsageError, match="not a private folder"):
        socket_dir("sqlite:///everturn.db")
