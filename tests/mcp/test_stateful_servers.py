"""A server that remembers what a session did: one worker has it, until that worker dies."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from harness import Bench, eventually, says
from mcp_servers import server, table
from plays import scripted_endpoint, write
from small import Small
from temporalio.api.enums.v1 import EventType

from everturn.messages import ToolMessage
from everturn.session import SessionKey
from everturn_activities.sandbox import probe


@asynccontextmanager
async def worker(
    made: Bench, roles: str = "turns,models,tools"
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker as a process of its own, ready to take work."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "everturn_workers.cli", "worker"),
        env={
            **os.environ,
            "EVERTURN_HOME": str(made.settings.home),
            "EVERTURN_TEMPORAL_ADDRESS": str(made.settings.temporal_address),
            "EVERTURN_TASK_QUEUE": made.settings.task_queue,
            "EVERTURN_ROLES": roles,
            "EVERTURN_DRAIN_SECONDS": "0.5",
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


async def unattended(made: Bench, key: SessionKey) -> int:
    """How many calls of the session's newest run nobody took, who should have."""
    history = await made.client.get_workflow_handle(key.workflow_id).fetch_history()
    return sum(
        event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT for event in history.events
    )


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


@pytest.mark.parametrize("roles", [("turns,models,tools",), ("turns,models", "tools")])
async def test_calls_go_to_the_worker_that_has_the_server(
    made: Bench, tmp_path: Path, roles: tuple[str, ...]
):
    """Also where turns and tools are worked by processes of their own."""
    small = Small.made(tmp_path / "small", "count")
    turn = [calls("mcp_small_count"), calls("mcp_small_count"), says("done")]
    async with scripted_endpoint(replies=turn) as endpoint, AsyncExitStack() as stack:
        settings = f'[model]\nbase_url = "{endpoint.url}"\nname = "hosted_vllm/scripted"\n'
        write(made, {"everturn.toml": settings + small.table("small", stateful=True)})
        key = await made.session()
        for role in roles:
            await stack.enter_async_context(worker(made, role))
        await made.send(key, "count")
        await made.until(key, "turn_finished", turn=1)
        left = [await unattended(made, key)]
        async with worker(made, roles[-1]):
            for turn_number in (2, 3):
                await made.send(key, "count")
                await made.until(key, "turn_finished", turn=turn_number)
                left.append(await unattended(made, key))
    assert left == [0, 0, 0]
    told = await results(made, key)
    assert [f"count {n}" in text for n, text in enumerate(told, start=1)] == [True] * 6
    assert len(small.asked("initialize")) == 1


async def test_a_worker_that_is_told_to_end_ends_its_servers(made: Bench, tmp_path: Path):
    """Also where a call of theirs is under way, which another worker gets at once."""
    small = Small.made(tmp_path / "small", "wait")
    async with scripted_endpoint(replies=[calls("mcp_small_wait"), says("done")]) as endpoint:
        settings = f'[model]\nbase_url = "{endpoint.url}"\nname = "hosted_vllm/scripted"\n'
        write(made, {"everturn.toml": settings + small.table("small", stateful=True)})
        key = await made.session()
        async with worker(made) as first:
            await made.send(key, "wait")
            await made.until(key, "tool_output")  # The call of `wait` is under way.
            first.send_signal(signal.SIGTERM)
            assert await first.wait() == 0
        assert not running(small.folder)
        async with worker(made):
            await made.until(key, "turn_finished")
    assert (await results(made, key))[0].startswith("The outcome of this call is unknown")
