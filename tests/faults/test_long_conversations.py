"""A conversation many times longer than its model's window, on real processes."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from preloaded import Preloaded
from systems import System
from temporalio.client import Client as TemporalClient

from everturn.events import Event
from everturn.messages import AssistantMessage, ToolMessage, UserMessage
from everturn.session import SessionKey

KILLING = str(Path(__file__).with_name("killing_compactor.py"))
SUMMARISER = "CRITICAL: answer with text only"
TICKS = '''
from everturn import ToolContext, tool


@tool(effect="keyed", quick=True)
def tick(context: ToolContext) -> str:
    """Count on."""
    ticks = context.working_dir / "ticks"
    last, _, key = ticks.read_text().partition(" ") if ticks.exists() else ("0", "", "")
    number = int(last) + (key != context.idempotency_key)
    ticks.write_text(f"{number} {context.idempotency_key}")
    return f"tick {number}." + " and again" * 150
'''
PAGE = os.sysconf("SC_PAGE_SIZE")
CLOCK = os.sysconf("SC_CLK_TCK")


def script(steps: int) -> dict[str, Any]:
    """Ticks until the tool says that it is enough, whatever was summarised meanwhile."""
    return {
        "replies": [{"calls": [{"name": "tick"}]}] * 400,
        "by_last_user": {SUMMARISER: [{"text": "## Current Work\nIt ticks on."}]},
        "by_last_result": {rf"tick {steps}\.": {"text": "It has ticked enough."}},
    }


@asynccontextmanager
async def ticking(
    folder: Path, temporal: Path, preloaded: Preloaded, steps: int, window: int, **variables: str
) -> AsyncIterator[System]:
    system = System(folder, temporal, preloaded, {}, "inline", variables)
    (system.folder / "script.json").write_text(json.dumps(script(steps)))
    (system.workspace / "tools" / "ticks.py").write_text(TICKS)
    (system.workspace / "agents").mkdir()
    (system.workspace / "agents" / "default.md").write_text(
        f"---\ntools: [tick]\nsteps_max: {steps + 100}\nwindow_tokens: {window}\n---\nTick.\n"
    )
    try:
        yield system
    finally:
        await system.end()


@dataclass
class Sample:
    step: int
    rss_mb: float
    cpu_seconds: float
    time: float


@dataclass
class Samples:
    """What the worker takes, looked at each so many steps."""

    pid: int
    every: int
    taken: list[Sample] = field(default_factory=list)

    def look(self, event: Event) -> None:
        if event.step % self.every:
            return
        stat = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        cpu = (int(stat[11]) + int(stat[12])) / CLOCK
        self.taken.append(Sample(event.step, pages * PAGE / 2**20, cpu, event.time))

    def at(self, step: int) -> Sample:
        return next(sample for sample in self.taken if sample.step >= step)

    def cpu_a_step(self, first: int, last: int) -> float:
        """Milliseconds."""
        begin, end = self.at(first), self.at(last)
        return 1000 * (end.cpu_seconds - begin.cpu_seconds) / (end.step - begin.step)


async def run_lengths(system: System, name: str) -> list[tuple[int, int]]:
    """Events and bytes of the history of each run of the session's workflow, oldest first."""
    assert system.temporal is not None
    client = await TemporalClient.connect(system.temporal.address)
    lengths: list[tuple[int, int]] = []
    run_id = None
    while True:
        workflow_id = SessionKey("default", name).workflow_id
        handle = client.get_workflow_handle(workflow_id, run_id=run_id)
        events = (await handle.fetch_history()).events
        lengths.insert(0, (len(events), sum(event.ByteSize() for event in events)))
        run_id = events[0].workflow_execution_started_event_attributes.continued_execution_run_id
        if not run_id:
            return lengths


async def messages_of(system: System, name: str) -> list[Any]:
    found, after = [], 0
    while after is not None:
        page = await system.client.messages(name, after=after, limit=500)
        found += [view.message for view in page.messages]
        after = page.after
    return found


def whole(messages: list[Any], steps: int) -> None:
    """The transcript is one user message, a call and its result for each step, and the end."""
    assert isinstance(messages[0], UserMessage)
    results = [message for message in messages if isinstance(message, ToolMessage)]
    assert [int(m.results[0].text.partition(".")[0][5:]) for m in results] == [*range(1, steps + 1)]
    assert len(messages) == 2 * steps + 2
    assert isinstance(messages[-1], AssistantMessage)
    assert messages[-1].text == "It has ticked enough."


