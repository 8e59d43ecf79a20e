"""SQLite with one writer: commits grouped, told only when on disk, fair to other processes."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from everturn.errors import RuntimeUnavailable
from everturn.session import SessionKey
from everturn_activities.store import database
from everturn_activities.store.database import SqliteDatabase, Tx

KEY = SessionKey("default", "s")


@pytest.fixture
def told() -> list[set[SessionKey]]:
    return []


@pytest.fixture
async def db(tmp_path: Path, told: list[set[SessionKey]]) -> AsyncIterator[SqliteDatabase]:
    db = SqliteDatabase(tmp_path / "store.db", told.append)
    await db.write(lambda tx: tx.connection.execute(sa.text("CREATE TABLE t (n INTEGER UNIQUE)")))
    yield db
    await db.close()


def put(number: int, tx: Tx) -> int:
    tx.connection.execute(sa.text("INSERT INTO t VALUES (:n)"), {"n": number})
    tx.told.add(SessionKey("default", str(number)))
    return number


async def numbers(db: SqliteDatabase) -> list[int]:
    return await db.read(
        lambda connection: list(connection.execute(sa.text("SELECT n FROM t ORDER BY n")).scalars())
    )


async def test_a_member_that_fails_undoes_nothing_of_its_group(
    db: SqliteDatabase, told: list[set[SessionKey]]
) -> None:
    entered, go = threading.Event(), threading.Event()

    def hold(tx: Tx) -> None:
        entered.set()
        go.wait(10)

    def fail(tx: Tx) -> None:
        put(2, tx)
        raise ValueError("no")

    # While the first is held the others gather behind it, and are committed together.
    held = asyncio.create_task(db.write(hold))
    await asyncio.to_thread(entered.wait, 10)
    changes = [lambda tx: put(1, tx), fail, lambda tx: put(1, tx), lambda tx: put(3, tx)]
    writes = [asyncio.create_task(db.write(change)) for change in changes]
    await asyncio.sleep(0)
    go.set()
    await held
    one, failed, twice, three = await asyncio.gather(*writes, return_exceptions=True)

    assert (one, three) == (1, 3)
    assert isinstance(failed, ValueError)
    assert isinstance(twice, sa.exc.IntegrityError)
    assert await numbers(db) == [1, 3]
    assert told == [{SessionKey("default", "1"), SessionKey("default", "3")}]


async def test_nothing_is_told_before_it_is_on_disk(tmp_path: Path) -> None:
    seen: list[list[int]] = []

    def look(keys: set[SessionKey]) -> None:
        with sqlite3.connect(tmp_path / "store.db") as other:
            seen.append([row[0] for row in other.execute("SELECT n FROM t")])
        other.close()

    db = SqliteDatabase(tmp_path / "store.db", look)
    await db.write(lambda tx: tx.connection.execute(sa.text("CREATE TABLE t (n INTEGER UNIQUE)")))
    await db.write(lambda tx: put(1, tx))
    await db.close()
    assert seen == [[1]]


async def test_a_change_that_fails_tells_nothing_and_writes_nothing(
    db: SqliteDatabase, told: list[set[SessionKey]]
) -> None:
    def fail(tx: Tx) -> None:
        put(1, tx)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await db.write(fail)
    assert await numbers(db) == []
    assert told == []


async def test_a_lock_held_too_long_by_another_process_fails_one_write_and_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_SECONDS", 0.05)
    db = SqliteDatabase(tmp_path / "store.db", lambda keys: None)
    await db.write(lambda tx: tx.connection.execute(sa.text("CREATE TABLE t (n INTEGER UNIQUE)")))
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(OperationalError, match="locked"):
        await db.write(lambda tx: put(1, tx))
    other.execute("COMMIT")
    other.close()
    await db.write(lambda tx: put(2, tx))
    assert await numbers(db) == [2]
    await db.close()


async def test_a_watcher_that_cannot_be_told_does_not_stop_the_writer(tmp_path: Path) -> None:
    def refuse(keys: set[SessionKey]) -> None:
        raise PermissionError

    db = SqliteDatabase(tmp_path / "store.db", refuse)
    await db.write(lambda tx: tx.connection.execute(sa.text("CREATE TABLE t (n INTEGER UNIQUE)")))
    async with asyncio.timeout(10):
        await db.write(lambda tx: put(1, tx))
        await db.write(lambda tx: put(2, tx))
    await db.close()


async def test_what_was_asked_before_closing_is_written_and_nothing_after(tmp_path: Path) -> None:
    db = SqliteDatabase(tmp_path / "store.db", lambda keys: None)
    await db.write(lambda tx: tx.connection.execute(sa.text("CREATE TABLE t (n INTEGER UNIQUE)")))
    writes = [asyncio.create_task(db.write(lambda tx, n=n: put(n, tx))) for n in range(20)]
    await asyncio.sleep(0)
    await db.close()
    assert await asyncio.gather(*writes) == list(range(20))
    with pytest.raises(RuntimeUnavailable):
        await db.write(lambda tx: put(99, tx))


async def test_a_commit_is_on_disk_and_in_write_ahead_mode(db: SqliteDatabase) -> None:
    def look(connection: sa.Connection) -> list[object]:
        pragmas = ("journal_mode", "synchronous", "foreign_keys")
        return [connection.execute(sa.text(f"PRAGMA {name}")).scalar() for name in pragmas]

    assert await db.read(look) == ["wal", 2, 1]


async def test_a_store_that_another_process_is_just_making_is_waited_for(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE half_made (n)")
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(0.3, other.execute, ["COMMIT"]).start()
    db = await asyncio.to_thread(SqliteDatabase, tmp_path / "store.db", lambda keys: None)
    try:
        mode = await db.read(lambda made: made.execute(sa.text("PRAGMA journal_mode")).scalar())
        assert mode == "wal"
    finally:
        await db.close()
        other.close()


WRITER = """
import asyncio, sys
from pathlib import Path
import sqlalchemy as sa
from everturn_activities.store.database import SqliteDatabase

