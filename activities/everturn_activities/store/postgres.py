"""PostgreSQL: each change is a transaction of its own, run again where the database asks for it.

The rules are plain functions over one connection, as on SQLite; below them asyncpg works in the
event loop, by SQLAlchemy's greenlets. What must not change between a look and a write is locked
by its row, and an insert that meets another's is run again and finds that row.
"""

import asyncio
import os
import random
import socket
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Literal, TypeVar
from weakref import WeakSet

import asyncpg
import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.util import await_only

from everturn.errors import EverturnError, RuntimeUnavailable, StoreAway
from everturn.session import SessionKey
from everturn_activities.store.database import StaleError, Tx, new_nonce
from everturn_activities.store.migrate import is_current, migrate
from everturn_activities.store.outage import Outage, Said
from everturn_activities.store.postgres_refusals import refusal
from everturn_activities.store.statement import without_nul

T = TypeVar("T")
Kind = Literal["again", "away", "fault"]

CONNECTIONS = 10
"""Of one process, at most; whoever needs one more waits for it."""
PATIENCE_SECONDS = 1.0
"""Below what a person, or whoever asks whether we are ready, waits for."""
ANSWER_SECONDS = (2.0, 5.0)
"""What a server may take to let us in, at least and at most: as long as our patience, between."""
LATE_SECONDS = 0.5
"""By how much our own clock may be late before we were away ourselves, and judge nobody."""
COMMAND_SECONDS = 30.0
CLOSE_SECONDS = 2.0
OPEN_SECONDS = 30.0
"""Servers are started together: so long the database may take until it answers."""
MIGRATION_SECONDS = 3600.0
"""So long a statement that changes tables may take, and waiting for who does so already."""
LOCK_SECONDS = 10.0
"""So long a migration waits for a table that is in use: whoever wants it next waits behind."""
TRIES_MAX = 10
PAUSE_SECONDS = 0.005
WAIT_SECONDS = 0.5
CLOCK_SECONDS = 1.0
"""How old a look at the database's clock may be, while our own two ran evenly."""
CLOCK_SLACK_SECONDS = 0.05
STATEMENTS = 1_000
"""Prepared on a connection: as many as there are."""
MIGRATING = 0x45564552
"""The advisory lock of who migrates."""

# Two transactions in each other's way, a lock that was waited for too long, and an insert that
# met another's.
AGAIN = ("40001", "40P01", "55P03", "23505")
# Connections, resources, what operators do, the disk: what time mends, and a session that was
# ended because it held its locks and did nothing. One that only reads was a primary, or will be.
READ_ONLY = "25006"
AWAY = ("08", "53", "57", "58", "25P03", READ_ONLY)

