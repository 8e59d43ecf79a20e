"""A PostgreSQL that says nothing: its machine is frozen, or the network drops all that is sent."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import asyncpg
import pytest
import sqlalchemy as sa
from postgres_servers import PostgresServer
from sqlalchemy.engine import URL, make_url

from everturn.errors import RuntimeUnavailable, StoreAway
from everturn_activities.store import migrate, outage, schema
from everturn_activities.store import postgres as postgres_module
from everturn_activities.store.database import Tx
from everturn_activities.store.postgres import COMMAND_SECONDS, PostgresDatabase

LONG_SECONDS = 60.0
"""Of a worker, which waits for as long as a test."""
SOON_SECONDS = COMMAND_SECONDS / 2
"""Noticed in about three; a machine may be slow, but no statement has run out of its time."""


@asynccontextmanager
async def opened(
    url: str | URL, patience_seconds: float, connections: int = 2
) -> AsyncIterator[PostgresDatabase]:
    database = PostgresDatabase(
        make_url(url),
        lambda told: None,
        connections=connections,
        patience_seconds=patience_seconds,
    )
    await database.open()
    try:
        yield database
    finally:
        await database.close()


@pytest.fixture
def suspicious(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked soon and not waited for long: a test of what follows needs no more."""
    monkeypatch.setattr(outage, "SUSPECT_SECONDS", 0.2)
    monkeypatch.setattr(postgres_module, "ANSWER_SECONDS", (0.8, 0.8))


def one(connection: sa.Connection) -> int:
    return int(connection.execute(sa.text("SELECT 1")).scalar_one())


def kept(tx: Tx) -> None:
    row = {"digest": f"d{time.monotonic_ns()}", "body": "kept"}
    tx.connection.execute(sa.insert(schema.blobs), row)


def count(connection: sa.Connection) -> int:
    rows = sa.select(sa.func.count()).select_from(schema.blobs)
    return int(connection.execute(rows).scalar_one())


async def refused(database: PostgresDatabase) -> float:
    """After how long somebody is told that it is away."""
    began = time.monotonic()
    with pytest.raises(StoreAway, match="does not answer; try again in a moment"):
        await database.read(one)
    return time.monotonic() - began


async def test_all_who_ask_a_frozen_server_are_told_soon_and_others_wait_for_it(
    postgres: PostgresServer, postgres_url: str
) -> None:
    async with opened(postgres_url, 0.5) as api, opened(postgres_url, LONG_SECONDS) as worker:
        await asyncio.gather(*(api.read(one) for _ in range(4)))
        with postgres.frozen():
            paid = [asyncio.create_task(worker.write(kept)) for _ in range(4)]
            # Those that have a connection, and those that wait for one.
            took = await asyncio.gather(*(refused(api) for _ in range(20)))
            assert max(took) < SOON_SECONDS
            # Nobody asks again what is known: one after the other would take longer.
            assert max(await asyncio.gather(*(refused(api) for _ in range(20)))) < SOON_SECONDS
            assert not any(task.done() for task in paid)
        await asyncio.wait_for(asyncio.gather(*paid), SOON_SECONDS)
        assert await worker.read(count) == 4
        async with asyncio.timeout(SOON_SECONDS):
            while True:
                with suppress(StoreAway):
                    assert await api.read(one) == 1
                    break


@pytest.mark.usefixtures("suspicious")
async def test_a_server_that_freezes_before_the_first_connection_is_told_soon(
    postgres: PostgresServer, postgres_url: str
) -> None:
    async with opened(postgres_url, 0.5) as database:
        await database._engine.dispose()
        with postgres.frozen():
            assert await refused(database) < SOON_SECONDS
            began = time.monotonic()
            with pytest.raises(RuntimeUnavailable, match="No PostgreSQL answers at 127"):
                await PostgresDatabase(
                    make_url(postgres_url), lambda told: None, patience_seconds=0.5
                ).open(0.1)
            assert time.monotonic() - began < SOON_SECONDS


