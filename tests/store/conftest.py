"""Every implementation of the store and the event log, each with a session to tell of."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from books import Books
from stories import Clock, Open, Story, count, price

from everturn.session import SessionKey
from everturn_activities.event_log.sql import SqlEventLog
from everturn_activities.store import SessionSettings
from everturn_activities.store.database import SqliteDatabase
from everturn_activities.store.sql import SqlStore
from everturn_activities.wakeups import WakeUps

KEY = SessionKey("default", "s")


@pytest.fixture
def books() -> Iterator[Books]:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    with engine.connect() as connection:
        yield Books(connection)
    engine.dispose()


@asynccontextmanager
async def on_sqlite(folder: Path) -> AsyncIterator[Story]:
    sockets = folder / "sockets"
    sockets.mkdir(exist_ok=True)
    wakeups = WakeUps(sockets)
    await wakeups.listen()
    clock = Clock()
    database = SqliteDatabase(folder / "store.db", wakeups.tell, clock)
    store = SqlStore(database, count, price)
    await store.create_session(KEY, SessionSettings("/workspace", "/workspace"))
    try:
        yield Story(store, SqlEventLog(database, wakeups), clock, KEY)
    finally:
        await store.close()
        await wakeups.close()


@pytest.fixture(params=[pytest.param(on_sqlite, id="sqlite")])
def opened(request: pytest.FixtureRequest) -> Open:
    """Opens the same database once more, as another process would."""
    made: Open = request.param
    return made


@pytest.fixture
async def story(opened: Open, tmp_path: Path) -> AsyncIterator[Story]:
    async with opened(tmp_path) as story:
        yield story
