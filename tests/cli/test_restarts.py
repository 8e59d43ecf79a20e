"""Commands while the `up` on their home starts again what died."""

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from commands import Commands, ended

from everturn_workers.locks import try_lock
from everturn_workers.processes import identify


@contextmanager
def up_on(home: Path, port: int) -> Iterator[None]:
    """What an `up` on `home` leaves there for others, its API at `port`."""
    lock = try_lock(home / "run" / "up.lock")
    us = identify(os.getpid())
    assert lock is not None
    assert us is not None
    url = f"http://127.0.0.1:{port}"
    record = {"up": asdict(us), "temporal_address": None, "api_url": url, "children": {}}
    (home / "run" / "up.json").write_text(json.dumps(record))
    yield
    os.close(lock)


async def test_a_command_waits_for_the_api_that_is_started_again(commands: Commands, runtime):
    came = asyncio.Event()

    async def dies(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        writer.transport.abort()

    dying = await asyncio.start_server(dies, "127.0.0.1", 0)
    port = dying.sockets[0].getsockname()[1]
    with up_on(Path(commands.environment["EVERTURN_HOME"]), port):
        command = await commands.start("run", "say it", "--session", "s", "--detach")
        await asyncio.wait_for(came.wait(), 30)
        dying.close()
        await dying.wait_closed()
        async with runtime.served(port=port):
            ran = await ended(command)

    assert (ran.code, ran.out) == (0, "s\n")
