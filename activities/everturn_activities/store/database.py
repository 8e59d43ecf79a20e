"""A database: transactions as plain functions, grouped where the database has one writer.

Transaction functions are synchronous, take a `Tx` and are run again from the start where
the database asks for it, so they hold no state of their own.
"""

import asyncio
import queue
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

from everturn.errors import RuntimeUnavailable
from everturn.session import SessionKey
from everturn_activities.store.migrate import migrate

T = TypeVar("T")

GROUP_MAX = 64
# Between groups of commits another process gets its turn at the write lock: without
# the pause a busy writer starved one for seconds, with it its p99 was 1.7 ms.
GROUP_PAUSE_SECONDS = 0.002
BUSY_TIMEOUT_SECONDS = 10.0
READERS = 2


def new_nonce() -> str:
    return secrets.token_hex(8)


@dataclass
class Tx:
    """A transaction under way: its connection, its time, and whom to tell after COMMIT."""

    connection: sa.Connection
    now: float
    told: set[SessionKey] = field(default_factory=set)
    nonce: str = field(default_factory=new_nonce)
    """The same each time that one change is run: what it finds under it, it has written itself,
    in a run whose COMMIT was not heard of."""


def asked_as(tx: Tx, id: str | None) -> Tx:  # noqa: A002
    """The transaction of a request that may come again under its `id`: what it did is found."""
    return tx if id is None else replace(tx, nonce=f"asked/{id}")


class StaleError(Exception):
    """What a transaction had read was changed meanwhile by another: it is to be run again."""


class Database(Protocol):
    async def write(self, change: Callable[[Tx], T]) -> T: ...
    async def read(self, look: Callable[[sa.Connection], T]) -> T: ...
    async def close(self) -> None: ...
    def now(self) -> float: ...


@dataclass
class _Job:
    change: Callable[[Tx], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None

    def deliver(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class SqliteDatabase:
    """One SQLite file in WAL mode with synchronous FULL.

    One thread writes: changes that wait are committed together, each in a savepoint, and
    `told` is called with the sessions that changed only after the COMMIT.
    """

    def __init__(
        self,
        path: Path,
        told: Callable[[set[SessionKey]], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._told = told
        self._clock = clock
        self._engine = _engine(path)
        try:
            with self._engine.begin() as connection:
                migrate(connection)
        except sa.exc.OperationalError as error:
            raise RuntimeUnavailable(
                f"The store {path} cannot be opened ({error.orig}); end whatever holds it, or"
                " set EVERTURN_DATABASE_URL to another file."
            ) from None
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="store-read")
        self._local = threading.local()
        self._writer = threading.Thread(target=self._write, name="store-write", daemon=True)
        self._writer.start()
        self._closed = False

    async def write(self, change: Callable[[Tx], T]) -> T:
        """Run `change` in a transaction and return its result once it is on disk."""
        if self._closed:
            raise RuntimeUnavailable("The store is closed.")
        loop = asyncio.get_running_loop()
        job = _Job(change, loop, loop.create_future())
        self._jobs.put(job)
        result: T = await job.future
        return result

    async def read(self, look: Callable[[sa.Connection], T]) -> T:
        """Run `look` on what is committed."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._read, look)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._jobs.put(None)
        await asyncio.to_thread(self._writer.join)
        self._readers.shutdown()
        self._engine.dispose()

    def now(self) -> float:
        """The time that transactions are given."""
        return self._clock()

    def _read(self, look: Callable[[sa.Connection], T]) -> T:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._engine.connect().execution_options(reads_only=True)
            self._local.connection = connection
        with connection.begin():
            return look(connection)

    def _write(self) -> None:
        with self._engine.connect() as connection:
            stopping = False
            while not stopping:
                first = self._jobs.get()
                group = [] if first is None else [first]
                stopping = first is None
                while len(group) < GROUP_MAX and not self._jobs.empty():
                    job = self._jobs.get()
                    if job is None:
                        stopping = True
                        break
                    group.append(job)
                if group:
                    self._commit(connection, group)
                if not stopping and not self._jobs.empty():
                    time.sleep(GROUP_PAUSE_SECONDS)

    def _commit(self, connection: sa.Connection, group: list[_Job]) -> None:
        told: set[SessionKey] = set()
        try:
            with connection.begin():
                now = self._clock()
                for job in group:
                    tx = Tx(connection, now)
                    try:
                        if len(group) == 1:
                            job.result = job.change(tx)
                        else:
                            with _savepoint(connection):
                                job.result = job.change(tx)
                        told |= tx.told
                    except Exception as error:
                        job.error = error
                        if len(group) == 1:
                            raise
        except Exception as error:
            for job in group:
                job.error = job.error or error
        if told and not all(job.error for job in group):
            # A watcher that is not told looks by itself; the writer must live on.
            with suppress(OSError):
                self._told(told)
        for loop in {job.loop for job in group}:
            jobs = [job for job in group if job.loop is loop]
            # A closed loop: whoever asked is gone with it; the commit stands.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_deliver, jobs)


@contextmanager
def _savepoint(connection: sa.Connection) -> Iterator[None]:
    """Undo what the block did to the transaction where it fails, and nothing else."""
    driver: Any = connection.connection.dbapi_connection
    driver.execute("SAVEPOINT member")
    try:
        yield
    except BaseException:
        driver.execute("ROLLBACK TO member")
        raise
    finally:
        driver.execute("RELEASE member")


def _deliver(jobs: list[_Job]) -> None:
    for job in jobs:
        job.deliver()


def _to_write_ahead(connection: Any) -> None:
    """SQLite does not wait here for another process that is just making the same file."""
    until = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(0.01)


def _engine(path: Path) -> sa.Engine:
    path.parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(
        f"sqlite:///{path}",
        connect_args={"timeout": BUSY_TIMEOUT_SECONDS, "check_same_thread": False},
        poolclass=sa.NullPool,
        hide_parameters=True,  # An error's text would quote what people wrote.
    )

    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, record: Any) -> None:
        # Transactions begin where we say so, not where the driver guesses.
        connection.isolation_level = None
        _to_write_ahead(connection)
        for pragma in ("synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        # A transaction that reads first and writes later could lose the lock in between.
        reads_only = connection.get_execution_options().get("reads_only", False)
        connection.exec_driver_sql("BEGIN" if reads_only else "BEGIN IMMEDIATE")

    return engine
