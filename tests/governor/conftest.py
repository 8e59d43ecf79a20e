"""Every implementation of the governor, each with an empty state and a clock that stands still."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from governed import Clock, Opened, in_memory, on_postgres, on_redis, on_sqlite


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opened]:
    """Opens the governor under given limits; all that are opened share one state."""
    clock = Clock()
    match request.param:
        case "memory":
            made = in_memory(clock)
        case "sqlite":
            made = on_sqlite(tmp_path, clock)
        case "postgres":
            made = on_postgres(request.getfixturevalue("postgres_url"), clock)
        case _:
            made = on_redis(request.getfixturevalue("redis"), clock)
    async with AsyncExitStack() as stack:

        async def open_(**limits: object) -> object:
            return await stack.enter_async_context(made(limits))

        yield Opened(open_, clock)
