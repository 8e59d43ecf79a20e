"""What is told of settings: what is in force and from where, and what each is."""

from pathlib import Path

import pytest

from everturn_workers import settings_table
from everturn_workers.settings import Settings, read_settings, unknown_variables
from everturn_workers.settings_shown import Shown, shown

README = Path(__file__).parents[2] / "README.md"


def by_name(**flags: object) -> dict[str, Shown]:
    return {one.name: one for one in shown(read_settings(**flags), **flags)}


def test_every_setting_is_shown_with_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "everturn.toml"
    file.write_text(
        'log_level = "debug"\nhost = "::1"\n[command_limits]\nprocesses = 20\n[provider_limits]\n'
    )
    monkeypatch.setenv("EVERTURN_HOST", "localhost")
    monkeypatch.setenv("EVERTURN_COMMAND_LIMITS", '{"open_files": 99}')

    told = by_name(home=tmp_path, port=8001)

    assert set(told) == set(Settings.model_fields)
    assert (told["port"].value, told["port"].sources) == (8001, ("the flag --port",))
    assert told["host"].sources == ("the variable EVERTURN_HOST",)
    assert told["log_level"].sources == (f"{file} line 1",)
    assert told["command_limits"].sources == (
        "the variable EVERTURN_COMMAND_LIMITS",
        f"{file} line 3",
    )
    assert told["provider_limits"].sources == (f"{file} line 5",)
    assert (told["temporal_address"].text, told["temporal_address"].sources) == (
        "(the embedded server)",
        ("the default",),
    )


def test_a_secret_is_shown_by_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("canary")
    monkeypatch.setenv("EVERTURN_API_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("EVERTURN_REDIS_URL", "redis://me:canary@host:1/0")

    told = by_name(home=tmp_path)

    assert (told["api_key"].text, told["api_key"].sources) == (
        "***",
        ("the file that EVERTURN_API_KEY_FILE names",),
    )
    assert told["redis_url"].text == "redis://me:***@host:1/0"
    assert told["database_url"].text == "(a SQLite file in the home)"


def test_a_variable_that_is_no_setting_is_named_with_the_one_that_is_meant() -> None:
    known = ("EVERTURN_PORT", "EVERTURN_TEMPORAL_BINARY", "EVERTURN_API_KEY_FILE")
    others = ("EVERTURN_TEST_PHASE", "OTHER_PROT", "EVERTURN_PROT", "EVERTURN_PORT_FILE")
    environ = dict.fromkeys((*known, *others), "1")

    assert unknown_variables(environ) == [
        "The variable EVERTURN_PORT_FILE is no setting (did you mean 'EVERTURN_PORT'?); mend or"
        " unset it.",
        "The variable EVERTURN_PROT is no setting (did you mean 'EVERTURN_PORT'?); mend or unset"
        " it.",
    ]


def test_every_setting_says_what_it_is() -> None:
    assert [name for name, one in Settings.model_fields.items() if not one.description] == []


def test_the_table_of_the_readme_is_what_the_settings_say_of_themselves() -> None:
    text = README.read_text()

    assert text == settings_table.with_table(text), "run `make settings`"


def test_a_row_of_the_table_tells_flag_secret_file_and_what_holds_without() -> None:
    rows = {line.split("`")[1]: line for line in settings_table.table().splitlines() if "`" in line}

    assert rows["EVERTURN_PORT"].startswith("| `EVERTURN_PORT` | `--port` | `7430` | port of")
    assert rows["EVERTURN_HOME"].startswith("| `EVERTURN_HOME` | `--home` | the data folder of")
    assert rows["EVERTURN_API_KEY"].startswith("| `EVERTURN_API_KEY`, `_FILE` | | none | ")
    assert rows["EVERTURN_UNSAFE_COMMANDS"].startswith("| `EVERTURN_UNSAFE_COMMANDS` | | `false`")
    assert len(rows) == len(Settings.model_fields)
