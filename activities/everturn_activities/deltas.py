"""Streaming text on its way to the event log: coalesced, and never waited for.

A write for each token would throttle the stream to the log's pace. The first piece goes
at once, later ones about every 50 ms.
"""

import asyncio
from contextlib import suppress

from everturn.errors import Fenced, RuntimeUnavailable
from everturn.events import Draft, EventType
from everturn.messages import AssistantMessage, Text
from everturn.session import SessionKey
from everturn_activities.event_log import EventLog
from everturn_activities.gateways import Delta, TextDelta, ThinkingDelta, ToolCallDelta

FIRST_SECONDS = 0.004
COALESCE_SECONDS = 0.05
STOP_SECONDS = 5.0


class DeltaWriter:
    """The deltas of one attempt. `rest` are those that the caller commits with the reply."""

    def __init__(
        self, events: EventLog, key: SessionKey, turn: int, step: int, attempt: int
    ) -> None:
        self._events = events
        self._key = key
        self._turn, self._step, self._attempt = turn, step, attempt
        self._pending: list[Delta] = []
        self._said: list[Delta] = []
        self._drafts = 0
        self._writing: asyncio.Task[None] | None = None
        self._unwritten: list[Draft] = []
        self._written: list[Draft] = []
        self._appending = False
        self._stopping = False
        self._error: Fenced | None = None

    def add(self, delta: Delta) -> None:
        """Take a piece of the stream; raises Fenced once a newer attempt has begun."""
        if self._error is not None:
            raise self._error
        self._said.append(delta)
        self._pending.append(delta)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def stop(self) -> None:
        """Let a write under way end, and begin no other."""
        if self._writing is None:
            return
        self._stopping = True
        if not self._appending:
            self._writing.cancel()
        # What is being written is among the rest, too: a log that never answers keeps no reply
        # from being recorded.
        await asyncio.wait({self._writing}, timeout=STOP_SECONDS)
        self._writing.cancel()
        await asyncio.gather(self._writing, return_exceptions=True)
        self._writing = None

    async def close(self) -> None:
        """Stop, and write what is pending: the attempt failed after it was streamed."""
        await self.stop()
        rest = self.rest()
        if rest and self._error is None:
            # A log that is away says nothing of an attempt that failed.
            with suppress(RuntimeUnavailable):
                await self._append(rest)

    def rest(self) -> list[Draft]:
        """What is not written yet, as events; a write that failed may yet have been one."""
        pending, self._pending = self._pending, []
        drafts, self._unwritten = self._unwritten, []
        for kind, call_id, name, text in _joined(pending):
            self._drafts += 1
            body = {"text": text}
            if kind == "tool_call_delta":
                body = {"call_id": call_id, "name": name, "text": text}
            drafts.append(
                Draft(
                    id=f"delta/{self._turn}/{self._step}/{self._attempt}/{self._drafts}",
                    type=kind,
                    turn=self._turn,
                    step=self._step,
                    attempt=self._attempt,
                    body=body,
                )
            )
        return drafts

    def message(self) -> AssistantMessage:
        """The text so far: what a cancelled reply leaves. Unfinished calls and thinking that
        no signature proves cannot go back to a model."""
        text = "".join(delta.text for delta in self._said if isinstance(delta, TextDelta))
        return AssistantMessage(parts=(Text(text=text),) if text else ())

    async def _write(self) -> None:
        # A reply that is whole within these milliseconds is written with its journal.
        await asyncio.sleep(FIRST_SECONDS)
        while not self._stopping:
            drafts = self.rest()
            if drafts:
                self._unwritten, self._appending = drafts, True
                try:
                    await self._append(drafts)
                    self._unwritten = []
                except Fenced as error:
                    self._error = error
                    return
                except RuntimeUnavailable:
                    pass  # Kept, and written with what comes next, or with the reply.
                finally:
                    self._appending = False
            if not self._stopping:
                await asyncio.sleep(COALESCE_SECONDS)

    async def _append(self, drafts: list[Draft]) -> None:
        """Append pieces, and all before them where the log has lost those."""
        at = (self._key, self._turn, self._step, self._attempt)
        if not await self._events.append_deltas(*at, drafts):
            await self._events.append_deltas(*at, [*self._written, *drafts])
        self._written += drafts


def _joined(deltas: list[Delta]) -> list[tuple[EventType, str, str, str]]:
    """Neighbours of one kind as one: `(type, call id, name, text)`."""
    joined: list[tuple[EventType, str, str, str]] = []
    for delta in deltas:
        match delta:
            case TextDelta(text):
                piece: tuple[EventType, str, str, str] = ("text_delta", "", "", text)
            case ThinkingDelta(text):
                piece = ("thinking_delta", "", "", text)
            case ToolCallDelta(_, call_id, name, text):
                piece = ("tool_call_delta", call_id, name, text)
        if joined and joined[-1][:3] == piece[:3]:
            joined[-1] = (*piece[:3], joined[-1][3] + piece[3])
        else:
            joined.append(piece)
    return joined
