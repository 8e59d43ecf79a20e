"""Row U2: a worker that dies between a model's reply and the results of its tools."""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from harness import Bench, says
from model_servers import scripted_endpoint

from everturn.messages import AssistantMessage, ToolMessage
from everturn_activities.tools import UNKNOWN_OUTCOME

TOOLS = '''
import asyncio

from everturn import ToolContext, tool


async def once_for_ever(context, name):
    with (context.working_dir / "begun.log").open("a") as log:
        log.write(f"{name}\\n")
    if context.attempt == 1:
        await asyncio.sleep(600)
    return f"{name} was run"


@tool(effect="pure")
async def finished(context: ToolContext) -> str:
    """End at once."""
    with (context.working_dir / "begun.log").open("a") as log:
        log.write("finished\\n")
    return "finished was run"


@tool(effect="idempotent")
async def repeatable(context: ToolContext) -> str:
    """May run again."""
    return await once_for_ever(context, "repeatable")


@tool(effect="once")
async def unverified(context: ToolContext) -> str:
    """Must not run again."""
    return await once_for_ever(context, "unverified")


@tool(effect="once", verify=lambda context: "verified took effect")
async def verified(context: ToolContext) -> str:
    """Must not run again, and can be asked after."""
    return await once_for_ever(context, "verified")
'''
NAMES = ("finished", "repeatable", "unverified", "verified")

StartWorker = Callable[[str], Coroutine[Any, Any, asyncio.subprocess.Process]]


@pytest.fixture
async def start_worker(made: Bench) -> AsyncIterator[StartWorker]:
    """Starts a worker process on the bench's home and queue, for a model at a URL."""
    started: list[asyncio.subprocess.Process] = []

    async def start(model_url: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "everturn_workers.cli", "worker"),
            env={
                **os.environ,
                "EVERTURN_HOME": str(made.settings.home),
                "EVERTURN_TEMPORAL_ADDRESS": str(made.settings.temporal_address),
                "EVERTURN_TASK_QUEUE": made.settings.task_queue,
                "OPENAI_BASE_URL": model_url,
                "OPENAI_API_KEY": "sk-test",
                "NO_PROXY": "127.0.0.1",
            },
            stdout=asyncio.subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert (await process.stdout.readline()).startswith(b"ready ")
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def begun(workspace: Path) -> list[str]:
    """The tools that began, once for each time."""
    log = workspace / "begun.log"
    return log.read_text().split() if log.exists() else []


async def test_U2_after_a_kill_in_mid_tool_the_model_sees_one_result_for_each_call(
    made: Bench, start_worker: StartWorker, tmp_path: Path
):
    """T17: a result that was there before the kill is in the transcript once."""
    (made.workspace / "tools" / "crash.py").write_text(TOOLS)
    asks = {"calls": [{"name": name} for name in NAMES]}
    key = await made.session()

    with scripted_endpoint(tmp_path, {"replies": [asks, says("All known.")]}) as model:
        worker = await start_worker(model.url)
        await made.send(key, "run all four")
        await made.until(key, "tool_finished")
        async with asyncio.timeout(30):
            while set(begun(made.workspace)) != set(NAMES):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        worker.send_signal(signal.SIGKILL)
        await worker.wait()

        await start_worker(model.url)
        events = await made.until(key, "turn_finished")

    assert events[-1].body["text"] == "All known."
    _, asked, told, _ = await made.transcript(key)
    assert isinstance(asked, AssistantMessage)
    assert isinstance(told, ToolMessage)
    assert [result.call_id for result in told.results] == [call.id for call in asked.tool_calls]
    assert [result.text for result in told.results] == [
        *("finished was run", "repeatable was run"),
        *(UNKNOWN_OUTCOME, "verified took effect"),
    ]
    assert Counter(begun(made.workspace)) == Counter({**dict.fromkeys(NAMES, 1), "repeatable": 2})
    assert set(Counter(line["key"] for line in model.events("completed")).values()) == {1}
    assert [line["position"] for line in model.events("received")] == [0, 1]
