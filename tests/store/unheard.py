"""A database of which no COMMIT is heard at first, so that each change is run twice."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import sqlalchemy as sa

from everturn_activities.store.database import Database, Tx, new_nonce

T = TypeVar("T")


class Unheard:
    """As `inner`, but each change that was committed is run once more, as on a PostgreSQL whose
    answer to the COMMIT was lost; whoever asked is answered by the second run. `changed` are the
    names of changes that the second run answered otherwise than the first."""

    def __init__(self, inner: Database) -> None:
        self._inner = inner
        self.changed: set[str] = set()

    async def write(self, change: Callable[[Tx], T]) -> T:
        nonce = new_nonce()

        def run(tx: Tx) -> T:
            return change(replace(tx, nonce=nonce))

        first = await self._inner.write(run)
        second = await self._inner.write(run)
        if second != first:
            self.changed.add(change.__qualname__.split(".<locals>")[0])
        return second

    async def read(self, look: Callable[[sa.Connection], T]) -> T:
        return await self._inner.read(look)

    async def close(self) -> None:
        await self._inner.close()

    def now(self) -> float:
        return self._inner.now()
