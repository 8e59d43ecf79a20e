"""What is sent to a session while its turn runs: messages, cancels, wake-ups."""

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
from harness import Bench, calls, eventually, says, scripted

from everturn.events import Event
from everturn.messages import AssistantMessage, ToolMessage, UserMessage, user_text
from everturn_activities.store import Inbound


def user_lines(messages: list[UserMessage | AssistantMessage | ToolMessage]) -> list[str]:
    return [m.parts[0].text for m in messages if isinstance(m, UserMessage)]  # type: ignore[union-attr]


async def test_steer_joins_at_the_next_step_and_queue_in_the_next_turn(made: Bench) -> None:
    gateway = scripted(
        by_last_user={
            "start": [{**calls("add", a=1, b=2), "text": "adding first", "hold": "mid"}],
            "now": [says("steered")],
            "later": [says("queued")],
        }
    )
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "start")
        await gateway.reached("mid")
        await made.send(key, "later", "queue")
        await made.send(key, "now", "steer")
        gateway.release("mid")
        events = await made.until(key, "turn_finished", turn=2)
        await made.closed(key)

    assert user_lines(await made.transcript(key)) == ["start", "now", "later"]
    admitted = [e for e in events if e.type == "message_admitted"]
    assert [(e.body["message_id"], e.turn, e.step) for e in admitted] == [
        ("m1", 1, 1),
        ("m3", 1, 2),
        ("m2", 2, 1),
    ]
    assert [e.body["text"] for e in events if e.type == "turn_finished"] == ["steered", "queued"]
    roles = [message.role for message in await made.transcript(key)]
    assert roles == ["user", "assistant", "tool", "user", "assistant", "user", "assistant"]


async def test_fifty_messages_at_once_are_each_worked_once_in_order_of_acceptance(
    made: Bench,
) -> None:
    gateway = scripted(says("ok"))
    key = await made.session()
    async with made.worker(gateway):
        views = await asyncio.gather(*(made.send(key, f"text {n}") for n in range(50)))
        await _idle(made, key.session)
        await made.closed(key)

    ordered = [view.id for view in sorted(views, key=lambda view: view.position)]
    started = [e for e in await made.events(key) if e.type == "turn_started"]
    assert [name for e in started for name in e.body["messages"]] == ordered
    assert len(user_lines(await made.transcript(key))) == 50
    assert len(gateway.requests) == len(started)


async def test_the_hundredth_message_sent_twice_is_worked_once(made: Bench) -> None:
    gateway = scripted(says("ok"))
    key = await made.session()
    async with made.worker(gateway):
        for n in range(99):
            await made.send(key, f"text {n}")
        first, second = await asyncio.gather(
            made.send(key, "the hundredth", message_id="hundred"),
            made.send(key, "the hundredth", message_id="hundred"),
        )
        await _idle(made, key.session)
        third = await made.send(key, "the hundredth", message_id="hundred")
        await made.closed(key)

    assert sorted([first.duplicate, second.duplicate]) == [False, True]
    assert third.duplicate
    assert first.position == second.position == third.position == 100
    assert user_lines(await made.transcript(key)).count("the hundredth") == 1


async def _idle(made: Bench, session: str) -> None:
    """Wait until every accepted message is worked."""
    key = await made.session(session)
    turn = 0
    while True:
        turn += 1
        await made.until(key, "turn_finished", turn=turn)
        view = await made.runtime.store.session(key)
        if view.waiting == 0 and view.status == "idle":
            return


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_a_cancel_ends_a_stream_and_keeps_what_was_said(made: Bench, placement: str) -> None:
    gateway = scripted(says("one two three four", hold="mid"), says("never"))
    key = await made.session()
    async with made.worker(gateway, placement=placement):
        await made.send(key, "talk")
        await gateway.reached("mid")
        async with asyncio.timeout(2):
            await made.cancel(key)
            events = await made.until(key, "turn_finished")
        await made.closed(key)

    assert events[-1].body["outcome"] == "cancelled"
    assert events[-1].body["reason"] == "The turn was cancelled."
    assert events[-1].body["text"] == "one two "
    assert deltas(events) == "one two "
    assert len(gateway.requests) == 1


@pytest.mark.parametrize(("placement", "tool"), [("inline", "slow"), ("queued", "slow"),
                                                  ("queued", "effect")])  # fmt: skip
