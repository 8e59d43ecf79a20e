"""The event log: what watchers of a session read."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from everturn.events import Draft, Event
from everturn.session import SessionKey


class EventLog(Protocol):
    """Numbers events per session without gaps, and tells every process of new ones.

    State changes come in through the store's own transaction; `append_deltas` is the only
    other way in.
    """

    async def append_deltas(
        self, key: SessionKey, turn: int, step: int, attempt: int, drafts: Sequence[Draft]
    ) -> None:
        """Append pieces of a streaming reply; Fenced when a newer attempt has begun."""

    async def read(self, key: SessionKey, after: tuple[int, int], limit: int) -> list[Event]:
        """Events after the cursor `(epoch, seq)`, oldest first; UnknownSession raises."""
        ...

    def watch(self, key: SessionKey, after: tuple[int, int]) -> AsyncIterator[list[Event]]:
        """Batches of events after the cursor, for ever; woken by writers, polling as fallback."""
        ...
