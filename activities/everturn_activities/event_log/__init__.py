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
    ) -> bool:
        """Append pieces of a streaming reply; Fenced when a newer attempt has begun.

        False where the log was lost and has none of the attempt's earlier pieces: then it took
        none, and wants all of them. RuntimeUnavailable where it is away.
        """
        ...

    async def read(self, key: SessionKey, after: tuple[int, int], limit: int) -> list[Event]:
        """Events after the cursor `(epoch, seq)`, oldest first; UnknownSession raises."""
        ...

    def watch(self, key: SessionKey, after: tuple[int, int]) -> AsyncIterator[list[Event]]:
        """Batches of events after the cursor, for ever; woken by writers, polling as fallback."""
        ...

    async def close(self) -> None: ...

    async def end(self, key: SessionKey, like: tuple[int, int]) -> tuple[int, int]:
        """The newest cursor there is, of the same kind as the cursor `like`."""
        ...
