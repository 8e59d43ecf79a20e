"""Every implementation of the store and the event log, each with a session to tell of."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from books import Books
from databases import Databases
from stories import Clock, Open, Story, count, price

from everturn.session import SessionKey
from everturn_activities.event_log.sql import SqlEventLog
from everturn_activities.store import SessionSettings
from everturn_activities.store.sql import SqlStore
from everturn_activities.wakeups import WakeUps

KEY = SessionKey("default", "s")


@pytest.fixture
def books() -> Iterator[Books]:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    with engine.connect() as connection:
        yield Books(connection)
    engine.dispose()


@pytest.fixture(params=["sqlite", "postgres"])
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> Databases:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    return Databases(tmp_path / "store.db", url)


@pytest.fixture
def opened(databases: Databases) -> Open:
    """Opens the same database once more, as another process would."""

    @asynccontextmanager
    async def open_(folder: Path) -> AsyncIterator[Story]:
        sockets = folder / "sockets"
        sockets.mkdir(exist_ok=True)
        wakeups = WakeUps(sockets)
        await wakeups.listen()
        clock = Clock()
        database = await databases.open(wakeups.tell, clock)
        store = SqlStore(database, count, price)
        await store.create_session(KEY, SessionSettings("/workspace", "/workspace"))
        try:
            yield Story(store, SqlEventLog(database, wakeups), clock, KEY)
        finally:
            await store.close()
            await wakeups.close()

    return open_


@pytest.fixture
async def story(opened: Open, tmp_path: Path) -> AsyncIterator[Story]:
    async with opened(tmp_path) as story:
        yield story
