"""Rows B9, B12, U4: what is sent to a turn while it works."""

import asyncio
import time

import pytest
from harness import Bench, calls, eventually, says, scripted
from model_servers import Request, event, raw_server
from test_inbox_of_a_running_turn import sleeping

from everturn.events import Event
from everturn.messages import ToolMessage, UserMessage
from everturn.session import SessionKey
from everturn_activities.gateways.chat_completions import ChatCompletionsGateway

# A second, and what a machine takes longer that runs other tests beside.
SOON_SECONDS = 3.0

STUBBORN = '''
import time
from everturn import ToolContext, tool


@tool(effect="idempotent", timeout_seconds=60)
def stubborn(context: ToolContext) -> str:
    """Sleep in a thread, which nothing can end, until a file says that it is enough."""
    (context.working_dir / "stubborn.began").touch()
    while not (context.working_dir / "enough").exists():
        time.sleep(0.05)
    return "slept"
'''


async def cancelled(made: Bench, key: SessionKey) -> list[Event]:
    """All events, once a cancel has ended the turn, which it must soon."""
    async with asyncio.timeout(30):
        await made.cancel(key)
        events = await made.until(key, "turn_finished")
    [asked] = [event for event in events if event.type == "cancel_accepted"]
    assert events[-1].body["outcome"] == "cancelled"
    assert events[-1].time - asked.time < SOON_SECONDS
    return events


@pytest.mark.parametrize("placement", ["inline", "queued"])
@pytest.mark.parametrize("pieces", [[], [event({"content": "I thi"})]])
async def test_B9_a_cancel_ends_a_stream_that_is_silent(
    made: Bench, placement: str, pieces: list[bytes]
):
    asked = asyncio.Event()

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        if pieces:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            writer.writelines(pieces)
            await writer.drain()
        asked.set()
        await server.closed.wait()

    key = await made.session()
    async with raw_server(answer) as server:
        gateway = ChatCompletionsGateway(base_url=f"{server.url}/v1", key="sk-test")
        async with made.worker(gateway, placement=placement):
            await made.send(key, "think")
            await asked.wait()
            if pieces:
                await made.until(key, "text_delta")
            events = await cancelled(made, key)
        assert len(server.requests) == 1
        server.closed.set()
    assert events[-1].body["text"] == ("I thi" if pieces else "")


async def test_B9_a_cancel_ends_a_command_whose_processes_ignore_SIGTERM(made: Bench):
    key = await made.session()
    marker = f"300.{time.time_ns()}"
    deaf = f"trap '' TERM INT HUP; sleep {marker}"
    command = f'{deaf} & (setsid sh -c "{deaf}; true") & {deaf}; true'
    gateway = scripted(calls("run_command", command=command), says("never"))
    async with made.worker(gateway):
        await made.send(key, "wait")
        await eventually(lambda: len(sleeping(marker)) == 3)
        await cancelled(made, key)
        await eventually(lambda: not sleeping(marker))
    assert len(gateway.requests) == 1


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_B9_a_cancel_waits_for_no_thread_and_says_that_it_runs_on(
    made: Bench, placement: str
):
    (made.workspace / "tools" / "stubborn.py").write_text(STUBBORN)
    key = await made.session()
    gateway = scripted(calls("stubborn"), says("never"))
    async with made.worker(gateway, placement=placement):
        await made.send(key, "sleep")
        await eventually((made.workspace / "stubborn.began").exists)
        await cancelled(made, key)
        (made.workspace / "enough").touch()
    results = (await made.transcript(key))[-1]
    assert isinstance(results, ToolMessage)
    assert "could not be ended and may still take effect" in results.results[0].text
    assert len(gateway.requests) == 1


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_B9_a_cancel_wakes_a_turn_that_waits_to_try_its_model_again(
    made: Bench, placement: str
):
    gateway = scripted(says("ok", status=429, retry_after=600, times=99))
    key = await made.session()
    async with made.worker(gateway, placement=placement):
        await made.send(key, "talk")
        await made.until(key, "status")
        await cancelled(made, key)
        await made.closed(key)
    assert len(gateway.requests) == 1


async def test_B12_messages_sent_during_a_tool_follow_its_result_in_order(made: Bench):
    gateway = scripted(
        by_last_user={"start": [calls("slow", seconds=1.0)], "second": [says("Both.")]}
    )
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "start")
        await eventually((made.workspace / "slow.began").exists)
        await made.send(key, "first", "steer")
        await made.send(key, "second", "steer")
        await made.until(key, "turn_finished")

    said = gateway.requests[1].messages[2:]
    assert isinstance(said[0], ToolMessage)
    assert said[0].results[0].text == "slept"
    texts = [m.parts[0].text for m in said[1:] if isinstance(m, UserMessage)]  # type: ignore[union-attr]
    assert texts == ["first", "second"]


async def test_U4_what_is_sent_while_no_worker_runs_reaches_the_turn_that_is_open(made: Bench):
    gateway = scripted(says("ok", status=429, retry_after=600, times=99))
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "start")
        await made.until(key, "status")
    again = [await made.send(key, "instead", "interrupt", message_id="i") for _ in range(2)]

    async with made.worker(gateway):
        events = await made.until(key, "turn_started", turn=2)

    assert [view.duplicate for view in again] == [False, True]
    [finished] = [event.body for event in events if event.type == "turn_finished"]
    assert finished["outcome"] == "cancelled"
    assert finished["reason"] == 'Message "instead" interrupted the turn.'
    assert events[-1].body["messages"] == ["i"]
