"""What a state machine keeps its rows in, one transaction at a time: SQLite, or PostgreSQL."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import sqlalchemy as sa
from postgres_servers import PostgresServer
from sqlalchemy.engine import make_url

from everturn_activities.store import schema
from everturn_activities.store.database import Tx
from everturn_activities.store.postgres import PostgresDatabase

T = TypeVar("T")


class Kept(Protocol):
    def do(self, change: Callable[[Tx], T], now: float) -> T: ...
    def look(self, look: Callable[[sa.Connection], T]) -> T: ...
    def close(self) -> None: ...


class KeptInMemory:
    def __init__(self) -> None:
        self._engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
        self._connection = self._engine.connect()
        schema.metadata.create_all(self._connection)
        self._connection.commit()

    def do(self, change: Callable[[Tx], T], now: float) -> T:
        with self._connection.begin():
            return change(Tx(self._connection, now))

    def look(self, look: Callable[[sa.Connection], T]) -> T:
        with self._connection.begin():
            return look(self._connection)

    def close(self) -> None:
        self._connection.close()
        self._engine.dispose()


class KeptInPostgres:
    """As our processes write there: through asyncpg, under READ COMMITTED."""

    def __init__(self, database: PostgresDatabase, loop: asyncio.AbstractEventLoop) -> None:
        self._database = database
        self._loop = loop

    def do(self, change: Callable[[Tx], T], now: float) -> T:
        def at(tx: Tx) -> T:
            return change(Tx(tx.connection, now, tx.told))

        written = self._database.write(at)
        return asyncio.run_coroutine_threadsafe(written, self._loop).result()

    def look(self, look: Callable[[sa.Connection], T]) -> T:
        found = self._database.read(look)
        return asyncio.run_coroutine_threadsafe(found, self._loop).result()

    def close(self) -> None:
        """The connections are the next machine's."""


@contextmanager
def kept_in_postgres(server: PostgresServer) -> Iterator[Callable[[], Kept]]:
    """Opens the same database for each machine, emptied."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    database = PostgresDatabase(make_url(server.emptied()), lambda told: None, connections=2)
    try:
        asyncio.run_coroutine_threadsafe(database.open(), loop).result()

        def opened() -> Kept:
            server.emptied()
            return KeptInPostgres(database, loop)

        yield opened
        asyncio.run_coroutine_threadsafe(database.close(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
