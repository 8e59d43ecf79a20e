"""secrets list: names and places, and never a value."""

import json
import sys
from pathlib import Path

import pytest

from everturn_workers.cli.main import main

CANARY = "canary-0123456789"
SETTINGS = """
[secrets]
TOKEN = {env = "SHOP_CREDENTIAL"}
LATE = {file = "late"}
KEY = {file = "key"}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "everturn.toml").write_text(SETTINGS)
    (tmp_path / "key").write_text(CANARY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVERTURN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SHOP_CREDENTIAL", CANARY)
    return tmp_path


def listed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *flags: str
) -> list[str]:
    monkeypatch.setattr(sys, "argv", ["everturn", "secrets", "list", *flags])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (None, 0)
    out, err = capfd.readouterr()
    assert CANARY not in out + err
    return out.splitlines()


def test_secrets_are_listed_with_where_they_are_and_what_is_missing(folder, monkeypatch, capfd):
    told = {line["name"]: line for line in map(json.loads, listed(monkeypatch, capfd, "--json"))}
    assert [*told] == ["KEY", "LATE", "TOKEN"]
    assert told["TOKEN"] == {
        "name": "TOKEN",
        "source": "variable SHOP_CREDENTIAL",
        "found": True,
        "reason": None,
    }
    assert told["KEY"]["source"] == "file key"
    assert told["LATE"]["found"] is False
    assert told["LATE"]["reason"].startswith("The file 'late' of secret LATE cannot be read")


def test_a_person_reads_them_as_a_table(folder, monkeypatch, capfd):
    lines = listed(monkeypatch, capfd)
    assert any("TOKEN" in line and "SHOP_CREDENTIAL" in line and "yes" in line for line in lines)
    assert any("LATE" in line and "cannot be read" in line for line in lines)
