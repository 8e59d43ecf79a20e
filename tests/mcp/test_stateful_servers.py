"""A server that remembers what a session did: one worker has it, until that worker dies."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from harness import Bench, eventually, says
from mcp_servers import server, table
from plays import scripted_endpoint, write
from small import Small

from everturn.messages import ToolMessage
from everturn.session import SessionKey
from everturn_activities.sandbox import probe


@asynccontextmanager
async def worker(made: Bench) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker as a process of its own, ready to take work."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "everturn_workers.cli", "worker"),
        env={
            **os.environ,
            "EVERTURN_HOME": str(made.settings.home),
            "EVERTURN_TEMPORAL_ADDRESS": str(made.settings.temporal_address),
            "EVERTURN_TASK_QUEUE": made.settings.task_queue,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            while not (await process.stdout.readline()).startswith(b"ready"):
                assert process.returncode is None
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


async def results(made: Bench, key: SessionKey) -> list[str]:
    messages = await made.transcript(key)
    return [one.text for m in messages if isinstance(m, ToolMessage) for one in m.results]


def calls(*names: str, **arguments: object) -> dict[str, object]:
    return {"calls": [{"name": name, "arguments": arguments} for name in names]}


def running(folder: Path) -> list[int]:
    """The processes that have the folder in their command line."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (place / "cmdline").read_bytes():
                found.append(int(place.name))
        except OSError:
            continue
    return found


@pytest.mark.skipif(not probe().available, reason=str(probe().reason))
async def test_a_stateful_server_survives_the_kill_of_its_worker(made: Bench, tmp_path: Path):
    """U5, U2: it is launched anew elsewhere and compared, and the model is told what was lost."""
    small = Small.made(tmp_path / "small", "count", "wait", "child")
    replies = [
        calls("mcp_small_count"),
        calls("mcp_small_count", "mcp_everything_get-sum", a=1, b=2),
        calls("mcp_small_child"),
        calls("mcp_small_wait"),
        calls("mcp_small_count", "mcp_everything_get-sum", a=2, b=3),
        calls("mcp_small_count"),
        says("done"),
    ]
    async with scripted_endpoint(replies=replies) as endpoint:
        settings = f'[model]\nbase_url = "{endpoint.url}"\nname = "hosted_vllm/scripted"\n'
        settings += small.table("small", stateful=True)
        settings += table("everything", server("everything", "stdio"), stateful=True)
        write(made, {"everturn.toml": settings})
        key = await made.session()
        async with worker(made) as first:
            await made.send(key, "count")
            await made.until(key, "tool_output")  # The call of `wait` is under way.
            before = running(small.folder)
            assert len(before) >= 2
            first.send_signal(signal.SIGKILL)
            await first.wait()
            await eventually(lambda: not set(running(small.folder)) & set(before))
            async with worker(made):
                await made.until(key, "turn_finished")

    count, second, total, _, waited, third, more, fourth = await results(made, key)
    assert "count 1" in count
    assert "count 2" in second
    assert "The sum of 1 and 2 is 3." in total
    assert waited.startswith("The outcome of this call is unknown")
    anew = "was started anew: what it remembered of this session until then is lost.]"
    assert f"[Server small {anew}\ncount 1" in third
    assert f"[Server everything {anew}\nThe sum of 2 and 3 is 5." in more
    assert "count 2" in fourth
    assert anew not in fourth
    assert [call["name"] for call in small.asked("tools/call")] == [
        *("count", "count", "child", "wait", "count", "count")
    ]


async def test_calls_go_to_the_worker_that_has_the_server(made: Bench, tmp_path: Path):
    small = Small.made(tmp_path / "small", "count")
    turn = [calls("mcp_small_count"), calls("mcp_small_count"), says("done")]
    async with scripted_endpoint(replies=turn) as endpoint:
        settings = f'[model]\nbase_url = "{endpoint.url}"\nname = "hosted_vllm/scripted"\n'
        write(made, {"everturn.toml": settings + small.table("small", stateful=True)})
        key = await made.session()
        async with worker(made):
            await made.send(key, "count")
            await made.until(key, "turn_finished", turn=1)
            async with worker(made):
                for turn_number in (2, 3):
                    await made.send(key, "count")
                    await made.until(key, "turn_finished", turn=turn_number)
    told = await results(made, key)
    assert [f"count {n}" in text for n, text in enumerate(told, start=1)] == [True] * 6
    assert len(small.asked("initialize")) == 1