async def test_what_takes_long_on_a_server_that_answers_is_no_outage(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(outage, "SUSPECT_SECONDS", 0.05)
    async with opened(postgres_url, 0.1) as database:
        asked = []
        ask = database._outage._ask

        async def counted() -> outage.Said:
            asked.append(await ask())
            return asked[-1]

        database._outage._ask = counted
        await database.read(lambda seen: seen.execute(sa.text("SELECT pg_sleep(0.7)")).all())
    assert set(asked) == {"answers"}
    assert len(asked) > 1
    assert caplog.records == []


class Way:
    """To the server; `closed`, it takes what is sent and drops it, and whoever comes."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.open = asyncio.Event()
        self.open.set()
        self.meetings: list[asyncio.Task[None]] = []

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.meetings.append(asyncio.ensure_future(self._meet(reader, writer)))

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dropped = not self.open.is_set()
        behind, server = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(
            self._passed(reader, server, dropped), self._passed(behind, writer, dropped)
        )

    async def _passed(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dropped: bool
    ) -> None:
        with suppress(OSError):
            while read := await reader.read(65536):
                dropped = dropped or not self.open.is_set()
                if not dropped:
                    writer.write(read)
                    await writer.drain()
        writer.close()


@pytest.mark.usefixtures("suspicious")
async def test_a_way_that_drops_all_is_left_for_another_that_is_open_again(
    postgres: PostgresServer, postgres_url: str
) -> None:
    """What was dropped once never comes: a connection is of no use when the way is open again."""
    way = Way(postgres.port)
    server = await asyncio.start_server(way.meet, "127.0.0.1", 0)
    url = make_url(postgres_url).set(port=server.sockets[0].getsockname()[1])
    async with server:
        async with opened(url, LONG_SECONDS) as database:
            await database.write(kept)
            way.open.clear()
            writing = asyncio.create_task(database.write(kept))
            async with asyncio.timeout(SOON_SECONDS):
                while not database._outage.is_known:  # noqa: ASYNC110 - it tells nobody else
                    await asyncio.sleep(0.01)
            assert not writing.done()
            way.open.set()
            await asyncio.wait_for(writing, SOON_SECONDS)
            assert await database.read(count) == 2
        await asyncio.gather(*way.meetings)


@pytest.mark.usefixtures("suspicious")
async def test_a_database_is_closed_though_its_server_is_frozen(
    postgres: PostgresServer, postgres_url: str
) -> None:
    async with opened(postgres_url, LONG_SECONDS) as database:
        await asyncio.gather(*(database.read(one) for _ in range(4)))
        with postgres.frozen():
            reading = asyncio.create_task(database.read(one))
            await asyncio.sleep(0)
            began = time.monotonic()
            await database.close()
            assert time.monotonic() - began < SOON_SECONDS
            with pytest.raises(StoreAway):
                await reading


async def test_a_database_that_nobody_uses_is_closed_though_its_server_is_frozen(
    postgres: PostgresServer, postgres_url: str
) -> None:
    async with opened(postgres_url, LONG_SECONDS) as database:
        await database.read(one)
        with postgres.frozen():
            await asyncio.wait_for(database.close(), SOON_SECONDS)


async def test_the_kernel_looks_after_what_is_sent_to_the_server(postgres_url: str) -> None:
    async with opened(postgres_url, LONG_SECONDS, connections=1) as database:
        await database.read(one)
        [connection] = database._connections
        used = connection._transport.get_extra_info("socket")
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        of_server = sa.text("SHOW tcp_keepalives_idle")
        assert await database.read(lambda seen: seen.execute(of_server).scalar()) == "10"


async def test_tables_are_changed_for_as_long_as_that_takes_unless_they_are_in_use(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.made()
    changed = []

    def slowly(connection: sa.Connection) -> None:
        connection.execute(sa.text("SELECT pg_sleep(0.6)"))
        migrate.migrate(connection)
        connection.execute(sa.text("LOCK TABLE blobs"))
        changed.append(1)

    monkeypatch.setattr(postgres_module, "COMMAND_SECONDS", 0.4)
    monkeypatch.setattr(postgres_module, "LOCK_SECONDS", 0.2)
    monkeypatch.setattr(postgres_module, "migrate", slowly)
    async with opened(url, LONG_SECONDS):
        assert changed == [1]

        monkeypatch.setattr(postgres_module, "is_current", lambda connection: False)
        backup = await asyncpg.connect(url)
        await backup.execute("BEGIN; LOCK TABLE blobs")
        with pytest.raises(RuntimeUnavailable, match=r"are in use.*within 0\.2 s: end the proces"):
            await PostgresDatabase(make_url(url), lambda told: None).open()
        await backup.close()
    assert changed == [1]