# A client that a network has cut off lets go of its locks soon.
_SETTINGS = (
    "SET jit = off; SET idle_in_transaction_session_timeout = '15s';"
    " SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
)
# The same, seen from here: what a socket has sent is acknowledged in this time, or it is lost.
_SOCKET = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 10),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 10_000),
)
_ONLY_READS = "SELECT current_setting('transaction_read_only')::boolean"
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
# However many statements a look takes, it sees one state; such a one never has to be run again.
_BEGIN_LOOKING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresDatabase:
    """One database, with at most `connections` of ours.

    `told` is called with the sessions that changed only after the COMMIT. Time is the
    database's, where no `clock` is given. A change that finds the server away is run again for
    `patience_seconds`, then it raises StoreAway. It may have been committed before, where the
    answer to a COMMIT was lost: as Temporal repeats any of them, each finds its own row, by
    `Tx.nonce` where nothing else tells it from another's.
    """

    def __init__(
        self,
        url: URL,
        told: Callable[[set[SessionKey]], None],
        clock: Callable[[], float] | None = None,
        connections: int = CONNECTIONS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.address = f"{url.host or 'localhost'}:{url.port or 5432}"
        self._url = url
        self._told = told
        self._shared_clock = _Clock()
        self._clock = clock or self._shared_clock
        self._patience = patience_seconds
        at_least, at_most = ANSWER_SECONDS
        self._answer_seconds = min(max(patience_seconds, at_least), at_most)
        self._outage = Outage(self.address, self._asked, self._drop)
        self._connections: WeakSet[Any] = WeakSet()
        self._engine = _engine(self._connect, connections)
        self._working: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def open(self, open_seconds: float = OPEN_SECONDS) -> None:
        """Migrate. Raises RuntimeUnavailable where the server is away, or does not let us in."""
        try:
            await self._open(time.monotonic() + open_seconds)
        except BaseException:
            await self.close()
            raise

    async def _open(self, until: float) -> None:
        while True:
            try:
                if not await self._connected(lambda connection: _look(connection, is_current)):
                    await self._migrated()
                return
            except EverturnError:
                raise
            except Exception as error:
                if _kind(error) != "away" or time.monotonic() > until:
                    raise RuntimeUnavailable(self._refused(error)) from None
                self._note(error)
            await asyncio.sleep(WAIT_SECONDS)

    async def write(self, change: Callable[[Tx], T]) -> T:
        """Run `change` in a transaction and return its result once it is on disk."""
        nonce = new_nonce()

        def work(connection: sa.Connection) -> tuple[T, set[SessionKey]]:
            return self._change(connection, change, nonce)

        async def told() -> T:
            result, keys = await self._patiently(work)
            if keys:
                # A watcher that is not told looks by itself.
                with suppress(OSError):
                    self._told(keys)
            return result

        return await self._kept(told())

    async def read(self, look: Callable[[sa.Connection], T]) -> T:
        """Run `look` on what is committed."""
        return await self._kept(self._patiently(lambda connection: _look(connection, look)))

    async def close(self) -> None:
        self._closed = True
        self._outage.leave()
        await asyncio.gather(*self._working, return_exceptions=True)
        await self._outage.close()
        try:
            await asyncio.wait_for(self._engine.dispose(), CLOSE_SECONDS)
        except TimeoutError:
            self._drop()

    def now(self) -> float:
        """The time that transactions are given."""
        return self._clock()

    async def _kept(self, working: Coroutine[Any, Any, T]) -> T:
        """What `working` returns. It is finished though who asked for it is cancelled, as on
        SQLite: no connection is left in the midst of something."""
        if self._closed:
            working.close()
            raise RuntimeUnavailable("The store is closed.")
        task = asyncio.get_running_loop().create_task(working)
        self._working.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._working.discard(task)
        if not task.cancelled():
            task.exception()  # Whoever asked may be gone, and nobody else wants to know.

    async def _patiently(self, work: Callable[[sa.Connection], T]) -> T:
        began = time.monotonic()
        tries = in_the_way = 0
        while True:
            if self._outage.is_known:
                left = began + self._patience - time.monotonic()
                if self._closed or not await self._outage.over(left):
                    raise self._away()
            try:
                result = await self._connected(work)
            except EverturnError:
                raise
            except Exception as error:
                kind = _kind(error)
                tries += 1
                in_the_way += kind == "again"
                if kind == "fault" or in_the_way > TRIES_MAX:
                    raise _without_values(error) from None
                if kind == "away":
                    # All that waited come at once when it is back, and are in each other's way.
                    in_the_way = 0
                    self._note(error)
                    if self._closed or time.monotonic() - began > self._patience:
                        raise self._away(error) from None
            else:
                self._outage.note_back()
                return result
            pause = min(PAUSE_SECONDS * 2**tries, WAIT_SECONDS)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret

    async def _connected(self, work: Callable[[sa.Connection], T]) -> T:
        with self._outage.suspected():
            async with self._engine.connect() as connection:
                return await connection.run_sync(work)

    def _note(self, error: Exception) -> None:
        if (refused := refusal(_state(error))) is not None:
            self._outage.note_refused(*refused)
        else:
            self._outage.note_away()

    def _away(self, error: Exception | None = None) -> StoreAway:
        refused = None if error is None else refusal(_state(error))
        what = "does not answer" if refused is None else refused[0]
        return StoreAway(f"The database at {self.address} {what}; try again in a moment.")

    async def _connect(self) -> Any:
        """One more connection of ours."""
        if self._outage.is_known:
            # One of us asks already, and whoever waited for a free connection has waited enough.
            raise ConnectionError
        made = await _made(self._url, self._answer_seconds, COMMAND_SECONDS)
        self._connections.add(made)
        return made

    async def _asked(self) -> Said:
        """What the server says to who wants to be let in."""
        address, seconds = _address(self._url), self._answer_seconds
        while True:
            until = time.monotonic() + seconds
            try:
                asking = await asyncpg.connect(address, timeout=seconds)
            except TimeoutError:
                if time.monotonic() - until > LATE_SECONDS:
                    continue
                return "nothing"
            except Exception as error:
                state = getattr(error, "sqlstate", None) or "08"
                return "refuses" if state.startswith(("08", "57")) else "answers"
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                only_reads = await asking.fetchval(_ONLY_READS, timeout=seconds)
                await asking.close(timeout=seconds)
                return "refuses" if only_reads else "answers"
            return "answers"

    def _drop(self) -> None:
        """End all connections: whatever waits for an answer hears that there is none."""
        for connection in list(self._connections):
            connection.terminate()

    async def _migrated(self) -> None:
        engine = _engine(lambda: _made(self._url, self._answer_seconds, MIGRATION_SECONDS), 1)
        try:
            async with engine.connect() as connection:
                await connection.run_sync(_migrate)
        finally:
            await engine.dispose()

    def _change(
        self, connection: sa.Connection, change: Callable[[Tx], T], nonce: str
    ) -> tuple[T, set[SessionKey]]:
        driver = _driver(connection)
        try:
            await_only(driver.execute(_BEGIN))
            self._shared_clock.look(driver)
            tx = Tx(connection, self._clock(), nonce=nonce)
            result = change(tx)
        except BaseException as error:
            _roll_back(connection, driver, error)
            raise
        try:
            ended = await_only(driver.execute("COMMIT"))
        except BaseException:
            connection.invalidate()
            raise
        # A change that went on after an error it caught is rolled back, and says so only here.
        assert ended == "COMMIT", ended
        return result, tx.told

    def _refused(self, error: Exception) -> str:
        """Why it cannot be opened, and what mends it; no password is in that."""
        match _cause(error):
            case asyncpg.InvalidCatalogNameError():
                return (
                    f"There is no database {self._url.database!r} at {self.address}: create it,"
                    " or set EVERTURN_DATABASE_URL to another."
                )
            case asyncpg.InvalidAuthorizationSpecificationError():
                return (
                    f"The database at {self.address} does not let {self._url.username!r} in:"
                    " mend user and password in EVERTURN_DATABASE_URL."
                )
            case asyncpg.ReadOnlySQLTransactionError() | asyncpg.TargetServerAttributeNotMatched():
                return (
                    f"The database at {self.address} only reads, as a standby does: name the one"
                    " that writes in EVERTURN_DATABASE_URL."
                )
            case asyncpg.LockNotAvailableError():
                return (
                    f"The tables of the database at {self.address} are in use, and could not be"
                    f" changed within {LOCK_SECONDS:g} s: end the processes of the older version"
                    " and whatever else holds them, such as a backup; then start again."
                )
            case asyncpg.PostgresError() if (full := refusal(_state(error))) is not None:
                what, mend = full
                return f"The database at {self.address} {what}: {mend}."
            case asyncpg.PostgresError() as refused if _kind(error) == "fault":
                return (
                    f"The database at {self.address} cannot be made ready"
                    f" ({type(refused).__name__}); its user must own the database that"
                    " EVERTURN_DATABASE_URL names."
                )
            case _:
                return (
                    f"No PostgreSQL answers at {self.address}: start it, or unset"
                    " EVERTURN_DATABASE_URL to keep the store in a file."
                )


def _migrate(connection: sa.Connection) -> None:
    driver = _driver(connection)
    with connection.begin():
        try:
            await_only(driver.execute(_BEGIN))
            await_only(driver.execute(f"SELECT pg_advisory_xact_lock({MIGRATING})"))
            # From here on nobody is waited for who migrates, but who uses a table.
            await_only(driver.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS:g}s'"))
            migrate(connection)
            await_only(driver.execute("COMMIT"))
        except BaseException as error:
            _roll_back(connection, driver, error)
            raise


class _Clock:
    """The database's clock, told by our own, which counts the seconds since we looked."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._offset = self._drift = 0.0

    def __call__(self) -> float:
        return time.time() if self._at is None else time.monotonic() + self._offset

    def look(self, driver: Any) -> None:
        """Ask the database, unless we did just now."""
        drift = time.time() - time.monotonic()
        # A machine that slept counted no seconds meanwhile, but its time of day went on.
        slept = abs(drift - self._drift) > CLOCK_SLACK_SECONDS
        if self._at is not None and not slept and time.monotonic() - self._at < CLOCK_SECONDS:
            return
        began = time.monotonic()
        told = await_only(driver.fetchval("SELECT extract(epoch from clock_timestamp())::float8"))
        self._at, self._drift = time.monotonic(), drift
        self._offset = told - (began + self._at) / 2


def _look(connection: sa.Connection, look: Callable[[sa.Connection], T]) -> T:
    driver = _driver(connection)
    try:
        await_only(driver.execute(_BEGIN_LOOKING))
        found = look(connection)
    except BaseException as error:
        _roll_back(connection, driver, error)
        raise
    _roll_back(connection, driver)
    return found


def _roll_back(connection: sa.Connection, driver: Any, error: BaseException | None = None) -> None:
    silent = isinstance(error, TimeoutError | asyncio.CancelledError)
    if silent or (error is not None and _state(error) == READ_ONLY):
        # Who did not answer would be waited for once more, and who only reads be asked again.
        driver.terminate()
        connection.invalidate()
        return
    try:
        await_only(driver.execute("ROLLBACK"))
    except BaseException:
        # Whatever it is in, nobody gets this connection again.
        connection.invalidate()


def _driver(connection: sa.Connection) -> Any:
    return connection.connection.driver_connection


def _cause(error: BaseException) -> BaseException:
    """What asyncpg or the system said, below SQLAlchemy's wrapping."""
    while isinstance(error, sa.exc.DBAPIError) or hasattr(error, "pgcode"):
        below = getattr(error, "orig", None) or error.__cause__
        if not isinstance(below, BaseException):
            break
        error = below
    return error


def _state(error: BaseException) -> str:
    return getattr(_cause(error), "sqlstate", None) or ""


def _kind(error: BaseException) -> Kind:
    """What follows from `error`."""
    cause, state = _cause(error), _state(error)
    if isinstance(cause, asyncpg.TargetServerAttributeNotMatched):
        return "away"
    if isinstance(cause, StaleError | asyncpg.InvalidCachedStatementError) or state in AGAIN:
        return "again"
    # What the server said as it ended an idle connection confuses the driver for a moment.
    if isinstance(cause, asyncpg.InternalClientError):
        return "again"
    # A pool without a free connection has a server that is slow.
    if state.startswith(AWAY) or isinstance(cause, OSError | sa.exc.TimeoutError):
        return "away"
    # The driver says so where it knew before it asked.
    if isinstance(cause, asyncpg.InterfaceError) and "closed" in str(cause):
        return "away"
    return "fault"


def _without_values(error: Exception) -> Exception:
    """`error`, but no text of the driver's: it quotes what people wrote."""
    cause = _cause(error)
    if not isinstance(
        cause, asyncpg.PostgresError | asyncpg.InterfaceError | asyncpg.InternalClientError
    ):
        return error
    names = ("sqlstate", "table_name", "column_name", "constraint_name")
    said = " ".join([type(cause).__name__, *(getattr(cause, name, None) or "" for name in names)])
    plain = sa.exc.DatabaseError(None, None, Exception(said), hide_parameters=True)
    return plain.with_traceback(error.__traceback__)


def _address(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


async def _made(url: URL, connect_seconds: float, command_seconds: float) -> Any:
    made = await asyncpg.connect(
        _address(url),
        timeout=connect_seconds,
        command_timeout=command_seconds,
        statement_cache_size=STATEMENTS,
        max_cached_statement_lifetime=0,
    )
    try:
        async with asyncio.timeout(connect_seconds):
            _watch_socket(made)
            await made.execute(_SETTINGS)
            # Sums of whole numbers; no column has a fraction that is not a double.
            await made.set_type_codec(
                "numeric", schema="pg_catalog", encoder=str, decoder=_number, format="text"
            )
    except BaseException:
        made.terminate()
        raise
    return made


def _watch_socket(connection: Any) -> None:
    """Have the kernel notice where what we send is not taken: the driver has no option for it."""
    used = connection._transport.get_extra_info("socket")
    if used is None or used.family == socket.AF_UNIX:
        return
    with socket.socket(fileno=os.dup(used.fileno())) as same:
        for level, name, value in _SOCKET:
            # Some systems lack some.
            if (option := getattr(socket, name, None)) is not None:
                same.setsockopt(level, option, value)


def _engine(connect: Callable[[], Coroutine[Any, Any, Any]], connections: int) -> AsyncEngine:
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=connect,
        # Transactions begin and end where we say so, on the driver itself.
        isolation_level="AUTOCOMMIT",
        pool_size=connections,
        max_overflow=0,
        pool_timeout=COMMAND_SECONDS,
        pool_use_lifo=True,
        hide_parameters=True,  # An error's text would quote what people wrote.
    )

    @sa.event.listens_for(engine.sync_engine, "checkout")
    def _checkout(connection: Any, record: Any, proxy: Any) -> None:
        if connection.driver_connection.is_closed():
            raise sa.exc.InvalidatePoolError

    @sa.event.listens_for(engine.sync_engine, "before_cursor_execute", retval=True)
    def _bind(
        connection: sa.Connection, cursor: Any, text: str, bound: Any, context: Any, many: bool
    ) -> tuple[str, Any]:
        if many:
            return text, [tuple(map(without_nul, each)) for each in bound]
        return text, tuple(map(without_nul, bound))

    return engine


def _number(text: str) -> int | float:
    return float(text) if "." in text or "N" in text else int(text)
