"""Schedules on a real Temporal: what is set fires, is kept equal, and is lost by nobody."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from harness import SECONDS, Bench, bench, calls, eventually, says, scripted
from temporalio.client import ScheduleDescription
from temporalio.service import RPCError

from everturn.approvals import ToolVerdict
from everturn.schedules import ChangeSchedule, Definition, RunView, ScheduleView
from everturn_activities import cron
from everturn_activities.store import Inbound
from everturn_workers.kept_schedules import KeptSchedules


@pytest.fixture
async def quick(server_address: str, tmp_path: Path, workspace: Path) -> AsyncIterator[Bench]:
    """Where schedules may fire each second."""
    home = tmp_path / "home"
    async with bench(server_address, home, workspace, schedule_seconds_min=1) as made:
        yield made
        for view in await made.runtime.schedules.schedules(made.tenant):
            await made.waker.forget_schedule(made.tenant, view.name)


async def add(made: Bench, **given: object) -> ScheduleView:
    said = {"prompt": "What is new?", "session": "s", **given}
    if "cron" not in said:
        said.setdefault("every_seconds", 1)
    definition = Definition.model_validate(said)
    view, told = await made.runtime.schedules.add(made.tenant, "news", definition)
    assert await KeptSchedules(made.runtime.schedules, made.waker).tell_soon(told) is None
    return view


async def runs(made: Bench, state: str, count: int) -> list[RunView]:
    """The runs of that state, oldest first, once there are so many."""
    async with asyncio.timeout(SECONDS):
        while True:
            view = await made.runtime.schedules.schedule(made.tenant, "news", 1)
            found = [run for run in reversed(view.runs) if run.state == state]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.05)


async def described(made: Bench) -> ScheduleDescription:
    return await made.client.get_schedule_handle(f"c/{made.tenant}/news").describe()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(SECONDS):
        while not await holds():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def until_gone(made: Bench) -> None:
    async def gone() -> bool:
        try:
            await described(made)
        except RPCError:
            return True
        return False

    await until(gone)


async def test_a_schedule_sends_its_message_and_its_turns_are_worked(quick: Bench) -> None:
    key = await quick.session()
    await add(quick, runs_max=2)
    async with quick.worker(scripted(says("done"))):
        await quick.until(key, "turn_finished", 2)
        first, second = await runs(quick, "sent", 2)
        assert second.at - first.at >= 1
        assert [first.turn, second.turn] == [1, 2]
        assert first.outcome == "completed"
        # It has sent all that it was to, and Temporal is told so.

        async def paused() -> bool:
            return (await described(quick)).schedule.state.paused

        await until(paused)


async def test_no_prompt_enters_temporal(quick: Bench) -> None:
    await quick.session()
    await add(quick, prompt="The very secret words", every_seconds=3600)
    assert "secret words" not in str((await described(quick)).raw_description)


async def test_temporal_fires_at_the_times_that_are_shown(quick: Bench) -> None:
    await quick.session()
    zone = {"time_zone": "Europe/Berlin"}
    view = await add(quick, cron=["*/7 3-5 * * *", "30 12 * * *"], **zone)
    coming = [at.timestamp() for at in (await described(quick)).info.next_action_times]
    assert coming[0] <= view.next[0]
    within = [at for at in view.next if at <= coming[-1]]
    assert set(within) <= set(coming)
    assert coming == sorted(coming)


async def test_a_change_reaches_temporal_and_a_removal_too(quick: Bench) -> None:
    await quick.session()
    view = await add(quick, every_seconds=3600)
    coming = (await described(quick)).info.next_action_times
    assert coming[0].timestamp() == view.next[0]
    schedules = quick.runtime.schedules
    keeper = KeptSchedules(schedules, quick.waker)
    _, told = await schedules.change(quick.tenant, "news", ChangeSchedule(paused=True))
    await keeper.tell_soon(told)
    assert (await described(quick)).schedule.state.paused
    _, told = await schedules.change(quick.tenant, "news", ChangeSchedule(every_seconds=60))
    await keeper.tell_soon(told)
    interval = (await described(quick)).schedule.spec.intervals[0]
    assert interval.every.total_seconds() == 60
    await keeper.tell_soon(await schedules.remove(quick.tenant, "news"))
    await until_gone(quick)


async def test_what_a_crash_left_untold_the_reconciler_tells(quick: Bench) -> None:
    key = await quick.session()
    given = Definition(prompt="x", session="s", every_seconds=1, runs_max=1)
    await quick.runtime.schedules.add(quick.tenant, "news", given)
    async with quick.worker(scripted(says("done"))):
        await quick.until(key, "turn_finished", 1)
    async with quick.worker(scripted(says("done"))):
        await quick.runtime.schedules.remove(quick.tenant, "news")
        await until_gone(quick)


async def test_a_schedule_that_temporal_lost_is_made_anew_and_its_missed_times_made_up_for(
    quick: Bench,
) -> None:
    await quick.session()
    view = await add(quick, every_seconds=1, overlap="queue")
    await quick.waker.forget_schedule(quick.tenant, "news")
    await until_gone(quick)
    await eventually(lambda: time.time() > view.next[2])
    async with quick.worker(scripted(says("done"))):

        async def made_up_for() -> bool:
            return set(view.next[:3]) <= {run.at for run in await runs(quick, "sent", 3)}

        await until(made_up_for)
        await described(quick)


async def test_what_the_store_knows_nothing_of_is_taken_out_of_temporal(quick: Bench) -> None:
    await quick.session()
    await add(quick, every_seconds=1)
    (told,) = await quick.runtime.schedules.known()
    removed = await quick.runtime.schedules.remove(quick.tenant, "news")
    await quick.runtime.schedules.told(removed)
    assert told.name == "news"
    async with quick.worker(scripted(says("done"))):
        await until_gone(quick)


# The tool of agents.


def free_to_schedule(workspace: Path) -> None:
    (workspace / "agents").mkdir()
    (workspace / "agents" / "default.md").write_text("---\nallowed_tools: [cron]\n---\nBe brief.")


ADD = {"name": "report", "prompt": "Look again.", "every": "2h", "runs_max": 5}


async def test_an_agent_schedules_itself_once_a_person_has_given_leave(made: Bench) -> None:
    key = await made.session()
    script = scripted(calls("cron", action="add", **ADD), calls("cron", action="list"), says("ok"))
    async with made.worker(script):
        await made.send(key, "remind yourself")
        asked = (await made.until(key, "approval_asked", 1))[-1]
        assert "each 2h, 5 times at most. It says: Look again." in asked.body["preview"]
        assert await made.runtime.schedules.schedules(made.tenant) == []
        verdict = ToolVerdict(approval=1, verdict="approve", digest=asked.body["digest"])
        await made.front.accept(key, Inbound("yes", "approval", approval=verdict))
        await made.until(key, "turn_finished", 1)
    (view,) = await made.runtime.schedules.schedules(made.tenant)
    assert (view.session, view.made_by, view.prompt, view.runs_max) == ("s", "s", "Look again.", 5)
    added, listed = [
        message.results[0].text for message in await made.transcript(key) if message.role == "tool"
    ]
    assert added.startswith(
        f"Schedule report is set. Next: {cron.shown(view.next[0], 'UTC')}, then"
    )
    assert "report (active, set by you): each 2h." in listed
    await made.waker.forget_schedule(made.tenant, "report")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({**ADD, "every": "5s"}, "each 5s fires more often than is allowed, which is once in 1m"),
        ({**ADD, "every": ""}, "either 'cron' or 'every'"),
        ({**ADD, "every": "", "cron": "nonsense"}, "has 1 fields and must have 5"),
        ({**ADD, "name": "../x"}, "The schedule name '../x' is not possible"),
        ({**ADD, "prompt": " "}, "The prompt is empty"),
    ],
)
async def test_a_schedule_that_is_not_possible_is_told_to_the_model(
    made: Bench, workspace: Path, arguments: dict[str, object], said: str
) -> None:
    free_to_schedule(workspace)
    key = await made.session()
    async with made.worker(scripted(calls("cron", action="add", **arguments), says("ok"))):
        await made.send(key, "go")
        await made.until(key, "turn_finished", 1)
    (result,) = [m.results[0] for m in await made.transcript(key) if m.role == "tool"]
    assert (result.failed, said in result.text) == (True, True), result.text
    assert await made.runtime.schedules.schedules(made.tenant) == []


async def test_an_agent_sees_and_removes_only_what_is_of_its_session(
    made: Bench, workspace: Path
) -> None:
    free_to_schedule(workspace)
    key = await made.session()
    await made.session("other")
    for name, session, by in (("mine", "s", "s"), ("hers", "s", None), ("far", "other", "other")):
        given = Definition(prompt="x", session=session, every_seconds=3600, made_by=by)
        await made.runtime.schedules.add(made.tenant, name, given)
    removals = [calls("cron", action="remove", name=name) for name in ("mine", "hers", "far")]
    async with made.worker(scripted(calls("cron", action="list"), *removals, says("ok"))):
        await made.send(key, "go")
        await made.until(key, "turn_finished", 1)
        kept = {one.name for one in await made.runtime.schedules.schedules(made.tenant)}
    listed, mine, hers, far = [
        m.results[0].text for m in await made.transcript(key) if m.role == "tool"
    ]
    assert "mine (active, set by you)" in listed
    assert "hers (active, set by a person)" in listed
    assert "far" not in listed
    assert mine == "Schedule mine is removed."
    assert "is none that this session's agent has set" in hers
    assert "is none that this session's agent has set" in far
    assert kept == {"hers", "far"}
    for name in kept:
        await made.waker.forget_schedule(made.tenant, name)
