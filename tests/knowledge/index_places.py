"""Where an index of knowledge stands, opened as often as a test has processes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import make_url

from everturn_activities.knowledge import KnowledgeIndex
from everturn_activities.knowledge.postgres import PostgresIndex
from everturn_activities.knowledge.sqlite import SqliteIndex
from everturn_activities.store.database import Database, SqliteDatabase
from everturn_activities.store.postgres import PostgresDatabase


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Place:
    """`clock` is the one that claims are held against."""

    folder: Path
    postgres: str | None
    clock: Clock

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[Database, KnowledgeIndex]]:
        """The store and the index in it or beside it, as another process has them."""
        database: Database
        index: KnowledgeIndex
        if self.postgres is None:
            database = SqliteDatabase(self.folder / "store.db", lambda told: None)
            index = SqliteIndex(self.folder / "knowledge.db", self.clock)
        else:
            database = PostgresDatabase(
                make_url(self.postgres), lambda told: None, self.clock, connections=5
            )
            await database.open()
            index = PostgresIndex(database, asyncio.get_running_loop())
        try:
            yield database, index
        finally:
            await asyncio.to_thread(index.close)
            await database.close()
