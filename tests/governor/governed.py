"""Governors to ask, calls to ask for, and how each kind of governor is opened."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everturn_activities.governor import Ending, Governor, ModelCall, Permit, Route, Wait
from everturn_activities.governor.limits import Limits, ProviderLimits
from everturn_activities.governor.memory import MemoryGovernor
from everturn_activities.governor.redis import RedisGovernor
from everturn_activities.governor.sql import SqlGovernor
from everturn_activities.store.database import SqliteDatabase
from everturn_activities.store.postgres import PostgresDatabase

if TYPE_CHECKING:
    from redis_servers import RedisServer
from sqlalchemy.engine import make_url

ROUTE = Route("key", "provider", "model")
OK = Ending("ok")
Governed = Callable[[dict[str, Any]], AbstractAsyncContextManager[Governor]]


@dataclass
class Clock:
    """Seconds that pass only when a test says so."""

    now: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Opened:
    """`open(**limits)` opens a governor; several are as several processes."""

    open: Callable[..., Awaitable[Any]]
    clock: Clock


def limits(given: dict[str, Any]) -> Limits:
    return Limits({"*": ProviderLimits(**given)})


_numbers = itertools.count()


def on_redis(server: "RedisServer", clock: Clock, prefix: str | None = None) -> Governed:
    prefix = prefix or f"test-{next(_numbers)}:"

    @asynccontextmanager
    async def open_(given: dict[str, Any]) -> AsyncIterator[Governor]:
        governor = RedisGovernor(server.url, limits(given), clock, prefix, answer_seconds=8.0)
        try:
            yield governor
        finally:
            await governor.close()

    return open_


def in_memory(clock: Clock) -> Governed:
    made: list[MemoryGovernor] = []

    @asynccontextmanager
    async def open_(given: dict[str, Any]) -> AsyncIterator[Governor]:
        if not made:
            made.append(MemoryGovernor(limits(given), clock))
        yield made[0]

    return open_


def on_sqlite(folder: Path, clock: Clock) -> Governed:
    @asynccontextmanager
    async def open_(given: dict[str, Any]) -> AsyncIterator[Governor]:
        database = SqliteDatabase(folder / "store.db", lambda told: None, clock)
        yield SqlGovernor(database, limits(given))
        await database.close()

    return open_


def on_postgres(url: str, clock: Clock) -> Governed:
    @asynccontextmanager
    async def open_(given: dict[str, Any]) -> AsyncIterator[Governor]:
        database = PostgresDatabase(make_url(url), lambda told: None, clock, connections=5)
        await database.open()
        yield SqlGovernor(database, limits(given))
        await database.close()

    return open_


def call(
    name: str,
    tenant: str = "t",
    model: str = "model",
    tokens: int = 0,
    key: str = "key",
    crowded: bool = False,
    priority: int = 2,
) -> ModelCall:
    route = Route(key, "provider", model)
    return ModelCall(name, tenant, route, tokens, crowded=crowded, priority=priority)


async def granted(governor: Governor, asked: ModelCall) -> Permit:
    answer = await governor.ask(asked)
    assert isinstance(answer, Permit), answer
    return answer


async def waits(governor: Governor, asked: ModelCall) -> Wait:
    answer = await governor.ask(asked)
    assert isinstance(answer, Wait), answer
    return answer


async def fails(governor: Governor, name: str, how: str = "overloaded", **more: Any) -> None:
    permit = await granted(governor, call(name, **more))
    await governor.settle(permit, Ending(how))  # type: ignore[arg-type]
