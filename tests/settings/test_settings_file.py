"""Which file settings are read from, and what wins over it."""

from pathlib import Path

import pytest

from everturn.errors import UsageError
from everturn_workers.settings import read_settings


def test_a_flag_wins_over_the_variable_that_over_the_file_and_that_over_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_settings(home=tmp_path).port == 7430
    (tmp_path / "everturn.toml").write_text("port = 8001\n")
    assert read_settings(home=tmp_path).port == 8001
    monkeypatch.setenv("EVERTURN_PORT", "8002")
    assert read_settings(home=tmp_path).port == 8002
    assert read_settings(home=tmp_path, port=8003).port == 8003


def test_of_a_table_each_key_is_taken_from_what_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "everturn.toml").write_text("[command_limits]\nprocesses = 20\nopen_files = 99\n")
    monkeypatch.setenv("EVERTURN_COMMAND_LIMITS", '{"processes": 30}')

    limits = read_settings(home=tmp_path).command_limits

    assert (limits.processes, limits.open_files) == (30, 99)


@pytest.mark.parametrize("way", ["flag", "variable"])
def test_a_file_that_is_named_is_read_instead_of_the_one_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    home, named = tmp_path / "home", tmp_path / "machine.toml"
    home.mkdir()
    (home / "everturn.toml").write_text("port = 8001\nlog_level = 'debug'\n")
    named.write_text(f"home = {str(home)!r}\nport = 8002\n")
    if way == "variable":
        monkeypatch.setenv("EVERTURN_CONFIG", str(named))

    settings = read_settings(config=named) if way == "flag" else read_settings()

    assert (settings.port, settings.log_level) == (8002, "info")
    assert (settings.home, settings.config) == (home, named)


def test_a_file_that_is_named_and_not_there_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no settings file .*nowhere\.toml, which --config or"):
        read_settings(home=tmp_path, config=tmp_path / "nowhere.toml")


def test_a_file_in_the_home_cannot_name_another_home(tmp_path: Path) -> None:
    (tmp_path / "everturn.toml").write_text("port = 1\nhome = '/elsewhere'\n")

    with pytest.raises(UsageError, match=r"everturn\.toml line 2 names another home"):
        read_settings(home=tmp_path)


def test_a_file_cannot_say_which_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "everturn.toml").write_text("config = '/elsewhere.toml'\n")

    with pytest.raises(UsageError, match="unknown setting 'config'"):
        read_settings(home=tmp_path)


def test_what_is_wrong_in_the_file_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "everturn.toml"
    file.write_text('# Ours.\nlog_level = "info"\n\nport = "many"\n')

    with pytest.raises(UsageError, match=rf"'port' is wrong: .*; mend {file} line 4\."):
        read_settings(home=tmp_path)


def test_a_key_inside_a_table_is_not_taken_for_the_setting_of_its_name(tmp_path: Path) -> None:
    file = tmp_path / "everturn.toml"
    file.write_text('[provider_limits."*"]\nconcurrency = { port = 4 }\nprocesses = 1\n')

    with pytest.raises(UsageError, match=rf"mend {file} line 1\."):
        read_settings(home=tmp_path)


def test_what_both_sources_of_a_table_may_have_wrong_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "everturn.toml").write_text("[command_limits]\nprocesses = 1\n")
    monkeypatch.setenv("EVERTURN_COMMAND_LIMITS", '{"open_files": 99}')

    with pytest.raises(UsageError, match=r"EVERTURN_COMMAND_LIMITS or .*everturn\.toml line 1\."):
        read_settings(home=tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"port =", "cannot be read: Invalid value"),
        (b"port = '\xff'", "cannot be read: it is not valid UTF-8"),
    ],
)
def test_a_file_that_is_no_toml_is_told_of(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "everturn.toml").write_bytes(content)

    with pytest.raises(UsageError, match=says) as refused:
        read_settings(home=tmp_path)

    assert str(tmp_path / "everturn.toml") in str(refused.value)


def test_a_folder_in_place_of_the_file_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "everturn.toml").mkdir()

    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_settings(home=tmp_path)


def test_a_file_by_its_former_name_is_refused_where_it_sets_anything(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("# port = 1\n")
    assert read_settings(home=tmp_path).port == 7430
    (tmp_path / "config.toml").write_text("port = 1\n")

    with pytest.raises(UsageError, match=r"config\.toml is called everturn\.toml now; rename it"):
        read_settings(home=tmp_path)


def test_a_workspace_in_place_of_the_home_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "everturn.toml").write_text('[model]\nname = "openai/gpt-5"\n')

    with pytest.raises(UsageError, match=r"line 1: \[model\] belongs into a workspace's"):
        read_settings(home=tmp_path)
