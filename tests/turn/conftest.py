"""One Temporal server for the session's tests; a home and a task queue for each test."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from harness import Bench, bench

from everturn_workers import fetch
from everturn_workers.home import prepare
from everturn_workers.server import start_server

TOOLS = '''
import asyncio
from pathlib import Path

from everturn import ToolContext, tool


@tool(effect="pure", quick=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="idempotent")
async def slow(context: ToolContext, seconds: float = 1.0) -> str:
    """Take a while."""
    (context.working_dir / "slow.began").touch()
    await asyncio.sleep(seconds)
    return "slept"


@tool(effect="pure")
def echo(text: str) -> str:
    """Say it again."""
    return text


@tool(effect="pure")
def huge(megabytes: int) -> str:
    """Return a lot."""
    return "x" * (megabytes * 1024 * 1024)


@tool(effect="once")
async def effect(context: ToolContext, seconds: float = 0.0) -> str:
    """Leave a line that tells of the call."""
    with (context.working_dir / "effects.log").open("a") as log:
        log.write(context.idempotency_key + "\\n")
    (context.working_dir / "effect.began").touch()
    await asyncio.sleep(seconds)
    return "effected"


def _transferred(context: ToolContext) -> str | None:
    return "it went through" if (context.working_dir / "went.through").exists() else None


@tool(effect="once", verify=_transferred)
async def transfer(context: ToolContext) -> str:
    """Move money."""
    (context.working_dir / "transfers.log").open("a").write("x")
    return "moved"
'''


@pytest.fixture(scope="session")
def server_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    binary = fetch.find()
    if binary is None:
        pytest.fail("There is no Temporal server; run `make temporal`.")
    home = prepare(tmp_path_factory.mktemp("temporal"))
    with asyncio.Runner() as runner:
        server = runner.run(start_server(binary, home))
        yield server.address
        runner.run(server.stop())


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "tools").mkdir(parents=True)
    (folder / "everturn.toml").write_text("")
    (folder / "tools" / "tests.py").write_text(TOOLS)
    return folder


@pytest.fixture
async def made(server_address: str, tmp_path: Path, workspace: Path) -> AsyncIterator[Bench]:
    async with bench(server_address, tmp_path / "home", workspace) as made:
        yield made
