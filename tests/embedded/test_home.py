"""The home folder's layout, and where sockets go."""

import os
import socket
import tempfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from everturn.errors import UsageError
from everturn_workers import runtime
from everturn_workers.home import home_id, leave_socket_dir, prepare, socket_dir
from everturn_workers.runtime import open_runtime
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
        "everturn.toml",
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
    (home / "everturn.toml").write_text("port = 8000\n")
    (home / "agents" / "default" / "agent.md").write_text("Speak like a pirate.")

    prepare(home)

    assert read_settings(home=home).port == 8000
    assert (home / "agents" / "default" / "agent.md").read_text() == "Speak like a pirate."


def test_a_setting_that_does_not_exist_is_named_with_the_one_that_is_meant(tmp_path: Path):
    home = prepare(tmp_path / "home")
    (home / "everturn.toml").write_text("prot = 8000\n")

    with pytest.raises(UsageError, match=r"unknown setting 'prot' \(did you mean 'port'\?\)"):
        read_settings(home=home)


def test_a_home_that_cannot_be_made_is_named_with_the_mend(tmp_path: Path):
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match=r"file/home cannot be used: .*; set EVERTURN_HOME"):
        prepare(tmp_path / "file" / "home")


def test_a_socket_in_its_folder_fits_the_limit_however_long_the_store_url(
    monkeypatch: pytest.MonkeyPatch,
):
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:
        monkeypatch.setattr("tempfile.tempdir", temporary)

        folder = socket_dir(f"sqlite:///{'deep/' * 100}everturn.db")

        assert len(str(folder / ("w" * 32 + ".sock"))) < 104
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder != socket_dir("sqlite:///other.db")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder for temporary files whose path leaves room for a socket's."""
    # After pytest's own, which would stand in it otherwise.
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr("tempfile.tempdir", folder)
        yield Path(folder)


async def test_the_last_process_on_a_store_leaves_no_socket_folder(short: Path, tmp_path: Path):
    settings = read_settings(home=tmp_path)
    async with open_runtime(settings):
        async with open_runtime(settings):
            pass
        folder = socket_dir(settings.store_url)
        assert len(list(folder.iterdir())) == 1
        # A process that was killed leaves its socket.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as killed:
            killed.bind(str(folder / "killed"))

    assert os.listdir(short) == []


async def test_a_socket_folder_that_another_process_removes_meanwhile_is_made_again(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = read_settings(home=tmp_path)

    def removed_at_once(store_url: str) -> Path:
        monkeypatch.setattr(runtime, "socket_dir", socket_dir)
        folder = socket_dir(store_url)
        leave_socket_dir(store_url)
        return folder

    monkeypatch.setattr(runtime, "socket_dir", removed_at_once)
    async with open_runtime(settings):
        assert len(list(socket_dir(settings.store_url).iterdir())) == 1


def test_nothing_is_removed_from_a_folder_that_others_can_enter(short: Path):
    folder = socket_dir("sqlite:///everturn.db")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gone:
        gone.bind(str(folder / "kept"))
    folder.chmod(0o755)

    leave_socket_dir("sqlite:///everturn.db")

    assert (folder / "kept").exists()


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


def test_a_home_has_an_id_of_its_own_and_keeps_it(tmp_path: Path):
    one, other = prepare(tmp_path / "one"), prepare(tmp_path / "other")
    with ThreadPoolExecutor(8) as threads:
        found = set(threads.map(home_id, [one] * 8))

    assert found == {home_id(one)} != {home_id(other)}
    assert [path.name for path in one.glob(".id*")] == []
