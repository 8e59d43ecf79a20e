"""Swarms: many items, each a turn of a session of its own, as coroutines of shards."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from harness import Bench, calls, eventually, says, scripted
from temporalio.client import WorkflowExecutionStatus

from everturn.approvals import ToolVerdict
from everturn.budgets import Budget
from everturn.events import Event
from everturn.session import SessionKey
from everturn.swarm_views import ItemView, SwarmView
from everturn.swarms import BeginItem, SwarmSpec, SwarmStart
from everturn_activities.store import Inbound, SessionSettings
from everturn_activities.store.sql_swarms import SqlSwarms
from everturn_activities.store.swarm_items import Opened
from everturn_workers import discreet
from everturn_workers.reconciler import Reconciler

CACHED = {"workflows_cached": 100}


async def begin(
    made: Bench, items: list[dict[str, Any]], last: bool = True, **spec: Any
) -> SessionKey:
    key, folder = made.key("w"), str(made.workspace)
    spec_of = SwarmSpec(**{"prompt": "Do {task}.", **spec})
    settings = SessionSettings(folder, folder, spec_of.agent, spec_of.model)
    await made.runtime.swarms.create(key, spec_of, settings, items, last)
    await made.waker.wake_swarm(key)
    return key


def tasks(count: int) -> list[dict[str, Any]]:
    return [{"task": f"task {n}", "id": f"i{n}"} for n in range(1, count + 1)]


def answers(count: int, **more: Any) -> dict[str, Any]:
    return {rf"^Do task {n}\.$": [says(f"did {n}", **more)] for n in range(1, count + 1)}


async def until(made: Bench, key: SessionKey, holds: Any) -> SwarmView:
    async with asyncio.timeout(30):
        while not holds(view := await made.runtime.swarms.swarm(key)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return view


async def done(made: Bench, key: SessionKey) -> SwarmView:
    return await until(made, key, lambda view: view.state == "done")


async def results(made: Bench, key: SessionKey) -> list[ItemView]:
    return await made.runtime.swarms.items(key, 0, 1000, None)


@pytest.fixture
def _nobody_makes_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be done at once is not left to those who make up for crashes."""

    async def nothing(self: Reconciler) -> None:
        pass

    for name in ("tend_swarms", "wake_sleepers", "revive"):
        monkeypatch.setattr(Reconciler, name, nothing)


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_each_item_is_worked_by_a_session_of_its_own(made):
    async with made.worker(scripted(by_last_user=answers(30)), **CACHED):
        key = await begin(made, tasks(30), width=28)
        view = await done(made, key)

    items = await results(made, key)
    assert [item.text for item in items] == [f"did {n}" for n in range(1, 31)]
    assert [item.id for item in items] == [f"i{n}" for n in range(1, 31)]
    assert {(item.state, item.attempts, item.steps) for item in items} == {("done", 1, 1)}
    assert (view.counts.done, view.reason, view.cost_usd > 0) == (30, None, True)
    ended = await made.runtime.swarms.results(key, 0, 100)
    assert [item.settled for item in ended] == list(range(1, 31))
    told = await made.events(made.key("w:4"))
    assert told[-1].type == "turn_finished"
    # They are listed below their swarm, and nowhere else.
    assert await made.runtime.store.sessions(made.tenant, 100, None) == []
    below = await made.runtime.store.sessions(made.tenant, 100, None, "w")
    assert {view.id for view in below} == {f"w:{n}" for n in range(1, 31)}
    assert {view.parent for view in below} == {"w"}


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_so_many_items_are_worked_at_once_and_no_more(made):
    model = scripted(
        by_last_user={rf"^Do task {n}\.$": [says("done", hold=f"held {n}")] for n in range(1, 6)}
    )
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(5), width=2)
        for n in range(1, 6):
            await model.reached(f"held {n}")
            view = await made.runtime.swarms.swarm(key)
            assert view.counts.running <= 2
            assert view.counts.running + view.counts.done + view.counts.waiting == 5
            if n > 1:
                model.release(f"held {n - 1}")
        model.release("held 5")
        await done(made, key)


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_items_of_many_steps_run_their_tools_in_the_shard(made):
    model = scripted(
        calls("add", a=1, b=2), calls("slow", seconds=0.01), calls("add", a=2, b=3), says("done")
    )
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(6), width=3)
        await done(made, key)

    assert {(item.text, item.steps) for item in await results(made, key)} == {("done", 4)}
    # None of them was left to a workflow of its own.
    assert await made.waker.open_run(made.key("w:1").workflow_id) is None


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_an_item_is_steered_while_its_shard_runs(made):
    model = scripted(
        by_last_user={
            r"^Do task 1\.$": [calls("slow", seconds=0.3), says("as first said")],
            "^Rather": [says("as said later")],
            "^Do": [says("done")],
        }
    )
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(2), width=2)
        item = made.key("w:1")
        await eventually(lambda: (made.workspace / "slow.began").exists())
        await made.send(item, "Rather so.", "steer")
        await done(made, key)

    first, second = await results(made, key)
    assert (first.text, second.text) == ("as said later", "done")
    joined = [event for event in await made.events(item) if event.type == "message_admitted"]
    assert [event.step for event in joined] == [1, 2]


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_one_item_is_cancelled_and_the_others_go_on(made):
    model = scripted(
        by_last_user={r"^Do task 1\.$": [says("never", hold="held")], "^Do": [says("done")]}
    )
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(3), width=3)
        await model.reached("held")
        await made.cancel(made.key("w:1"))
        view = await done(made, key)

    first, *others = await results(made, key)
    assert (first.state, first.outcome) == ("cancelled", "cancelled")
    assert {item.state for item in others} == {"done"}
    assert (view.counts.cancelled, view.counts.done) == (1, 2)


