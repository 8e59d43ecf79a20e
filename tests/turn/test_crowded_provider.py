"""Many turns of two tenants against an endpoint that refuses what is beyond its rate."""

import asyncio
import json
import random
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import pytest
from harness import Bench, bench

from everturn.events import Event
from everturn.messages import user_text
from everturn.session import SessionKey
from everturn_activities.gateways.choose import Gateways
from everturn_activities.store import Inbound, SessionSettings
from everturn_activities.workspaces import Workspaces
from everturn_workers.worker import running_worker

SECONDS = 240.0
SCRIPT = {
    "by_last_user": {
        "slowly": [{"calls": [{"name": "slow", "arguments": {"seconds": 0.2}}]}, {"text": "done"}],
        "": [{"text": "a short answer"}],
    }
}


@dataclass
class Endpoint:
    url: str
    log: Path

    def count(self, event: str) -> int:
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return sum(1 for line in lines if line["event"] == event)


@asynccontextmanager
async def strict_endpoint(folder: Path, per_second: int) -> AsyncIterator[Endpoint]:
    script, log = folder / "script.json", folder / "model.log"
    script.write_text(json.dumps(SCRIPT))
    flags = ["--script", str(script), "--log", str(log), "--per-second", str(per_second)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "everturn_workers.scripted_model", *flags, stdout=PIPE
    )
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        yield Endpoint(line.split()[1], log)
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def opened_gateways(url: str) -> AsyncIterator[Gateways]:
    gateways = Gateways({"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "x"})
    yield gateways
    await gateways.close()


async def ask(made: Bench, key: SessionKey, text: str) -> None:
    settings = SessionSettings(str(made.workspace), str(made.workspace))
    await made.runtime.store.create_session(key, settings)
    await made.front.accept(key, Inbound("m", "message", user_text(text)))


async def until_finished(made: Bench, key: SessionKey) -> list[Event]:
    """The session's events; a busy machine may take minutes for all."""
    seen: list[Event] = []
    async with asyncio.timeout(SECONDS):
        async for batch in made.runtime.events.watch(key, (1, 0)):
            seen += batch
            if seen[-1].type == "turn_finished":
                break
    return seen


async def seconds_of(made: Bench, keys: Sequence[SessionKey]) -> list[float]:
    """How long each turn waited for its model."""
    seconds = []
    for key in keys:
        events = await until_finished(made, key)
        assert events[-1].body["outcome"] == "completed", events[-1].body
        began = {event.type: event.time for event in events}
        seconds.append(began["step_started"] - began["turn_started"])
    return seconds


@pytest.mark.filterwarnings("ignore:Cannot find activity to cancel")
@pytest.mark.parametrize(
    ("few", "many", "per_second", "declared"),
    [
        # A rate that a busy machine does not fall behind.
        pytest.param(3, 21, 5, True, id="sample"),
        pytest.param(10, 190, 20, True, id="whole", marks=pytest.mark.long),
        pytest.param(10, 190, 20, False, id="undeclared", marks=pytest.mark.long),
    ],
)
async def test_a_crowd_is_paced_and_starves_nobody(
    server_address: str,
    tmp_path: Path,
    workspace: Path,
    few: int,
    many: int,
    per_second: int,
    declared: bool,
) -> None:
    # Tests share a server, and a run that another left open must not be taken for one of these.
    own = tmp_path.name
    small = [SessionKey(f"small-{own}", f"s{number}") for number in range(few)]
    large = [SessionKey(f"large-{own}", f"l{number}") for number in range(many)]
    tool = SessionKey(f"tools-{own}", "tool")
    everybody = [*large, *small]
    random.Random(1).shuffle(everybody)
    limits = {"provider_limits": {"*": {"requests_per_second": per_second}}} if declared else {}
    async with (
        strict_endpoint(tmp_path, per_second) as endpoint,
        opened_gateways(endpoint.url) as gateways,
        bench(server_address, tmp_path / "home", workspace, **limits) as made,
        running_worker(
            made.client,
            made.runtime,
            made.settings,
            gateways,
            Workspaces(),
            Workspaces(),
        ),
    ):
        half = len(everybody) // 2
        asks = [ask(made, key, "hello") for key in everybody]
        await asyncio.gather(*asks[:half], ask(made, tool, "work slowly"), *asks[half:])
        of_tool = await until_finished(made, tool)
        of_small = await seconds_of(made, small)
        of_large = await seconds_of(made, large)
        ended = max([(await made.events(key))[-1].time for key in large])

    received, refused = endpoint.count("received"), endpoint.count("refused")
    print(
        f"{few}+{many} turns: {received} received, {refused} refused; mean waits"
        f" {mean(of_small):.1f} s and {mean(of_large):.1f} s, longest {max(of_large):.1f} s"
    )
    # The tool's turn went through in the midst of it, and its tool at once.
    tools = {event.type: event.time for event in of_tool}
    assert tools["tool_finished"] - tools["tool_started"] < 3
    assert of_tool[-1].time < ended
    if refused or max(of_large) < 2 * (few + many) / per_second:
        # The endpoint was what they waited for, and not this machine.
        assert mean(of_small) <= mean(of_large)
    assert refused < 0.02 * received
