"""What `up` is told reaches its worker and its API."""

import os
import subprocess
from pathlib import Path

import pytest

from everturn_workers.settings import Settings, read_settings
from everturn_workers.supervisor import Commands, child_environment

FILE = """
api_key = "s3cret-of-the-api"
placement = "queued"
unsafe_commands = true
[provider_limits."api.openai.com"]
requests_per_minute = 500
concurrency = { "openai/gpt-5" = 4 }
[command_limits]
processes = 20
"""


@pytest.mark.parametrize("file", ["", FILE])
def test_children_read_the_settings_that_up_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    (tmp_path / "everturn.toml").write_text(file)
    ours = read_settings(home=tmp_path, port=7777)
    for name, value in child_environment(ours, "127.0.0.1:7233").items():
        if name.startswith("EVERTURN_"):
            monkeypatch.setenv(name, value)
    (tmp_path / "everturn.toml").unlink()

    theirs = read_settings()

    told = ours.model_copy(update={"temporal_address": "127.0.0.1:7233"})
    assert {name: getattr(theirs, name) for name in Settings.model_fields} == {
        name: getattr(told, name) for name in Settings.model_fields
    }
    assert os.environ["EVERTURN_PORT"] == "7777"


@pytest.mark.parametrize("name", ["worker", "api"])
def test_children_import_nothing_from_the_folder_that_up_was_started_in(tmp_path: Path, name: str):
    """An agent may write there, and the folder would come before all packages."""
    (tmp_path / "everturn_workers").mkdir()
    (tmp_path / "everturn_workers" / "__init__.py").write_text("raise SystemExit('planted')")
    command = [*getattr(Commands(), name), "--help"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "planted" not in ran.stderr
