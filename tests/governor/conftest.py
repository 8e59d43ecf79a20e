"""Every implementation of the governor, each with an empty state and a clock that stands still."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from governed import Clock, Opened, in_memory, on_redis, on_sqlite
from redis_servers import BINARY, RedisServer, redis_server

NO_REDIS = "There is no redis-server: the governor on Redis is NOT tested; install redis-server."


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    if BINARY is None:
        pytest.skip(NO_REDIS)
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opened]:
    """Opens the governor under given limits; all that are opened share one state."""
    clock = Clock()
    match request.param:
        case "memory":
            made = in_memory(clock)
        case "sqlite":
            made = on_sqlite(tmp_path, clock)
        case _:
            made = on_redis(request.getfixturevalue("redis"), clock)
    async with AsyncExitStack() as stack:

        async def open_(**limits: object) -> object:
            return await stack.enter_async_context(made(limits))

        yield Opened(open_, clock)