def agent(workspace: Path, name: str = "default", **fields: str) -> None:
    (workspace / "agents").mkdir(exist_ok=True)
    lines = "".join(f"{name}: {value}\n" for name, value in fields.items())
    (workspace / "agents" / f"{name}.md").write_text(f"---\n{lines}---\nBe brief.")


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_an_item_asks_for_leave_as_any_session_does(made, workspace):
    agent(workspace, approvals="{tools: [echo]}")
    model = scripted(calls("echo", text="hello"), says("done"))
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(2), width=2)
        await until(made, key, lambda view: view.counts.running == 2)
        for name in ("w:1", "w:2"):
            await made.until(made.key(name), "approval_asked")
        asked = await made.runtime.store.approvals(made.tenant, None)
        assert {view.session for view in asked} == {"w:1", "w:2"}
        for view, verdict in zip(asked, ("approve", "deny"), strict=True):
            said = ToolVerdict(approval=view.approval, verdict=verdict, digest=view.digest)
            inbound = Inbound(f"v{view.session}", "approval", approval=said)
            await made.front.accept(made.key(view.session), inbound)
        await done(made, key)

    assert [item.state for item in await results(made, key)] == ["done", "done"]


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_a_paused_swarm_begins_nothing_until_it_is_resumed(made):
    model = scripted(
        by_last_user={r"^Do task 1\.$": [says("first", hold="held")], "^Do": [says("later")]}
    )
    swarms = made.runtime.swarms
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(4), width=1)
        await model.reached("held")
        assert (await swarms.pause(key)).state == "paused"
        model.release("held")
        view = await until(made, key, lambda view: view.counts.done == 1)
        await asyncio.sleep(0.3)
        assert (await swarms.swarm(key)).counts.waiting == 3
        assert view.state == "paused"
        await swarms.resume(key, retry_failed=False)
        await made.waker.wake_swarm(key)
        await done(made, key)

    assert [item.state for item in await results(made, key)] == ["done"] * 4


@pytest.mark.usefixtures("_nobody_makes_up")
@pytest.mark.parametrize("kept_from_its_end", ["paused", "open"])
async def test_a_swarm_that_could_not_end_yet_is_done_with_its_last_item(made, kept_from_its_end):
    model = scripted(
        by_last_user={"1": [says("done", hold="first")], "2": [says("done", hold="last")]}
    )
    swarms, is_open = made.runtime.swarms, kept_from_its_end == "open"
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(2), width=2, last=not is_open)
        await model.reached("first")
        await model.reached("last")
        if not is_open:
            await swarms.pause(key)
        model.release("first")
        await until(made, key, lambda view: view.counts.done == 1)
        # By now the shard has asked for more, and waits to be told.
        await asyncio.sleep(0.3)
        if is_open:
            await swarms.add(key, 3, [], True)
        else:
            await swarms.resume(key, retry_failed=False)
        await made.waker.wake_swarm(key)
        await asyncio.sleep(0.3)
        model.release("last")
        view = await done(made, key)

    assert view.counts.done == 2


