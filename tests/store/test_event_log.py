"""What watchers read: numbered without gaps, told at once or found by looking."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from glob import glob
from pathlib import Path
from unittest.mock import patch

import pytest
from databases import Databases
from redis_servers import RedisServer
from redis_stories import on_redis
from stories import Open, Story, delta

from everturn.errors import UnknownSession
from everturn.events import Event
from everturn.session import SessionKey
from everturn_activities import wakeups


@pytest.fixture(params=["in the store", "in redis"])
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def opened(request: pytest.FixtureRequest, where: str, databases: Databases, opened: Open) -> Open:
    """Every log there is."""
    if where == "in the store":
        return opened
    server: RedisServer = request.getfixturevalue("redis")
    prefix = f"everturn:{secrets.token_hex(4)}:"

    def open_(folder: Path) -> AbstractAsyncContextManager[Story]:
        return on_redis(databases, server.url, prefix)

    return open_


async def test_events_are_numbered_from_one_without_gaps(story: Story) -> None:
    await story.send()
    turn = await story.begun()
    await story.step(turn, 1, calls=["a"])
    await story.begin_tool(turn)
    await story.end_tool(turn)
    await story.step(turn, 2)
    await story.finish(turn)
    events = await story.told()
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert len({event.epoch for event in events}) == 1


async def test_a_watcher_reads_on_from_any_number(story: Story) -> None:
    for n in range(10):
        await story.send(f"text {n}")
    assert [e.seq for e in await story.events.read(story.key, (1, 7), 100)] == [8, 9, 10]
    assert [e.seq for e in await story.events.read(story.key, (1, 3), 2)] == [4, 5]
    assert await story.events.read(story.key, (1, 10), 100) == []


async def test_deltas_of_the_last_attempt_make_up_the_stored_message(story: Story) -> None:
    """Invariant 4."""
    await story.send()
    turn = await story.begun()
    context = await story.prepare(turn)
    first = await story.start(context)
    await story.events.append_deltas(story.key, 1, 1, first, [delta("never ", 1)])
    second = await story.start(context)
    await story.events.append_deltas(story.key, 1, 1, second, [delta("good ", 1, second)])
    await story.reply(context, second, "good day", deltas=[delta("day", 2, second)])

    text = ""
    for event in await story.told("text_delta", "superseded"):
        text = "" if event.type == "superseded" else text + event.body["text"]
    assert text == "good day"
    assert (await story.transcript())[-1] == "assistant: good day"
    events = await story.told()
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_deltas_written_twice_stand_once(story: Story) -> None:
    await story.send()
    context = await story.prepare(await story.begun())
    attempt = await story.start(context)
    pieces = [delta("a", 1), delta("b", 2)]
    await story.events.append_deltas(story.key, 1, 1, attempt, pieces[:1])
    await story.events.append_deltas(story.key, 1, 1, attempt, pieces)
    await story.reply(context, attempt, "ab", deltas=pieces)
    assert [e.body["text"] for e in await story.told("text_delta")] == ["a", "b"]


async def test_an_unknown_session_has_no_events_and_says_so(story: Story) -> None:
    nobody = SessionKey("default", "nobody")
    with pytest.raises(UnknownSession):
        await story.events.read(nobody, (1, 0), 10)


async def _next(watching: AsyncIterator[list[Event]], seconds: float) -> list[Event]:
    async with asyncio.timeout(seconds):
        return await anext(watching)


async def test_a_watcher_in_another_process_is_told_at_once(
    story: Story, opened: Open, tmp_path: Path
) -> None:
    with patch.object(wakeups, "POLL_SECONDS", 3600.0):
        async with opened(tmp_path) as other:
            with patch.object(wakeups.changed, "__defaults__", (3600.0,)):
                watching = other.events.watch(story.key, (1, 0))
                waiting = asyncio.create_task(_next(watching, 10))
                await _is_waiting(other)
                await story.send("hello")
                (event,) = await waiting
                await watching.aclose()  # type: ignore[attr-defined]
    assert event.type == "message_accepted"


async def test_a_watcher_finds_events_by_looking_when_nobody_can_tell_it(
    story: Story, opened: Open, tmp_path: Path
) -> None:
    async with opened(tmp_path) as other:
        watching = other.events.watch(story.key, (1, 0))
        waiting = asyncio.create_task(_next(watching, 10))
        await _is_waiting(other)
        for socket in glob(f"{tmp_path}/sockets/*"):
            os.unlink(socket)
        await story.send("hello")
        (event,) = await waiting
        await watching.aclose()  # type: ignore[attr-defined]
    assert event.type == "message_accepted"


async def _is_waiting(other: Story) -> None:
    """Until the watcher has read that nothing is there."""
    await other.events.read(other.key, (1, 0), 1)
    for _ in range(100):
        await asyncio.sleep(0.001)
