"""A test's database, of whichever kind, opened as often as a test has processes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import make_url

from everturn.session import SessionKey
from everturn_activities.store.database import Database, SqliteDatabase
from everturn_activities.store.postgres import PostgresDatabase


@dataclass
class Databases:
    """Where a test's database is; each that is opened is as another process's."""

    sqlite: Path
    postgres: str | None = None

    async def open(
        self,
        told: Callable[[set[SessionKey]], None] = lambda told: None,
        clock: Callable[[], float] | None = None,
    ) -> Database:
        if self.postgres is None:
            return SqliteDatabase(self.sqlite, told, *([clock] if clock else []))
        database = PostgresDatabase(make_url(self.postgres), told, clock, connections=5)
        await database.open()
        return database
