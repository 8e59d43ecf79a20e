"""Streaming text on its way to the log: in order, once, and never in the way."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from everturn.errors import Fenced
from everturn.events import Draft
from everturn.session import SessionKey
from everturn_activities.deltas import DeltaWriter
from everturn_activities.gateways import TextDelta, ThinkingDelta

KEY = SessionKey("default", "s")


class Log:
    """An event log whose appends end when the test says so."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.texts: list[str] = []
        self.ids: list[str] = []
        self.appending = asyncio.Event()
        self.go = asyncio.Event()
        self.failure = failure

    async def append_deltas(
        self, key: SessionKey, turn: int, step: int, attempt: int, drafts: Sequence[Draft]
    ) -> bool:
        self.appending.set()
        await self.go.wait()
        self.texts += [draft.body["text"] for draft in drafts]
        self.ids += [draft.id for draft in drafts]
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return True

    read: Callable[..., None]
    watch: Callable[..., None]


def writer(log: Log) -> DeltaWriter:
    return DeltaWriter(log, KEY, 1, 1, 1)  # type: ignore[arg-type]


async def test_stopping_waits_for_a_write_under_way_and_begins_no_other() -> None:
    log = Log()
    writing = writer(log)
    writing.add(TextDelta("one "))
    await log.appending.wait()
    writing.add(TextDelta("two"))
    stopping = asyncio.create_task(writing.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    log.go.set()
    async with asyncio.timeout(5):
        await stopping
    assert log.texts == ["one "]
    assert [draft.body["text"] for draft in writing.rest()] == ["two"]


async def test_a_short_reply_is_left_to_be_written_with_its_journal() -> None:
    log = Log()
    writing = writer(log)
    writing.add(ThinkingDelta("hm"))
    writing.add(TextDelta("one "))
    writing.add(TextDelta("two"))
    await writing.stop()
    assert [(d.type, d.body["text"]) for d in writing.rest()] == [
        ("thinking_delta", "hm"),
        ("text_delta", "one two"),
    ]
    assert not log.appending.is_set()


async def test_what_a_failed_write_held_is_written_again_under_the_same_ids() -> None:
    log = Log(OSError("the store is away"))
    log.go.set()
    writing = writer(log)
    writing.add(TextDelta("one "))
    await log.appending.wait()
    writing.add(TextDelta("two"))
    await writing.stop()
    rest = writing.rest()
    assert [draft.body["text"] for draft in rest] == ["one ", "two"]
    assert rest[0].id == log.ids[0]
    assert rest[1].id != rest[0].id


async def test_a_fenced_writer_says_so_to_the_stream() -> None:
    log = Log(Fenced("over"))
    log.go.set()
    writing = writer(log)
    writing.add(TextDelta("one "))
    await log.appending.wait()
    await writing.stop()
    with pytest.raises(Fenced):
        writing.add(TextDelta("two"))