async def test_a_cancel_ends_a_tool_and_no_model_call_follows(
    made: Bench, placement: str, tool: str
) -> None:
    gateway = scripted(calls(tool, seconds=60), says("never"))
    key = await made.session()
    async with made.worker(gateway, placement=placement):
        await made.send(key, "wait")
        await made.until(key, "step_finished")
        await eventually((made.workspace / f"{tool}.began").exists)
        async with asyncio.timeout(2):
            await made.cancel(key)
            events = await made.until(key, "turn_finished")
        await made.closed(key)

    assert events[-1].body["outcome"] == "cancelled"
    assert len(gateway.requests) == 1
    results = (await made.transcript(key))[-1]
    assert isinstance(results, ToolMessage)
    assert results.results[0].failed
    assert "cancelled" in results.results[0].text


async def test_a_cancel_ends_the_whole_process_group_of_a_command(made: Bench) -> None:
    key = await made.session()
    marker = f"300.{time.time_ns()}"
    command = f"sleep {marker} & sleep {marker}; true"
    gateway = scripted(calls("run_command", command=command), says("never"))
    async with made.worker(gateway):
        await made.send(key, "wait")
        await eventually(lambda: len(sleeping(marker)) == 2)
        async with asyncio.timeout(5):
            await made.cancel(key)
            await made.until(key, "turn_finished")
    await eventually(lambda: not sleeping(marker))


async def test_a_cancel_before_the_turn_began_leaves_the_model_alone(made: Bench) -> None:
    gateway = scripted(says("never"))
    key = await made.session()
    await made.send(key, "talk")
    assert (await made.cancel(key)).status == "accepted"
    async with made.worker(gateway):
        events = await made.until(key, "turn_finished")
    assert events[-1].body["outcome"] == "cancelled"
    assert gateway.requests == []


async def test_a_session_stays_usable_after_a_cancel_in_mid_call(made: Bench) -> None:
    gateway = scripted(
        by_last_user={"wait": [calls("slow", "add", seconds=60)], "again": [says("here I am")]}
    )
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "wait")
        await eventually((made.workspace / "slow.began").exists)
        await made.cancel(key)
        await made.send(key, "again")
        events = await made.until(key, "turn_finished", turn=2)
    assert events[-1].body["text"] == "here I am"
    asked, results = gateway.requests[-1].messages[1:3]
    assert isinstance(asked, AssistantMessage)
    assert isinstance(results, ToolMessage)
    assert [r.call_id for r in results.results] == [c.id for c in asked.tool_calls]


async def test_a_cancel_ends_a_turn_that_waits_to_try_its_model_again(made: Bench) -> None:
    gateway = scripted(says("ok", status=429, retry_after=600, times=99))
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "talk")
        await made.until(key, "status")
        async with asyncio.timeout(5):
            await made.cancel(key)
            events = await made.until(key, "turn_finished")
        await made.closed(key)
    assert events[-1].body["outcome"] == "cancelled"
    assert events[-1].body["reason"] == "The turn was cancelled."
    assert len(gateway.requests) == 1


async def test_a_turn_tells_where_it_stands(made: Bench) -> None:
    gateway = scripted(calls("add", a=1, b=2), says("three in all", hold="mid"))
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "add")
        await gateway.reached("mid")
        handle = made.client.get_workflow_handle(key.workflow_id)
        assert await handle.query("state") == {"turn": 1, "step": 1, "cancelled": False}
        gateway.release("mid")
        await made.until(key, "turn_finished")


async def test_a_session_whose_sender_crashed_before_it_signaled_is_woken(made: Bench) -> None:
    gateway = scripted(says("here"))
    key = await made.session()
    accepted = await made.runtime.store.accept(key, Inbound("m", "message", user_text("hello")))
    assert accepted.wake is not None
    async with made.worker(gateway):
        events = await made.until(key, "turn_finished")
    assert events[-1].body["text"] == "here"


def deltas(events: list[Event]) -> str:
    """The text that a watcher has: what a newer attempt supersedes is dropped."""
    text: dict[tuple[int, int], str] = {}
    for event in events:
        place = (event.turn, event.step)
        if event.type == "superseded":
            text[place] = ""
        elif event.type == "text_delta":
            text[place] = text.get(place, "") + event.body["text"]
    return "".join(text.values())


def sleeping(seconds: str) -> list[str]:
    """The processes `sleep seconds` of this machine."""
    found = []
    for entry in os.listdir("/proc"):
        with suppress(OSError):
            if Path(f"/proc/{entry}/cmdline").read_text() == f"sleep\0{seconds}\0":
                found.append(entry)
    return found
