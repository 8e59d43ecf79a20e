"""Server-sent events of one session's log."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import orjson
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from everturn.errors import EverturnError
from everturn.events import Event
from everturn.session import SessionKey
from everturn_activities.event_log import EventLog
from everturn_workers.doors.problems import problem

WATCHERS_MAX = 64
KEEP_ALIVE_SECONDS = 15.0
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class Streams:
    """The open streams of this process."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self.keep_alive_seconds = KEEP_ALIVE_SECONDS
        self.watchers: Counter[SessionKey] = Counter()
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End every stream; clients go on where they were, elsewhere or later."""
        self._closing.set()

    async def rest(self, seconds: float) -> bool:
        """Wait so long; whether streams are to end, which cuts it short."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)
        return self._closing.is_set()

    def open(
        self, key: SessionKey, after: tuple[int, int], until_turn: int | None, over: bool
    ) -> Response:
        """Events after the cursor, until the turn has finished where one is named.

        `over` says that it has: then what the log holds is all there is to tell.
        """
        if self.watchers[key] >= WATCHERS_MAX:
            return problem(
                429,
                f"Session {key.session!r} has {WATCHERS_MAX} watchers, which is the limit; close"
                " one and try again.",
            )
        return _Stream(self._frames(key, after, until_turn, over), self.watchers, key)

    async def _frames(
        self, key: SessionKey, after: tuple[int, int], until_turn: int | None, over: bool
    ) -> AsyncIterator[bytes]:
        # Headers and a first byte at once, so that a client knows that it is connected.
        yield b": open\n\n"
        if over:
            while events := await self._events.read(key, after, 1000):
                told, ended = _until(events, until_turn)
                yield b"".join(map(frame, told))
                if ended:
                    return
                after = (events[-1].epoch, events[-1].seq)
            return
        watched = self._events.watch(key, after)
        closing = asyncio.ensure_future(self._closing.wait())
        batch: asyncio.Future[list[Event]] | None = None
        try:
            while not closing.done():
                batch = batch or asyncio.ensure_future(anext(watched))
                awaited: set[asyncio.Future[Any]] = {batch, closing}
                await asyncio.wait(
                    awaited,
                    timeout=self.keep_alive_seconds,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not batch.done():
                    yield b": keep-alive\n\n"
                    continue
                events, batch = batch.result(), None
                told, ended = _until(events, until_turn)
                yield b"".join(map(frame, told))
                if ended:
                    return
        finally:
            closing.cancel()
            if batch is not None:
                batch.cancel()
                with suppress(asyncio.CancelledError, StopAsyncIteration, EverturnError):
                    await batch
            await watched.aclose()  # type: ignore[attr-defined]


class _Stream(StreamingResponse):
    """A stream that is counted while it is open, however it ends."""

    media_type = "text/event-stream"

    def __init__(
        self, frames: AsyncIterator[bytes], watchers: Counter[SessionKey], key: SessionKey
    ) -> None:
        super().__init__(frames, headers=HEADERS)
        self._frames = frames
        self._watchers = watchers
        self._key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._watchers[self._key] += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._watchers[self._key] -= 1
            if not self._watchers[self._key]:
                del self._watchers[self._key]
            await self._frames.aclose()  # type: ignore[attr-defined]


def frame(event: Event) -> bytes:
    """One event on the wire: LF only, for some parsers do not take CRLF."""
    data = orjson.dumps(event.flat())
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        event.cursor.encode(),
        event.type.encode(),
        data,
    )


def _until(events: list[Event], turn: int | None) -> tuple[list[Event], bool]:
    """The events up to the end of the turn, or of a later one, and whether that was seen."""
    if turn is not None:
        for index, event in enumerate(events):
            if event.type == "turn_finished" and event.turn >= turn:
                return events[: index + 1], True
    return events, False
