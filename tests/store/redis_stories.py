"""Stories whose event log is in Redis, the store beside it in whichever database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from databases import Databases
from redis_servers import PATIENT_SECONDS
from stories import Clock, Story, count, price

from everturn.session import SessionKey
from everturn_activities.event_log.redis import RedisEventLog
from everturn_activities.redis_link import RedisLink
from everturn_activities.redis_wakeups import RedisWakeUps
from everturn_activities.store import SessionSettings
from everturn_activities.store.sql import SqlStore

KEY = SessionKey("default", "s")


@asynccontextmanager
async def on_redis(
    where: Path | Databases, url: str, prefix: str, entries_max: int = 10_000
) -> AsyncIterator[Story]:
    """One more process's worth of store and log."""
    link = RedisLink(url, PATIENT_SECONDS)
    wakeups = RedisWakeUps(link, prefix)
    await wakeups.listen()
    clock = Clock()
    logs: list[RedisEventLog] = []

    def told(keys: set[SessionKey]) -> None:
        wakeups.tell(keys)
        for log in logs:
            log.told(keys)

    databases = Databases(where / "store.db", None) if isinstance(where, Path) else where
    database = await databases.open(told, clock)
    store = SqlStore(database, count, price)
    log = RedisEventLog(database, wakeups, link, prefix=prefix, entries_max=entries_max)
    logs.append(log)
    await store.create_session(KEY, SessionSettings("/workspace", "/workspace"))
    try:
        yield Story(store, log, clock, KEY)
    finally:
        await log.close()
        await store.close()
        await wakeups.close()
        await link.close()
