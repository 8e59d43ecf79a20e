"""The API on a free port, and a client of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from by_hand import Runtime, Served

from everturn.client import Client


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    runtime = Runtime(tmp_path)
    await runtime.wakeups.listen()
    yield runtime
    await runtime.library.close()
    await runtime.store.close()
    await runtime.wakeups.close()


@pytest.fixture
async def served(runtime: Runtime) -> AsyncIterator[Served]:
    async with runtime.served() as served:
        yield served


@pytest.fixture
async def client(served: Served) -> AsyncIterator[Client]:
    async with Client(served.url, patience_seconds=5) as client:
        yield client
