"""Processes that are told to end: while they wait for a server at their start, and twice."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx

SECONDS = 40.0
"""Of a slow machine; below all that is waited for at a start."""
HALF = (
    b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n{"
)


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return int(closed.getsockname()[1])


@asynccontextmanager
async def started(
    home: Path, *command: str, **variables: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    given = {"EVERTURN_TEMPORAL_ADDRESS": f"127.0.0.1:{closed_port()}", **variables}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "everturn_workers.cli", *command),
        env={**os.environ, "EVERTURN_HOME": str(home), "EVERTURN_PORT": "0", **given},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def said(stream: asyncio.StreamReader | None, text: str) -> str:
    """The first line with `text`."""
    assert stream is not None
    lines = []
    async with asyncio.timeout(SECONDS):
        while not lines or text not in lines[-1]:
            lines.append((await stream.readline()).decode())
            assert lines[-1], lines
    return lines[-1]


async def asked(health: str) -> str:
    """What the worker's page says that it waits for."""
    async with httpx.AsyncClient(trust_env=False) as client:
        return str((await client.get(f"{health}/readyz")).json()["detail"])


async def ended(process: asyncio.subprocess.Process) -> int:
    return await asyncio.wait_for(process.wait(), SECONDS / 2)


async def test_who_waits_for_a_database_ends_when_told_to(tmp_path: Path):
    away = {"EVERTURN_DATABASE_URL": f"postgresql://e@127.0.0.1:{closed_port()}/e"}
    worker = started(tmp_path / "worker", "worker", "--health-port", "0", **away)
    async with worker as worker, started(tmp_path / "api", "api", **away) as api:
        url = (await said(worker.stderr, "tells of its health at")).split()[-1]
        for process in (worker, api):
            await said(process.stderr, "does not answer")
        assert await asked(url) == "Waits for the store."
        for process in (worker, api):
            process.terminate()
        assert [await ended(worker), await ended(api)] == [0, 0]
        for process in (worker, api):
            assert process.stderr is not None
            left = (await process.stderr.read()).decode().splitlines()
            assert [line for line in left if "was told to end while it started" not in line] == []


async def test_an_api_that_is_told_twice_to_end_does_so_at_once(tmp_path: Path):
    async with started(tmp_path, "api") as api:
        port = int((await said(api.stdout, "ready")).rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HALF)
        # It waits for the rest, and would for five seconds.
        assert (await reader.readline()).startswith(b"HTTP/1.1 100")

        api.terminate()
        async with asyncio.timeout(SECONDS):
            with suppress(ConnectionRefusedError):
                while True:
                    _, another = await asyncio.open_connection("127.0.0.1", port)
                    another.close()
                    await asyncio.sleep(0.01)
        api.terminate()
        assert await ended(api) == 128 + signal.SIGTERM
        writer.close()
