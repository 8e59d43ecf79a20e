"""The command as a process, against an API in the test's own loop."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "mcp"))
sys.path.insert(0, str(Path(__file__).parent.parent / "api"))
sys.path.insert(0, str(Path(__file__).parent.parent / "folders"))

from by_hand import Runtime, Served
from commands import Commands
from preloaded import Preloaded


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
def commands(
    runtime: Runtime, served: Served, preloaded: Preloaded, tmp_path_factory: pytest.TempPathFactory
) -> Commands:
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
        preloaded,
        tmp_path_factory.mktemp("commands"),
    )