@pytest.mark.usefixtures("_nobody_makes_up")
@pytest.mark.parametrize("stopped", ["cancelled", "quorum", "deadline"])
async def test_a_swarm_stops_before_its_end_and_says_why(made, stopped):
    model = scripted(
        by_last_user={
            r"^Do task 1\.$": [says("first", hold="first")],
            r"^Do task 2\.$": [says("never", hold="second")],
            "^Do": [says("later")],
        }
    )
    how = {"cancelled": {}, "quorum": {"quorum": 1}, "deadline": {"deadline_seconds": 1.5}}
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(5), width=2, **how[stopped])
        await model.reached("first")
        await model.reached("second")
        if stopped == "quorum":
            model.release("first")
        elif stopped == "cancelled":
            await made.runtime.swarms.cancel(key)
            await made.waker.wake_swarm(key)
        view = await done(made, key)

    first, second, *others = await results(made, key)
    assert view.reason == stopped
    assert first.state == ("done" if stopped == "quorum" else "cancelled")
    assert second.state == "cancelled"
    assert {item.state for item in others} == {"skipped"}
    why = {
        "cancelled": "The swarm was cancelled.",
        "quorum": "Enough items had completed.",
        "deadline": "The swarm's deadline had passed.",
    }
    assert {item.reason for item in others} == {why[stopped]}


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_more_than_a_quorum_is_worked_when_that_is_asked_for(made):
    async with made.worker(scripted(says("done")), **CACHED):
        key = await begin(made, tasks(4), width=1, quorum=2)
        stopped = await done(made, key)
        await made.runtime.swarms.resume(key, retry_failed=True)
        await made.waker.wake_swarm(key)
        resumed = await done(made, key)

    assert (stopped.reason, stopped.counts.done, stopped.counts.skipped) == ("quorum", 2, 2)
    assert (resumed.reason, resumed.counts.done) == (None, 4)


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_an_item_that_cannot_be_opened_fails_with_the_reason_and_no_other(made, monkeypatch):
    monkeypatch.setattr(discreet, "FAULTS_MAX", 2)
    opened = SqlSwarms.open_item

    async def faulty(self: SqlSwarms, request: BeginItem) -> Opened:
        if request.item.n == 2:
            raise ZeroDivisionError("with words of a person")
        return await opened(self, request)

    monkeypatch.setattr(SqlSwarms, "open_item", faulty)
    async with made.worker(scripted(says("done")), **CACHED):
        # Of the name that the item's session would have, and nothing of the swarm's.
        theirs = await made.session("w:2")
        key = await begin(made, tasks(3), width=1)
        await done(made, key)

    one, two, three = await results(made, key)
    assert (one.state, two.state, three.state) == ("done", "failed", "done")
    assert two.reason is not None
    assert "Everturn itself failed at it again and again: ZeroDivisionError" in two.reason
    assert (await made.runtime.store.session(theirs)).turn == 0


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_a_spent_budget_stops_the_swarm_and_is_never_passed(made):
    async with made.worker(scripted(says("done")), **CACHED):
        key = await begin(made, tasks(8), width=2, budget=Budget(steps=3))
        view = await done(made, key)

    assert view.reason == "budget"
    assert view.counts.done == 3
    assert view.counts.failed + view.counts.skipped + view.counts.cancelled == 5
    refused = next(item for item in await results(made, key) if item.state == "failed")
    assert refused.reason is not None
    assert "The budget of session w allows 3 steps; 3 steps spent." in refused.reason


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_a_straggler_is_worked_beside_and_the_first_answer_counts(made, workspace):
    agent(workspace, tools="[echo]")
    model = scripted(by_last_user={**answers(6), r"^Do task 3\.$": [says("did 3", stall_after=0)]})
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(6), width=3, hedge=2.0)
        view = await done(made, key)
        # The one that answers nothing is cancelled, without which it would stall for a minute.
        told = await made.until(made.key("w:3"), "turn_finished")

    item = (await results(made, key))[2]
    assert (item.state, item.text, item.session, item.attempts) == ("done", "did 3", "w:3h", 1)
    assert view.counts.done == 6
    assert told[-1].body["outcome"] == "cancelled"
    assert len(model.requests) == 7


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_an_agent_that_may_act_on_something_works_each_item_once(made):
    model = scripted(by_last_user={**answers(4), r"^Do task 4\.$": [says("did 4", hold="held")]})
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(4), width=4, hedge=2.0)
        await until(made, key, lambda view: view.counts.done == 3)
        await asyncio.sleep(2.5)
        model.release("held")
        await done(made, key)

    assert len(model.requests) == 4


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_results_are_reduced_to_one_as_a_tree(made, workspace):
    agent(workspace, "joiner")
    model = scripted(by_last_user={"^Join": [says("joined")], **answers(5)})
    async with made.worker(model, **CACHED):
        key = await begin(
            made, tasks(5), width=5, reduce="joiner", reduce_prompt="Join:\n{results}", fan_in=2
        )
        view = await done(made, key)

    assert (view.text, view.reducing) == ("joined", 3)
    asked = [str(one.messages[-1]) for one in model.requests if "Join:" in str(one.messages[-1])]
    assert len(asked) == 3 + 2 + 1
    assert sum("## i1\\ndid 1\\n\\n## i2\\ndid 2" in one for one in asked) == 1
    # What it made is not among the items.
    assert len(await results(made, key)) == view.counts.done == 5


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_what_was_reduced_but_for_a_part_is_no_result(made, workspace):
    agent(workspace, "joiner")
    refused = [says("no", status=400, times=99)]
    model = scripted(by_last_user={"## i3": refused, "## i1": [says("joined")], **answers(4)})
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(4), width=4, reduce="joiner", fan_in=2)
        view = await done(made, key)

    assert (view.text, view.reducing, view.counts.done) == (None, 1, 4)


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_items_that_failed_are_worked_again_when_that_is_asked_for(made, workspace):
    agent(workspace, "joiner")
    model = scripted(
        by_last_user={
            r"^Do task 2\.$": [says("2", status=400)],
            "^Do": [says("done")],
            "## i2": [says("all three")],
            "## i3": [says("two")],
        }
    )
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(3), width=3, reduce="joiner")
        first = await done(made, key)
        assert (first.counts.failed, first.text) == (1, "two")
        _, failed, _ = await results(made, key)
        assert (failed.state, failed.outcome) == ("failed", "model_failed")
        await made.runtime.swarms.resume(key, retry_failed=True)
        await made.waker.wake_swarm(key)
        second = await done(made, key)

    _, again, _ = await results(made, key)
    assert (again.state, again.attempts, again.session) == ("done", 2, "w:2-2")
    # What was made of too few is made anew.
    assert second.text == "all three"
    assert len(model.requests) == 4 + 2


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_an_item_is_tried_as_often_as_the_swarm_says(made):
    model = scripted(by_last_user={"^Do": [says("no", status=400, times=99)]})
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(1), width=1, attempts_max=3)
        await done(made, key)

    (item,) = await results(made, key)
    assert (item.state, item.attempts, item.session) == ("failed", 3, "w:1-3")
    assert len(model.requests) == 3


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_a_shard_goes_on_as_a_new_run_with_the_items_under_way(made):
    model = scripted(*[calls("slow", seconds=0.05)] * 3, says("done"))
    made.waker._settings = made.settings.model_copy(update={"history_events_max": 20})
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(8), width=3)
        await done(made, key)
        query = f"WorkflowType = 'SwarmShard' AND WorkflowId STARTS_WITH '{_id(key)}'"
        runs = [found.status async for found in made.client.list_workflows(query)]

    assert {(item.state, item.steps) for item in await results(made, key)} == {("done", 4)}
    assert WorkflowExecutionStatus.CONTINUED_AS_NEW in runs
    assert len(model.requests) == 8 * 4
    # It was handed on, not lost: nothing is said of it.
    told = [event.body.get("text") for n in range(1, 9) for event in await _told(made, n)]
    assert not any("lost its workflow" in text for text in told if text)


