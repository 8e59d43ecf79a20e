"""PostgreSQL: changes beside each other, servers that go away, answers that are lost."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
import sqlalchemy as sa
from cut_connections import cutter
from postgres_servers import PostgresServer
from sqlalchemy.engine import make_url
from stories import ME, SPEC, Story, count, price

from everturn.budgets import Budget
from everturn.errors import RuntimeUnavailable, StoreAway
from everturn.session import BeginTurn, SessionKey
from everturn_activities.event_log.sql import SqlEventLog
from everturn_activities.store import SessionSettings, ToolStarted, new_sessions, schema
from everturn_activities.store import postgres as postgres_store
from everturn_activities.store.database import StaleError, Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.opening import open_database
from everturn_activities.store.postgres import TRIES_MAX, PostgresDatabase
from everturn_activities.store.sql import SqlStore
from everturn_activities.wakeups import WakeUps

KEY = SessionKey("default", "s")
SETTINGS = SessionSettings("/w", "/w")


@asynccontextmanager
async def opened(
    url: str, patience_seconds: float = 20.0, connections: int = 5
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


def named(*names: str) -> Callable[[Tx], None]:
    """A change that locks these sessions one after the other."""

    def change(tx: Tx) -> None:
        for name in names:
            session = LockedSession(tx, SessionKey("default", name))
            session.turn += 1
            session.save()
            tx.connection.execute(sa.text("SELECT pg_sleep(0.1)"))

    return change


async def told_of(text: str, caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(20):
        while text not in caplog.text:  # noqa: ASYNC110 - it tells nobody else
            await asyncio.sleep(0.01)


async def turns(database: PostgresDatabase) -> dict[str, int]:
    query = sa.select(schema.sessions.c.id, schema.sessions.c.turn)
    rows = await database.read(lambda connection: connection.execute(query).all())
    return {row.id: row.turn for row in rows}


async def test_two_changes_in_each_others_way_are_both_made(postgres_url: str) -> None:
    async with opened(postgres_url) as database:
        store = SqlStore(database, count, price)
        for name in ("a", "b"):
            await store.create_session(SessionKey("default", name), SETTINGS)
        await asyncio.gather(database.write(named("a", "b")), database.write(named("b", "a")))
        assert await turns(database) == {"a": 2, "b": 2}


async def test_a_change_that_finds_what_it_read_changed_is_run_again(postgres_url: str) -> None:
    runs = []

    def change(tx: Tx) -> int:
        runs.append(tx)
        if len(runs) < 3:
            raise StaleError
        return len(runs)

    async with opened(postgres_url) as database:
        assert await database.write(change) == 3


async def test_races_are_run_again_however_long_the_server_was_away(postgres_url: str) -> None:
    runs = []

    def change(tx: Tx) -> int:
        runs.append(tx)
        if len(runs) <= TRIES_MAX + 1:
            raise ConnectionResetError
        if len(runs) <= TRIES_MAX + 3:
            raise StaleError
        return len(runs)

    async with opened(postgres_url) as database:
        assert await database.write(change) == TRIES_MAX + 4


async def test_a_session_that_is_made_while_a_budget_is_set_is_limited_by_it(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(postgres_url) as database, opened(postgres_url) as another:
        store, theirs = SqlStore(database, count, price), SqlStore(another, count, price)
        looked, loop = asyncio.Event(), asyncio.get_running_loop()
        first = new_sessions._LIMITED.first

        def slowly(connection: sa.Connection, parameters: dict[str, str]) -> object:
            found = first(connection, parameters)
            loop.call_soon_threadsafe(looked.set)
            connection.execute(sa.text("SELECT pg_sleep(0.3)"))
            return found

        monkeypatch.setattr(new_sessions._LIMITED, "first", slowly)
        making = asyncio.create_task(store.create_session(KEY, SETTINGS))
        await looked.wait()
        await theirs.put_budget("default", "tenant", None, Budget(steps=1))
        await making
        flags = sa.select(schema.sessions.c.budgeted)
        assert await database.read(lambda seen: seen.execute(flags).scalars().all()) == [1]


async def test_what_two_processes_insert_at_once_is_there_once(postgres_url: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as other:
        stores = [SqlStore(one, count, price), SqlStore(other, count, price)]
        views = await asyncio.gather(*(store.create_session(KEY, SETTINGS) for store in stores * 5))
        assert {view.created_at for view in views} == {views[0].created_at}
        assert await turns(one) == {"s": 0}


async def test_processes_that_begin_at_once_make_the_schema_once(postgres: PostgresServer) -> None:
    url = postgres.made()
    made = await asyncio.gather(*(open_database(url, lambda told: None, 2, 1.0) for _ in range(3)))
    for database in made:
        assert await database.read(lambda c: c.execute(sa.text("SELECT 1")).scalar()) == 1
        await database.close()


async def test_a_server_that_restarts_is_waited_for_and_told_of_once(
    postgres: PostgresServer, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "everturn_activities")
    async with opened(postgres_url) as database:
        store = SqlStore(database, count, price)
        await store.create_session(KEY, SETTINGS)
        postgres.stop()
        asked = [asyncio.create_task(database.write(named("s"))) for _ in range(3)]
        looked = asyncio.create_task(store.session(KEY))
        try:
            await told_of("does not answer", caplog)
        finally:
            postgres.start()
        await asyncio.gather(*asked)
        assert (await looked).id == "s"
        assert await turns(database) == {"s": 3}
    texts = [record.getMessage() for record in caplog.records]
    assert [text.split(" at ")[0] for text in texts] == ["the database", "the database"]
    assert "does not answer" in texts[0]
    assert "answers again" in texts[1]


@pytest.mark.parametrize(
    ("refused", "what", "mend"),
    [
        (asyncpg.DiskFullError, "has no room left on its disk", "make room there"),
        (asyncpg.OutOfMemoryError, "has no memory left", "work_mem"),
        (asyncpg.TooManyConnectionsError, "as many connections as it takes", "max_connections"),
    ],
)
async def test_a_server_that_is_full_is_waited_for_and_told_of_once_with_the_mend(
    postgres_url: str,
    caplog: pytest.LogCaptureFixture,
    refused: type[asyncpg.PostgresError],
    what: str,
    mend: str,
) -> None:
    """Who only reads goes on meanwhile, and does not take that for the end of it."""
    runs = []

    def change(tx: Tx) -> int:
        runs.append(tx)
        if len(runs) < 4:
            raise refused("canary")
        return len(runs)

    def never(tx: Tx) -> None:
        raise refused("canary")

    async with opened(postgres_url, patience_seconds=20) as database:
        changing = asyncio.create_task(database.write(change))
        while not changing.done():
            assert await turns(database) == {}
        assert await changing == 4
    async with opened(postgres_url, patience_seconds=0) as database:
        for _ in range(2):
            with pytest.raises(StoreAway, match=what):
                await database.write(never)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2  # One of each process.
    assert what in said[0]
    assert mend in said[0]
    assert "canary" not in caplog.text


async def test_a_server_that_lets_nobody_more_in_is_not_told_as_one_that_is_away(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def made(*_: object) -> None:
        raise asyncpg.TooManyConnectionsError("sorry")

    monkeypatch.setattr(postgres_store, "_made", made)
    with pytest.raises(RuntimeUnavailable, match="has as many connections as it takes: raise"):
        await PostgresDatabase(make_url(postgres_url), lambda told: None).open(0.1)


@pytest.mark.parametrize("asked_for", ["", "?target_session_attrs=read-write"])
async def test_a_server_that_only_reads_is_waited_for_as_one_that_is_away(
    postgres: PostgresServer, postgres_url: str, asked_for: str
) -> None:
    """As one is that a standby has just replaced."""
    name = make_url(postgres_url).database
    operator = await asyncpg.connect(postgres.url)
    try:
        async with opened(postgres_url + asked_for) as database:
            await SqlStore(database, count, price).create_session(KEY, SETTINGS)
            await operator.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1"
            await operator.execute(ended, name)
            change = asyncio.create_task(database.write(named("s")))
            async with asyncio.timeout(20):
                while not database._outage.is_known:  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.01)
            await operator.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
            await change
            await asyncio.gather(*(database.write(named("s")) for _ in range(5)))
            assert await turns(database) == {"s": 6}
    finally:
        await operator.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        await operator.close()


async def test_connections_that_were_cut_while_nobody_used_them_are_made_anew(
    postgres: PostgresServer, postgres_url: str
) -> None:
    async with opened(postgres_url, patience_seconds=0.0) as database:
        store = SqlStore(database, count, price)
        await store.create_session(KEY, SETTINGS)
        await asyncio.gather(*(store.session(KEY) for _ in range(5)))
        async with opened(postgres.url) as other:
            await other.read(
                lambda c: c.execute(
                    sa.text(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE datname = 'emptied'"
                    )
                ).all()
            )
        await asyncio.sleep(0.1)
        assert (await store.session(KEY)).id == "s"


async def test_a_server_that_stays_away_is_told_in_a_sentence_without_the_password(
    postgres: PostgresServer, postgres_url: str
) -> None:
    secret = postgres_url.replace("everturn@", "everturn:canary@")
    async with opened(secret, patience_seconds=0.1) as database:
        postgres.kill()
        try:
            with pytest.raises(StoreAway) as told:
                await database.write(named("s"))
            with pytest.raises(RuntimeUnavailable) as closed:
                await PostgresDatabase(make_url(secret), lambda told: None).open(0.1)
        finally:
            postgres.start()
    assert f"127.0.0.1:{postgres.port} does not answer" in str(told.value)
    assert f"No PostgreSQL answers at 127.0.0.1:{postgres.port}" in str(closed.value)
    assert "canary" not in str(told.value) + str(closed.value)


async def test_a_database_that_is_not_there_is_told_and_not_waited_for(
    postgres: PostgresServer,
) -> None:
    with pytest.raises(RuntimeUnavailable, match="There is no database 'nowhere' at 127"):
        await open_database(postgres.url_of("nowhere"), lambda told: None, 2, 1.0)


async def test_the_sign_that_is_refused_is_replaced_and_long_numbers_fit(
    postgres_url: str,
) -> None:
    table = schema.specs
    async with opened(postgres_url) as database:
        await database.write(
            lambda tx: tx.connection.execute(sa.insert(table), {"hash": "h", "body": "a\0b"})
        )
        body = await database.read(lambda c: c.execute(sa.select(table.c.body)).scalar())
        assert body == "a\N{REPLACEMENT CHARACTER}b"

        store = SqlStore(database, count, price)
        await store.create_session(SessionKey("default", "nul"), SessionSettings("/w\0", "/w"))
        assert (
            await store.session(SessionKey("default", "nul"))
        ).workspace == "/w\N{REPLACEMENT CHARACTER}"

        def long(tx: Tx) -> int:
            session = LockedSession(tx, SessionKey("default", "nul"))
            session.message_tokens = 2**40
            session.save()
            return LockedSession(tx, session.key).message_tokens

        assert await database.write(long) == 2**40


async def test_a_change_is_finished_though_who_asked_is_cancelled(postgres_url: str) -> None:
    async with opened(postgres_url, connections=1) as database:
        store = SqlStore(database, count, price)
        await store.create_session(KEY, SETTINGS)
        asked = asyncio.create_task(database.write(named("s")))
        await asyncio.sleep(0.05)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert await turns(database) == {"s": 1}


async def test_a_change_that_fails_leaves_nothing_and_says_nothing_of_what_was_written(
    postgres_url: str,
) -> None:
    async with opened(postgres_url) as database:
        row = {"hash": "h", "body": None, "canary": 1}

        def change(tx: Tx) -> None:
            tx.connection.execute(sa.insert(schema.blobs), {"digest": "d", "body": "kept?"})
            tx.connection.execute(
                sa.text("INSERT INTO specs (hash, body) VALUES (:hash, :body)"),
                {"hash": "canary", "body": row["body"]},
            )

        with pytest.raises(sa.exc.DatabaseError, match="specs body") as told:
            await database.write(change)
        assert "canary" not in str(told.value)
        kept = sa.select(sa.func.count()).select_from(schema.blobs)
        assert await database.read(lambda c: c.execute(kept).scalar()) == 0


async def test_time_is_the_databases(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everturn_activities.store.postgres.time.time", lambda: 1000.0)
    async with opened(postgres_url) as database:
        given, told = await database.write(
            lambda tx: (
                tx.now,
                tx.connection.execute(
                    sa.text("SELECT extract(epoch from clock_timestamp())::float8")
                ).scalar_one(),
            )
        )
        assert given == pytest.approx(told, abs=0.5)
        assert database.now() == pytest.approx(told, abs=0.5)


@pytest.fixture
async def wakeups(tmp_path: Path) -> AsyncIterator[WakeUps]:
    made = WakeUps(tmp_path)
    await made.listen()
    yield made
    await made.close()


async def test_a_commit_whose_answer_was_lost_is_found_and_not_made_again(
    postgres: PostgresServer, postgres_url: str, wakeups: WakeUps
) -> None:
    """Protocol detail 10: a message, a paid reply and a `once` intent."""
    async with cutter(postgres.port) as cut:
        through = postgres_url.replace(str(postgres.port), str(cut.port))
        async with opened(through) as database:
            store = SqlStore(database, count, price)
            await store.create_session(KEY, SETTINGS)
            events = SqlEventLog(database, wakeups)
            story = Story(store, events, None, KEY)  # type: ignore[arg-type]

            cut.cuts = 1
            await story.send("hello", "m1")
            cut.cuts = 1
            turn = await store.begin_turn(BeginTurn(*KEY, KEY.workflow_id, "run-1", None), SPEC)
            context = await story.prepare(turn)  # type: ignore[arg-type]
            attempt = await story.start(context)
            cut.cuts = 1
            await story.reply(context, attempt, "hi", ["send_mail"])
            cut.cuts = 1
            begun = await story.begin_tool(turn, caller=ME, once=True)  # type: ignore[arg-type]
            assert isinstance(begun, ToolStarted)
            assert begun.attempt == 1
            cut.cuts = 1
            await story.end_tool(turn)  # type: ignore[arg-type]
            assert cut.cuts == 0

            kinds = [event.type for event in await story.told()]
            assert len([kind for kind in kinds if kind == "message_accepted"]) <= 1
            assert len(await store.tool_calls(KEY, 1, 1)) == 1
            assert (await story.transcript())[:2] == ["user: hello", "assistant: hi"]
            assert kinds.count("turn_started") == 1
            assert "superseded" not in kinds
