"""What a person can get wrong: one sentence on stderr, the right exit code, no traceback."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from everturn_activities.starter import create
from everturn_workers import serving
from everturn_workers.settings import Settings


def is_one_sentence(ran, code: int, *says: str) -> bool:
    assert "Traceback" not in ran.err
    assert ran.out == ""
    [line] = ran.err.splitlines()
    assert line.endswith((".", "?"))
    for words in says:
        assert words in line
    return ran.code == code


async def test_a_missing_workspace(commands, tmp_path):
    commands.folder = tmp_path

    assert is_one_sentence(await commands("run", "x"), 2, str(tmp_path), "everturn init")
    named = await commands("run", "x", "--workspace", "/nowhere")
    assert is_one_sentence(named, 2, "/nowhere", "everturn init")


async def test_a_broken_workspace(commands, runtime):
    (runtime.workspace / "everturn.toml").write_text("[model\n")

    assert is_one_sentence(await commands("run", "x"), 2, "everturn.toml")


async def test_an_unknown_model(commands):
    assert is_one_sentence(await commands("run", "x", "--model", "opnai/gpt"), 2, "opnai")


async def test_an_unknown_agent(commands):
    assert is_one_sentence(await commands("run", "x", "--agent", "stranger"), 2, "stranger")


@pytest.mark.parametrize("command", ["send", "attach", "cancel", "sessions"])
async def test_an_unknown_session(commands, command):
    arguments = {
        "send": ("send", "nobody", "x"),
        "sessions": ("sessions", "show", "nobody"),
    }.get(command, (command, "nobody"))

    assert is_one_sentence(await commands(*arguments), 2, "nobody")


async def test_a_session_of_another_workspace(commands, runtime, tmp_path):
    create(tmp_path / "other")
    await commands("run", "x", "--session", "s", "--detach")

    ran = await commands("run", "x", "--session", "s", "--workspace", str(tmp_path / "other"))
    same = await commands(
        *("run", "x", "--session", "s", "--workspace", str(runtime.workspace), "--detach")
    )

    assert is_one_sentence(ran, 2, "'s'", str(runtime.workspace), str(tmp_path / "other"))
    assert same.code == 0


async def test_an_impossible_session_id(commands):
    assert is_one_sentence(await commands("attach", "a/../b"), 2, "a/../b", "1 to 200 letters")


async def test_a_dead_api(commands):
    ran = await commands("sessions", "list", "--port", "1")

    assert is_one_sentence(ran, 1, "No runtime answers at http://127.0.0.1:1", "'everturn up'")


async def test_a_message_of_ten_megabytes(commands):
    ran = await commands("run", "-", stdin=b"x" * 10_000_000)

    assert is_one_sentence(ran, 2, "10,000,000 bytes", "262,144", "file of the working folder")


async def test_invalid_utf_8_on_stdin_and_in_an_argument(commands):
    assert is_one_sentence(await commands("run", "-", stdin=b"caf\xe9"), 2, "not valid UTF-8")
    assert is_one_sentence(await commands("run", b"caf\xe9"), 2, "not valid UTF-8")


async def test_an_empty_task(commands):
    assert is_one_sentence(await commands("run", " "), 2, "The task is empty")


async def test_a_setting_that_cannot_be(commands):
    ran = await commands("sessions", "list", EVERTURN_PORT="many")

    assert is_one_sentence(ran, 2, "'port'", "EVERTURN_PORT")


async def test_an_unknown_flag_and_an_unknown_command(commands):
    assert is_one_sentence(await commands("run", "x", "--fast"), 2, "--fast", "run --help")
    assert is_one_sentence(await commands("fly"), 2, "fly", "--help")
    assert is_one_sentence(await commands("send", "s", "x", "--mode", "later"), 2, "later")


async def test_no_command_at_all_is_answered_with_the_help(commands):
    for group in ((), ("sessions",)):
        ran = await commands(*group)

        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("Usage: ")
        assert "; see" not in ran.err


async def test_a_chat_without_a_terminal(commands):
    assert is_one_sentence(await commands("chat"), 2, "needs a terminal")


async def test_a_port_that_is_taken(commands, served):
    ran = await commands("api", "--port", served.url.rpartition(":")[2])

    assert is_one_sentence(ran, 2, "cannot listen", "--port")


async def test_a_network_address_without_a_key(commands):
    ran = await commands("api", EVERTURN_HOST="0.0.0.0")

    assert is_one_sentence(ran, 2, "EVERTURN_API_KEY")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("EVERTURN_PORT", "", "cannot listen"),
        ("EVERTURN_HOST", "0.0.0.0", "EVERTURN_API_KEY"),
        ("EVERTURN_API_KEY", " ", "EVERTURN_API_KEY is empty"),
        ("EVERTURN_DATABASE_URL", "mysql://db/x", "PostgreSQL"),
        ("EVERTURN_DATABASE_URL", "postgresql://db", "names no database"),
        ("EVERTURN_DATABASE_URL", "postgresql://u:p@s/word@db:5432/e", "write %40 for @ and %2F"),
        ("EVERTURN_DATABASE_URL", "nonsense", "not a database URL"),
    ],
)
async def test_what_up_cannot_work_under_is_refused_before_anything_starts(
    commands, runtime, name, value, says
):
    # The port that the commands are given is that of the API which runs already.
    given = {name: value} if value else {}

    ran = await commands("up", **given)

    assert is_one_sentence(ran, 2, says)
    assert not list(runtime.folder.glob("home/logs/*"))


async def test_a_worker_without_a_temporal_server_says_that_it_waits(caplog):
    caplog.set_level("INFO", logger=serving.__name__)
    waiting = asyncio.create_task(serving._connected(Settings(temporal_address="127.0.0.1:1")))
    async with asyncio.timeout(30):
        while not caplog.messages:  # noqa: ASYNC110 - a log tells nobody.
            await asyncio.sleep(0.01)
    waiting.cancel()
    assert caplog.messages == ["waits for the Temporal server at 127.0.0.1:1"]


def test_help_needs_none_of_the_heavy_imports():
    seen = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "everturn_workers.cli", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    loaded = {line.rpartition("|")[2].strip() for line in seen.splitlines()}

    assert not loaded & {"httpx", "fastapi", "sqlalchemy", "temporalio", "litellm", "rich"}


async def test_what_is_init_is_a_workspace(commands, tmp_path: Path):
    ran = await commands("init", str(tmp_path / "new"))
    again = await commands("init", str(tmp_path / "new"))

    assert ran.code == again.code == 0
    assert str(tmp_path / "new" / "everturn.toml") in ran.out
    assert again.out == ""