async def _told(made: Bench, n: int) -> list[Event]:
    return [event for event in await made.events(made.key(f"w:{n}")) if event.type == "status"]


def _id(key: SessionKey) -> str:
    return SwarmStart(key.tenant, key.session).workflow_id


async def test_a_swarm_whose_workflows_are_lost_goes_on_from_the_store(made, monkeypatch):
    monkeypatch.setattr("everturn_workers.reconciler.HOSTLESS_SECONDS", 0.2)
    model = scripted(
        by_last_user={
            r"^Do task [12]\.$": [calls("add", a=1, b=2), says("held", hold="held")],
            "^Do": [says("done")],
        }
    )
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(6), width=2)
        await model.reached("held")
        # Its shards end with it.
        await made.client.get_workflow_handle(_id(key)).terminate()
        model.release("held")
        await done(made, key)

    assert [item.state for item in await results(made, key)] == ["done"] * 6
    assert {item.attempts for item in await results(made, key)} == {1}
    # Two model calls of an item that was under way, and one of any other; none twice.
    assert len(model.requests) == 2 * 2 + 4


async def test_what_a_lost_shard_had_taken_is_taken_by_another(made, monkeypatch):
    monkeypatch.setattr("everturn_workers.reconciler.HOSTLESS_SECONDS", 0.2)
    model = scripted(
        by_last_user={r"^Do task [34]\.$": [says("held", hold="held")], "^Do": [says("done")]}
    )
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(8), width=2)
        await model.reached("held")
        await until(made, key, lambda view: view.counts.running == 2 and view.counts.done == 2)
        hosted = await made.runtime.store.open_hosts(-1.0, None, 10)
        (shard,) = {wake.host_workflow_id for wake, _ in hosted}
        await made.client.get_workflow_handle(shard).terminate()
        model.release("held")
        await done(made, key)

    assert {(item.state, item.attempts) for item in await results(made, key)} == {("done", 1)}


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_items_that_are_under_way_when_no_other_waits_go_on_in_the_shards_next_run(made):
    model = scripted(*[calls("slow", seconds=0.05)] * 6, says("done"))
    made.waker._settings = made.settings.model_copy(update={"history_events_max": 20})
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(3), width=5)
        await done(made, key)

    assert {(item.state, item.steps) for item in await results(made, key)} == {("done", 7)}
    told = [event.body.get("text") for n in range(1, 4) for event in await _told(made, n)]
    assert not any("lost its workflow" in text for text in told if text)


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_an_item_that_waits_for_a_person_holds_up_no_other_of_its_shard(made, workspace):
    agent(workspace, approvals="{tools: [echo]}")
    model = scripted(
        by_last_user={
            r"^Do task 1\.$": [calls("echo", text="hello"), says("with leave")],
            "^Do": [calls("slow", seconds=0.02), calls("slow", seconds=0.03), says("done")],
        }
    )
    made.waker._settings = made.settings.model_copy(update={"history_events_max": 20})
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(9), width=2)
        view = await until(made, key, lambda view: view.counts.done == 8)
        (asked,) = await made.runtime.store.approvals(made.tenant, None)
        said = ToolVerdict(approval=asked.approval, verdict="approve", digest=asked.digest)
        await made.front.accept(
            made.key(asked.session), Inbound("verdict", "approval", approval=said)
        )
        await done(made, key)

    assert view.state == "running"
    assert (await results(made, key))[0].text == "with leave"


