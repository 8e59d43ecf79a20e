"""Giving work on the command line and watching it."""

import asyncio
import json
import signal
import sqlite3
from contextlib import closing

import pytest
from commands import ended

from everturn.errors import UnknownSession
from everturn.session import SessionKey
from everturn_workers.cli import work


async def waits(runtime, session: str) -> None:
    """Until the session holds a message that no turn has taken."""
    async with asyncio.timeout(30):
        while True:
            try:
                if (await runtime.store.session(SessionKey("default", session))).waiting:
                    return
            except UnknownSession:
                pass
            await asyncio.sleep(0.02)


def spoil_events(runtime, turn: int) -> None:
    with closing(sqlite3.connect(runtime.folder / "everturn.db")) as connection, connection:
        connection.execute("UPDATE events SET body = 'spoiled' WHERE turn = ?", (turn,))


async def test_a_run_prints_the_answer_and_tells_the_rest_on_stderr(commands, runtime):
    process = await commands.start("run", "say it", "--session", "s")
    await waits(runtime, "s")
    await runtime.work("s", "good ", "day")

    ran = await ended(process)

    assert (ran.code, ran.out) == (0, "good day\n")
    assert "completed: 1 step, 7 tokens in, 3 out, $0.5000" in ran.err


async def test_T21_active_session_names_the_session_that_a_run_goes_on_with(commands, runtime):
    (runtime.folder / "home").mkdir(exist_ok=True)
    none = await commands("run", "say it", "--continue", "--detach")
    assert (none.code, none.err.count("\n")) == (2, 1)
    assert "there is none to go on with; leave --continue out" in none.err
    first = await commands("run", "say it", "--detach")
    session = first.out.strip()
    assert (runtime.folder / "home" / "active_session").read_text() == f"{session}\n"
    again = await commands("run", "say more", "--continue", "--detach")
    assert (again.code, again.out.strip()) == (0, session)
    assert (await runtime.store.session(SessionKey("default", session))).waiting == 2
    await commands("run", "say it", "--session", "other", "--detach")
    assert (await commands("run", "on", "--continue", "--detach")).out.strip() == "other"
    both = await commands("run", "on", "--continue", "--session", "s")
    assert (both.code, both.err) == (2, "Name one of --session and --continue.\n")


async def test_events_are_json_lines_that_end_with_the_turn(commands, runtime):
    process = await commands.start("run", "say it", "--session", "s", "--json")
    await waits(runtime, "s")
    await runtime.work("s", "good ", "day")

    ran = await ended(process)

    events = [json.loads(line) for line in ran.out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert all({"type", "turn", "step", "attempt"} <= set(event) for event in events)
    assert events[-1]["type"] == "turn_finished"
    assert (events[-1]["outcome"], events[-1]["text"]) == ("completed", "good day")
    assert events[-1]["usage"]["output_tokens"] == 3


async def test_a_failed_turn_exits_1_and_says_why(commands, runtime):
    process = await commands.start("run", "say it", "--session", "s")
    await waits(runtime, "s")
    await runtime.fail("s", "The provider refused the key.")

    ran = await ended(process)

    assert ran.code == 1
    assert "The provider refused the key." in ran.err


async def test_u3_only_the_last_attempt_reaches_stdout(commands, runtime):
    """U3: clients drop what a retry supersedes."""
    process = await commands.start("run", "say it", "--session", "s")
    await waits(runtime, "s")
    head = await runtime.begin("s")
    context, first = await runtime.begin_step(head)
    await runtime.stream(context, first, "good ")
    second = await runtime.begin_attempt(context)
    await runtime.stream(context, second, "good ", "day")
    await runtime.finish(head, context, second, "good day")

    assert (await ended(process)).out == "good day\n"


async def test_ctrl_c_detaches_and_says_how_to_go_on(commands, runtime):
    process = await commands.start("run", "say it", "--session", "s")
    await waits(runtime, "s")
    async with asyncio.timeout(30):
        while b"Session s" not in await process.stderr.readline():
            pass
    process.send_signal(signal.SIGINT)

    ran = await ended(process)

    assert ran.code == 130
    assert "'everturn attach s'" in ran.err
    assert "'everturn cancel s'" in ran.err
    assert "Traceback" not in ran.err
    assert (await runtime.store.session(SessionKey("default", "s"))).waiting == 1


def test_who_detaches_from_a_runtime_of_its_own_is_told_that_its_end_takes_a_while(capsys):
    work._say_detached("s", ends=True)

    assert "some seconds" in capsys.readouterr().err


async def test_a_task_is_read_from_stdin(commands, runtime):
    ran = await commands("run", "-", "--session", "s", "--detach", stdin="gr\u00fc\u00df".encode())

    assert (ran.code, ran.out) == (0, "s\n")
    await runtime.work("s", "x")
    [asked, _] = await runtime.store.messages(SessionKey("default", "s"), 0, 10)
    assert asked.message.parts[0].text == "gr\u00fc\u00df"


async def test_a_message_is_sent_once_under_one_id_and_attached_to_later(commands, runtime):
    await commands("run", "one", "--session", "s", "--detach")
    steer = ("send", "s", "two", "--id", "m", "--mode", "steer", "--json")
    first = await commands(*steer)
    again = await commands(*steer)
    await runtime.work("s", "both")

    attached = await commands("attach", "s")
    replayed = await commands("attach", "s", "--after", "0", "--json")

    assert (json.loads(first.out)["duplicate"], json.loads(again.out)["duplicate"]) == (False, True)
    assert (attached.code, attached.out) == (0, "both\n")
    lines = [json.loads(line) for line in replayed.out.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))


