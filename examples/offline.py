"""Everturn in a temporary home, with a script in place of the model: what the examples run on.

Nothing leaves this machine, no key is needed, and no process or file is left behind.
"""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from everturn.client import Client
from everturn.errors import EverturnError, RuntimeUnavailable
from everturn_workers import fetch, processes
from everturn_workers.settings import Settings
from everturn_workers.supervisor import Up
from everturn_workers.up_record import running

PATIENCE_SECONDS = 60.0


@asynccontextmanager
async def offline(example: str) -> AsyncIterator[tuple[Client, Path]]:
    """A client of a runtime, and a copy of the example's workspace, whose `script.json` answers."""
    source = Path(__file__).with_name(example)
    folder = Path(tempfile.mkdtemp(prefix=f"everturn-{example}-"))
    try:
        workspace = folder / example
        shutil.copytree(source, workspace, ignore=shutil.ignore_patterns("__pycache__"))
        async with _model(workspace / "script.json", folder / "model.log") as url:
            os.environ["OPENAI_BASE_URL"] = url
            settings = Settings(home=folder / "home", port=0)
            async with Up(settings, lambda line: None):
                up = running(settings.home)
                if up is None or up.api_url is None:
                    raise RuntimeUnavailable("The runtime has ended.")
                async with Client(up.api_url, kept_alive=True) as client:
                    yield client, workspace
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(example: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run an example as a program; Ctrl-C leaves nothing behind."""
    for name in list(os.environ):
        if name.startswith("EVERTURN_") and name != "EVERTURN_TEMPORAL_BINARY":
            del os.environ[name]
    os.environ["OPENAI_API_KEY"] = "the-script-asks-for-none"
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await example()

    try:
        fetch.fetch(print)
        asyncio.run(main())
    except EverturnError as error:
        sys.exit(str(error))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)


@asynccontextmanager
async def _model(script: Path, log_path: Path) -> AsyncIterator[str]:
    """The scripted endpoint as a process; yields its base URL."""
    command = [sys.executable, "-m", "everturn_workers.scripted_model", "--port", "0"]
    log = processes.Log(log_path)
    with log.open() as output:
        process = await processes.spawn(
            [*command, "--script", str(script)], environment=os.environ, log=output
        )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (lines := log.lines()):
                if process.returncode is not None:
                    break
                await asyncio.sleep(0.02)
        if not lines or not lines[0].startswith("listening "):
            raise RuntimeUnavailable(f"The scripted model did not start: {log.tail()}")
        yield lines[0].split()[1]
    finally:
        await processes.end(process, seconds=2)
