"""Homes, the Temporal binary, and `up` as a process that is surely ended."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from needs import need
from ups import UpProcess

from everturn_workers import fetch, processes
from everturn_workers.home import prepare
from everturn_workers.server import EmbeddedServer, start_server


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return prepare(tmp_path / "home")


@pytest.fixture(scope="session")
def temporal() -> Path:
    binary = fetch.find()
    need(binary, "no Temporal binary; run `make temporal`")
    assert binary is not None
    return binary


@pytest.fixture
async def server(temporal: Path, home: Path) -> AsyncIterator[EmbeddedServer]:
    server = await start_server(temporal, home)
    yield server
    if server.process.returncode is None:
        server.process.kill()
        await server.process.wait()


@pytest.fixture
def up(temporal: Path, home: Path) -> Iterator[Callable[..., UpProcess]]:
    """Starts an `up` on the test's home; whatever it leaves is killed."""
    started: list[UpProcess] = []

    def start(*ways: str, **variables: str) -> UpProcess:
        started.append(UpProcess(home, *ways, **variables))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        for child in one.children:
            asyncio.run(processes.kill_group(child))
