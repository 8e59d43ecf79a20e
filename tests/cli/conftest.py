"""The command as a process, against an API in the test's own loop."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "api"))

from by_hand import Runtime, Served


@dataclass
class Ran:
    code: int | None
    out: str
    err: str


@dataclass
class Commands:
    """Starts `everturn` in a folder, with settings that point at the served API."""

    folder: Path
    environment: dict[str, str]

    async def start(self, *arguments: str | bytes, **given: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "everturn_workers.cli", *arguments),
            cwd=self.folder,
            env={**self.environment, **given},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def __call__(self, *arguments: str | bytes, stdin: bytes = b"", **given: str) -> Ran:
        process = await self.start(*arguments, **given)
        return await ended(process, stdin)


async def ended(process: asyncio.subprocess.Process, stdin: bytes = b"") -> Ran:
    try:
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin)
    finally:
        if process.returncode is None:
            process.kill()
    return Ran(process.returncode, out.decode(), err.decode())


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    runtime = Runtime(tmp_path)
    await runtime.wakeups.listen()
    yield runtime
    await runtime.store.close()
    await runtime.wakeups.close()


@pytest.fixture
async def served(runtime: Runtime) -> AsyncIterator[Served]:
    async with runtime.served() as served:
        yield served


@pytest.fixture
def commands(runtime: Runtime, served: Served) -> Commands:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return Commands(
        runtime.workspace,
        {
            **kept,
            "HOME": str(runtime.folder),
            "EVERTURN_HOME": str(runtime.folder / "home"),
            "EVERTURN_PORT": served.url.rpartition(":")[2],
            # Named, so that a command uses the API that is there and starts none.
            "EVERTURN_TEMPORAL_ADDRESS": "127.0.0.1:1",
        },
    )