async def test_an_item_is_tried_again_while_another_still_works(made):
    model = scripted(
        by_last_user={
            r"^Do task 1\.$": [says("held", hold="held")],
            r"^Do task 2\.$": [says("no", status=400), says("never")],
            "^Do": [says("done")],
        }
    )
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(3), width=30, attempts_max=2)
        await model.reached("held")
        view = await until(made, key, lambda view: view.counts.done == 2)
        assert view.counts.running == 1
        model.release("held")
        await done(made, key)

    assert (await results(made, key))[1].attempts == 2


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_what_could_not_be_reduced_is_reduced_when_that_is_asked_for(made, workspace):
    agent(workspace, "joiner")
    model = scripted(by_last_user={"^Make one": [says("one", status=400)], **answers(2)})
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(2), width=2, reduce="joiner")
        assert (await done(made, key)).text is None
        await made.runtime.swarms.resume(key, retry_failed=True)
        await made.waker.wake_swarm(key)
        view = await done(made, key)

    assert (view.text, view.counts.done) == ("one", 2)
    # Two items, each once, and two tries at making one of them.
    assert len(model.requests) == 4


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_what_a_person_had_said_to_an_item_does_not_outlive_the_end_of_its_swarm(made):
    model = scripted(by_last_user={"^Do": [says("never", hold="held")], "^More": [says("late")]})
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(1), width=1)
        await model.reached("held")
        # Under the id that the end itself once used.
        await made.send(made.key("w:1"), "More of it.", message_id="swarm-stopped")
        await made.runtime.swarms.cancel(key)
        await made.waker.wake_swarm(key)
        view = await done(made, key)

    assert view.reason == "cancelled"
    assert (await results(made, key))[0].state in ("cancelled", "done")


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_an_item_that_spends_its_own_budget_stops_no_other(made, workspace):
    agent(workspace, budget="{steps: 1}")
    model = scripted(
        by_last_user={r"^Do task 2\.$": [calls("add", a=1, b=2)] * 3, "^Do": [says("done")]}
    )
    async with made.worker(model, **CACHED):
        key = await begin(made, tasks(5), width=1, budget=Budget(steps=100))
        view = await done(made, key)

    assert (view.reason, view.counts.done, view.counts.failed) == (None, 4, 1)