async def test_attaching_reads_no_turn_before_the_one_that_it_shows(commands, runtime):
    await commands("run", "one", "--session", "s", "--detach")
    await runtime.work("s", "first")
    await commands("send", "s", "two")
    await runtime.work("s", "second")
    # Whoever reads it now fails.
    spoil_events(runtime, turn=1)

    ran = await commands("attach", "s")

    assert (ran.code, ran.out) == (0, "second\n")


async def test_attaching_to_work_that_waits_follows_the_turn_that_takes_it(
    commands, runtime, served
):
    await commands("run", "one", "--session", "s", "--detach")
    await runtime.work("s", "first")
    await commands("send", "s", "two")
    spoil_events(runtime, turn=1)

    process = await commands.start("attach", "s")
    async with asyncio.timeout(30):
        while not served.streams.watchers:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await runtime.work("s", "second")
    ran = await ended(process)

    assert (ran.code, ran.out) == (0, "second\n")


async def test_attaching_behind_the_end_of_a_turn_says_how_it_ended(commands, runtime):
    await commands("run", "one", "--session", "s", "--detach")
    await runtime.work("s", "done")

    end = (await runtime.store.session(SessionKey("default", "s"))).cursor
    ran = await commands("attach", "s", "--after", end)

    assert (ran.code, ran.out) == (0, "")


async def test_a_cancel_names_its_turn(commands, runtime):
    await commands("run", "one", "--session", "s", "--detach")
    head = await runtime.begin("s")

    ran = await commands("cancel", "s")

    assert ran.code == 0
    assert "Turn 1 of session s is asked to end." in ran.err
    assert await runtime.store.cancelled(SessionKey("default", "s"), head.turn)


async def test_messages_that_arrive_meanwhile_are_shown_to_whoever_is_attached(commands, runtime):
    await commands("run", "one", "--session", "s", "--detach")
    head = await runtime.begin("s")
    context, attempt = await runtime.begin_step(head)
    await commands("send", "s", "then this")
    await commands("send", "s", "stop that", "--mode", "interrupt")
    attached = await commands.start("attach", "s")
    async with asyncio.timeout(30):
        shown = [(await attached.stderr.readline()).decode() for _ in range(2)]
    await runtime.finish(head, context, attempt, "done")
    await ended(attached)

    assert shown == [
        'message "then this" waits for the next turn.\n',
        'message "stop that" interrupts the turn.\n',
    ]


async def test_a_mode_without_a_turn_to_stop_says_that_the_message_is_queued(commands, runtime):
    await commands("run", "one", "--session", "s", "--detach")

    ran = await commands("send", "s", "two", "--mode", "rollback")

    assert ran.code == 0
    assert "No turn is open that it could roll back; it is queued." in ran.err


async def test_sessions_are_listed_and_shown(commands, runtime):
    await commands("run", "[one] a\\b", "--session", "s", "--detach")
    await runtime.work("s", "done")

    listed = await commands("sessions", "list")
    shown = await commands("sessions", "show", "s")
    as_json = await commands("sessions", "show", "s", "--json")

    [row] = [line for line in listed.out.splitlines() if " s " in f" {line} "]
    assert row.rstrip().endswith(" [one] a\\b")
    assert "completed" in shown.out
    assert "$0.5000" in shown.out
    assert json.loads(as_json.out)["turns"][0]["steps"][0]["attempts"] == 1


@pytest.mark.parametrize("arguments", [("list",), ("show", "s")])
async def test_color_is_left_out_of_a_pipe(commands, runtime, arguments):
    await commands("run", "one", "--session", "s", "--detach")

    assert "\x1b" not in (await commands("sessions", *arguments)).out