async def conversation(
    tmp_path: Path,
    temporal: Path,
    preloaded: Preloaded,
    steps: int,
    window: int,
    **variables: str,
) -> tuple[list[Event], Samples, list[tuple[int, int]]]:
    """Work it to its end, and see that nothing of it was lost, repeated or paid twice."""
    async with ticking(tmp_path, temporal, preloaded, steps, window, **variables) as system:
        await system.start()
        await system.client.create_session("s", workspace=str(system.workspace))
        await system.client.send("s", "Tick until it is enough.", id="m")
        samples = Samples(system.worker.pid, every=max(10, steps // 40))
        kept: list[Event] = []
        async for event in system.client.events("s", until_turn=1):
            if event.type == "step_finished":
                samples.look(event)
            if event.type in ("step_started", "compacted", "turn_finished", "status"):
                kept.append(event)
        assert kept[-1].body["outcome"] == "completed"
        assert kept[-1].body["steps"] == steps + 1
        whole(await messages_of(system, "s"), steps)
        compacted = sum(event.type == "compacted" for event in kept)
        done = [line for line in system.model_calls() if line["event"] == "completed"]
        assert len(done) == steps + 1 + compacted
        return kept, samples, await run_lengths(system, "s")


async def test_sixty_steps_under_a_small_window_end_with_summaries_and_new_runs(
    tmp_path: Path, temporal: Path, preloaded: Preloaded
) -> None:
    events, _, runs = await conversation(
        tmp_path, temporal, preloaded, 60, 4000, EVERTURN_HISTORY_EVENTS_MAX="30"
    )
    assert sum(event.type == "compacted" for event in events) > 2
    assert len(runs) > 2
    assert all(
        event.body["context_tokens"] < 4000 for event in events if event.type == "step_started"
    )


@pytest.mark.long
async def test_two_thousand_steps_under_a_window_of_32k_take_no_more_at_their_end(
    tmp_path: Path, temporal: Path, preloaded: Preloaded
) -> None:
    steps, window = 2000, 32_000
    # Its 2,400 events would fit into one run: the server suggests a new one after 4,096.
    events, samples, runs = await conversation(
        tmp_path, temporal, preloaded, steps, window, EVERTURN_HISTORY_EVENTS_MAX="500"
    )

    started = [event.body["context_tokens"] for event in events if event.type == "step_started"]
    compacted = sum(event.type == "compacted" for event in events)
    early, late = samples.cpu_a_step(200, 600), samples.cpu_a_step(1600, 2000)
    warm, end = samples.at(400).rss_mb, samples.taken[-1].rss_mb
    print(
        f"\n{compacted} compactions; requests up to {max(started):,} tokens of {window:,};"
        f"\nthe worker's memory: {warm:.0f} MB at step 400, {end:.0f} MB at the end, at most"
        f" {max(sample.rss_mb for sample in samples.taken):.0f} MB;"
        f"\nits CPU: {early:.1f} ms a step from 200 to 600, {late:.1f} ms from 1600 to 2000;"
        f"\nruns, each with its events and bytes of history: {runs}"
    )
    assert max(started) < window
    assert compacted >= 20
    assert len(runs) >= 3
    assert all(count < 1000 and size < 2**20 for count, size in runs)
    assert end < warm * 1.1 + 5
    assert late < early * 1.3


@pytest.mark.parametrize(
    ("side", "asked"), [("after", 1), pytest.param("before", 2, marks=pytest.mark.long)]
)
async def test_a_summary_that_is_committed_is_not_paid_for_again_after_a_kill(
    tmp_path: Path, temporal: Path, preloaded: Preloaded, side: str, asked: int
) -> None:
    async with ticking(tmp_path, temporal, preloaded, 14, 4000) as system:
        await system.start(("model", "api"))
        environment = {**system.worker.environment, "EVERTURN_TEST_COMPACTION": side}
        killed = system.program("killed", (KILLING,), environment)
        await killed.launch()
        await killed.ready()
        await system.client.create_session("s", workspace=str(system.workspace))
        await system.client.send("s", "Tick until it is enough.", id="m")
        await killed.ended(30)
        await system.worker.launch()
        await system.worker.ready()

        events = [event async for event in system.client.events("s", until_turn=1)]

        assert events[-1].body["outcome"] == "completed"
        whole(await messages_of(system, "s"), 14)
        assert [event.type for event in events].count("compacted") == 1
        assert [event.type for event in events].count("compaction_started") == 1
        done = [line for line in system.model_calls() if line["event"] == "completed"]
        assert len(done) == 15 + asked
