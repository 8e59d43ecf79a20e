"""SIGKILL of a worker right before and right after each of its commits to the store.

Between two commits a worker changes nothing that another process sees, but for what models
and tools are asked: so these are all the moments there are. The cases wait for time-outs
most of the time, and so run side by side on one Temporal server, each with a home, a store
and a queue of its own.
"""

import asyncio
from pathlib import Path

import pytest
from evidence import Evidence
from systems import (
    SECONDS,
    SHORT,
    Plan,
    Program,
    StartSystem,
    System,
    final_text,
    prompt,
    until,
    until_async,
)

from everturn.events import Event
from everturn.messages import user_text
from everturn.session import SessionKey
from everturn_activities.store import Inbound, SessionSettings
from everturn_workers.front import Front
from everturn_workers.runtime import Runtime, open_runtime
from everturn_workers.settings import Settings
from everturn_workers.temporal import TemporalWaker, connect

KILLING = str(Path(__file__).with_name("killing_worker.py"))
COMMITS_MAX = 60
AT_ONCE = 4
PLAN = Plan(token_ms=5, steps=SHORT)


class Case:
    """One turn on a home of its own."""

    def __init__(self, system: System, name: str) -> None:
        self.name = name
        self.key = SessionKey("default", name)
        self.system = system
        assert system.temporal is not None
        self.settings = Settings(
            home=system.folder / "homes" / name,
            temporal_address=system.temporal.address,
            task_queue=f"queue-{name}",
            placement=system.placement,
        )

    def worker(self, module: str, **variables: str) -> Program:
        environment = {
            **self.system.worker.environment,
            "EVERTURN_HOME": str(self.settings.home),
            "EVERTURN_TASK_QUEUE": self.settings.task_queue,
            **variables,
        }
        flags = ("worker",) if module == "everturn_workers.cli" else ()
        return self.system.program(f"{self.name}", (module, *flags), environment)

    async def worked(self, moment: str) -> tuple[int, Evidence]:
        """Work a turn with a worker that is killed at `moment`, and then with a sound one.

        The number of commits that the killed one came to, and all that is known of the turn.
        """
        async with open_runtime(self.settings) as runtime:
            waker = TemporalWaker(await connect(self.settings), self.settings)
            folder = str(self.system.workspace)
            await runtime.store.create_session(self.key, SessionSettings(folder, folder))
            inbound = Inbound("m1", "message", user_text(prompt(self.name)))
            await Front(runtime.store, waker).accept(self.key, inbound)
            watching = asyncio.create_task(self._watched(runtime))

            killed = self.worker(KILLING, EVERTURN_TEST_COMMIT=moment)
            await killed.launch()
            await until(lambda: not killed.running or watching.done())
            commits = sum(line.startswith("commit ") for line in killed.log.lines())
            if killed.running:
                await killed.kill()
            sound = self.worker("everturn_workers.cli")
            await sound.launch()
            await sound.ready()
            watched = await asyncio.wait_for(watching, SECONDS)
            await until_async(lambda: self._closed(waker))
            assert await sound.stop() == 0
            return commits, await self._evidence(runtime, watched)

    async def _closed(self, waker: TemporalWaker) -> bool:
        return await waker.open_run(self.key.workflow_id) is None

    async def _watched(self, runtime: Runtime) -> list[Event]:
        seen: list[Event] = []
        async for batch in runtime.events.watch(self.key, (1, 0)):
            seen += batch
            if any(event.type == "turn_finished" for event in batch):
                break
        return seen

    async def _evidence(self, runtime: Runtime, watched: list[Event]) -> Evidence:
        views = await runtime.store.messages(self.key, 0, 100)
        return Evidence(
            session=self.name,
            prompt=prompt(self.name),
            final=final_text(self.name),
            steps=PLAN.steps,
            events=await runtime.events.read(self.key, (1, 0), 10_000),
            watched=watched,
            messages=[(view.step, view.message) for view in views],
            model=self.system.model_calls(),
            effects=self.system.effects(),
        )


async def problems_at_commits(system: System, side: str, stride: int) -> tuple[int, list[str]]:
    """How many commits were met, and what is broken after a kill at them."""
    numbers = iter(range(1, COMMITS_MAX, stride))
    problems: list[str] = []
    met = 0
    more = True

    async def work() -> None:
        nonlocal met, more
        while more:
            number = next(numbers)
            try:
                commits, evidence = await Case(system, f"n{number}").worked(f"{side}:{number}")
            except TimeoutError:
                problems.append(f"n{number}: the turn did not end")
                continue
            problems.extend(evidence.problems())
            if max(evidence.completed()) > 2:
                problems.append(f"n{number}: replies completed {evidence.completed()} times")
            met = max(met, min(commits, number))
            more = more and commits >= number

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return met, problems


@pytest.mark.parametrize(
    ("placement", "side", "stride"),
    [
        ("inline", "before", 3),
        ("queued", "after", 4),
        pytest.param("inline", "before", 1, marks=pytest.mark.long),
        pytest.param("inline", "after", 1, marks=pytest.mark.long),
        pytest.param("queued", "before", 1, marks=pytest.mark.long),
        pytest.param("queued", "after", 1, marks=pytest.mark.long),
    ],
)
async def test_a_turn_survives_a_kill_at_each_of_its_commits(
    start_system: StartSystem, placement: str, side: str, stride: int
):
    plans = {f"n{number}": PLAN for number in range(1, COMMITS_MAX)}
    system = await start_system(plans, placement, parts=("model",))

    met, problems = await problems_at_commits(system, side, stride)

    assert problems == []
    # Each step begins, ends and is followed by another, and tools begin and end.
    assert met >= 10