async def main(path, name, writers, wanted):
    db = SqliteDatabase(Path(path), lambda keys: None)
    loop, done = asyncio.get_running_loop(), 0
    told = loop.run_in_executor(None, sys.stdin.read)
    print("ready", flush=True)
    async def work():
        nonlocal done
        while done < wanted and not told.done():
            await db.write(lambda tx: tx.connection.execute(
                sa.text("INSERT INTO busy VALUES (:n)"), {"n": name}))
            done += 1
            if done == 1:
                print("writing", flush=True)
    await asyncio.gather(*(work() for _ in range(writers)))
    await db.close()
    print(done, flush=True)
    await told

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
"""


@contextmanager
def writer(path: Path, name: str, *, writers: int, wanted: int) -> Iterator[IO[str]]:
    """A process that writes until `wanted` rows are there or it is told to end; its output."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(writers), str(wanted)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        assert process.stdout.readline() == "writing\n"
        yield process.stdout
        process.stdin.close()
        process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_a_busy_process_does_not_starve_another_one(tmp_path: Path) -> None:
    """Protocol detail 7: one writer with 32 changes at a time, another with one."""
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE busy (n TEXT)")

    def rows(name: str) -> int:
        with closing(sqlite3.connect(path)) as look:
            return int(look.execute("SELECT count(*) FROM busy WHERE n = ?", (name,)).fetchone()[0])

    with writer(path, "crowd", writers=32, wanted=1_000_000):
        before = rows("crowd")
        with writer(path, "single", writers=1, wanted=25) as single:
            assert single.readline() == "25\n"
            written = rows("crowd") - before
    # A commit of the crowd carries up to 32 changes; the single writer gets its turns between.
    assert written / 32 < 25 * 20, written
