"""What a worker tells of its health."""

import asyncio
import os
import socket
import sys
from pathlib import Path

import httpx
import pytest

from everturn.errors import UsageError
from everturn_workers import health as module
from everturn_workers.health import Health, told
from everturn_workers.settings import read_settings


async def ready(url: str | None) -> tuple[int, str]:
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{url}/readyz?verbose=1")
    body = answer.json()
    return answer.status_code, body.get("detail", body["status"])


def waits(what: str | None) -> module.WaitsFor:
    async def look() -> str | None:
        return what

    return look


async def test_a_worker_tells_what_it_waits_for(tmp_path: Path):
    health = Health()
    async with told(health, read_settings(home=tmp_path, health_port=0)) as url:
        assert await ready(url) == (503, "Waits for the store.")
        health.stage = None
        health.looks = {
            "the store": waits("the store"),
            "the rest": waits(None),
            "Temporal": waits("the Temporal server at t:7233"),
        }
        assert await ready(url) == (503, "Waits for the store and the Temporal server at t:7233.")
        health.looks = {"the store": waits(None)}
        assert await ready(url) == (200, "ready")
        health.stage = "Ends, and takes no new work."
        assert await ready(url) == (503, "Ends, and takes no new work.")


async def test_an_answer_that_does_not_come_is_waited_for_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    answer, asked = asyncio.Event(), []

    async def slow() -> None:
        asked.append(1)
        await answer.wait()

    health = Health()
    health.stage, health.looks = None, {"the store": slow}
    async with told(health, read_settings(home=tmp_path, health_port=0)) as url:
        for _ in range(2):
            assert await ready(url) == (503, "Waits for an answer of the store within 0.05 s.")
        # Nobody is asked again who has not answered.
        assert len(asked) == 1
        answer.set()
        assert await ready(url) == (200, "ready")


async def test_what_streams_alone_wait_for_makes_no_worker_unready(tmp_path: Path):
    health = Health()
    health.stage, health.streams_wait = None, waits("Redis at r:6379, which does not answer")
    async with (
        told(health, read_settings(home=tmp_path, health_port=0)) as url,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        answer = await client.get(f"{url}/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ready",
        "degraded": "Streams wait for Redis at r:6379, which does not answer.",
    }


async def test_a_worker_that_waits_lives_and_has_no_other_page(tmp_path: Path):
    async with (
        told(Health(), read_settings(home=tmp_path, health_port=0)) as url,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        assert (await client.get(f"{url}/healthz")).json() == {"status": "alive"}
        other = await client.get(f"{url}/")
    assert (other.status_code, other.json()["detail"]) == (404, "Ask for /healthz or /readyz.")


async def test_nothing_listens_where_no_port_is_set(tmp_path: Path):
    async with told(Health(), read_settings(home=tmp_path)) as url:
        assert url is None


async def test_a_port_that_is_taken_is_named_with_its_setting(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"{port} .*--health-port or EVERTURN_HEALTH_PORT"):
            async with told(Health(), read_settings(home=tmp_path, health_port=port)):
                pass


async def test_a_worker_waits_for_a_server_that_is_not_there_yet(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "everturn_workers.cli", "worker", "--health-port", "0"),
        env={**os.environ, "EVERTURN_HOME": str(tmp_path), "EVERTURN_TEMPORAL_ADDRESS": address},
        stderr=asyncio.subprocess.PIPE,
    )
    assert worker.stderr is not None
    lines: list[str] = []
    async with asyncio.timeout(60):
        while not any("waits for the Temporal server" in line for line in lines):
            lines.append((await worker.stderr.readline()).decode())
    url = next(line for line in lines if "its health at" in line).split()[-1]

    assert await ready(url) == (503, f"Waits for the Temporal server at {address}.")
    worker.terminate()
    assert await worker.wait() == 0
