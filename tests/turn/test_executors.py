"""A turn hands work to executors: sessions of their own, whose reports are its results."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from harness import Bench, calls, says, scripted
from temporalio.client import WorkflowExecutionStatus

from everturn.approvals import ToolVerdict
from everturn.context.compose import Context
from everturn.messages import AssistantMessage, ToolMessage, UserMessage
from everturn.session import SessionKey
from everturn.views import SessionView
from everturn_activities.executors import Messenger
from everturn_activities.gateways import Delta, Reply
from everturn_activities.gateways.scripted import ScriptedGateway
from everturn_activities.store import Handed, Inbound
from everturn_workers.reconciler import Reconciler


def tasks(*given: str, **more: Any) -> dict[str, Any]:
    """A reply that hands on each of `given`."""
    return {"calls": [{"name": "delegate", "arguments": {"task": task, **more}} for task in given]}


async def results(made: Bench, key: SessionKey) -> list[str]:
    return [
        result.text
        for message in await made.transcript(key)
        if isinstance(message, ToolMessage)
        for result in message.results
    ]


async def executors(made: Bench, parent: str = "s") -> list[SessionView]:
    """The executors below a session, each before its own."""
    found: list[SessionView] = []
    for view in reversed(await made.runtime.store.sessions(made.tenant, 100, None, parent)):
        found += [view, *await executors(made, view.id)]
    return found


async def test_the_report_of_an_executor_is_the_result_of_the_call(made):
    model = scripted(
        tasks("Count the apples."),
        says("There are seven."),
        by_last_user={"^Count the apples": [calls("add", a=3, b=4), says("Seven apples.")]},
    )
    key = await made.session()

    async with made.worker(model):
        await made.send(key, "How many apples?")
        told = await made.until(key, "turn_finished")

    assert told[-1].body["outcome"] == "completed"
    assert told[-1].body["text"] == "There are seven."
    (child,) = await executors(made)
    assert child.id == "s:1.1.0"
    assert await results(made, key) == ["Executor s:1.1.0 has done its work:\n\nSeven apples."]
    asked, called, *_ = await made.transcript(SessionKey(made.tenant, child.id))
    assert asked.said == "Count the apples."
    assert isinstance(called, AssistantMessage)
    # What it is told of its parent is in its task, and nowhere else.
    request = next(one for one in model.requests if "apples." in str(one.messages[-1]))
    assert "How many" not in str(request.messages)


def agent(workspace: Path, **fields: str) -> None:
    (workspace / "agents").mkdir(exist_ok=True)
    lines = "".join(f"{name}: {value}\n" for name, value in fields.items())
    (workspace / "agents" / "default.md").write_text(f"---\n{lines}---\nBe brief.")


@pytest.fixture
def _nobody_makes_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be done at once is not left to those who make up for crashes."""

    async def nothing(self: Reconciler) -> None:
        pass

    monkeypatch.setattr(Reconciler, "deliver", nothing)
    monkeypatch.setattr(Reconciler, "wake_sleepers", nothing)


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_B33_so_many_executors_work_at_once_and_no_more(made, workspace):
    agent(workspace, executors="{depth_max: 1, concurrent_max: 2}")
    names = [f"Task {n}" for n in range(5)]
    model = scripted(
        tasks(*names),
        says("All done."),
        by_last_user={f"^{name}$": [says(f"{name} done.", hold=name)] for name in names},
    )
    key = await made.session()

    async with made.worker(model):
        await made.send(key, "Five things.")
        for n in range(5):
            # Each begins once there is a place, in order.
            await model.reached(names[n])
            running = [view for view in await executors(made) if view.status != "idle"]
            assert len(running) <= 2
            if n:
                model.release(names[n - 1])
        model.release(names[4])
        await made.until(key, "turn_finished")

    assert await results(made, key) == [
        f"Executor s:1.1.{n} has done its work:\n\nTask {n} done." for n in range(5)
    ]
    asked = [one for one in model.requests if str(one.messages[-1]).count("Task ") == 1]
    assert all("Five things" not in str(one.messages) for one in asked)


async def test_a_report_from_the_background_joins_the_turn_that_runs(made):
    model = scripted(
        tasks("Look around.", background=True),
        calls("slow", seconds=0.1),
        says("Went on.", hold="last"),
        by_last_user={"^Look around": [says("Nothing here.")], "^Executor": [says("I see.")]},
    )
    key = await made.session()

    async with made.worker(model):
        await made.send(key, "Begin.")
        await made.until(key, "executor_finished")
        model.release("last")
        told = await made.until(key, "turn_finished")
        if told[-1].body["text"] != "I see.":
            told = await made.until(key, "turn_finished", 2)

    assert told[-1].body["text"] == "I see."
    first, *_ = await results(made, key)
    assert first.startswith("Executor s:1.1.0 works on it in the background.")
    said = [
        message.said for message in await made.transcript(key) if isinstance(message, UserMessage)
    ]
    assert said == ["Begin.", "Executor s:1.1.0 has done its work:\n\nNothing here."]


@pytest.mark.usefixtures("_nobody_makes_up")
async def test_a_report_from_the_background_opens_a_turn_where_none_runs(made):
    model = scripted(
        tasks("Look around.", background=True),
        says("Meanwhile, this."),
        by_last_user={
            "^Look around": [says("Nothing here.", hold="child")],
            "^Executor s:1.1.0 has": [says("Now I know.")],
        },
    )
    key = await made.session()

    async with made.worker(model):
        await made.send(key, "Begin.")
        first = await made.until(key, "turn_finished")
        model.release("child")
        second = await made.until(key, "turn_finished", 2)

    assert first[-1].body["text"] == "Meanwhile, this."
    assert second[-1].body["text"] == "Now I know."


async def test_an_executor_hands_on_as_deep_as_is_allowed(made):
    model = scripted(
        tasks("First level."),
        says("Top."),
        by_last_user={
            "^First level": [tasks("Second level."), says("Middle.")],
            "^Second level": [tasks("Third level."), says("Bottom.")],
        },
    )
    key = await made.session()

    async with made.worker(model):
        await made.send(key, "Begin.")
        told = await made.until(key, "turn_finished")

    assert [view.id for view in await executors(made)] == ["s:1.1.0", "s:1.1.0:1.1.0"]
    below = SessionKey(made.tenant, "s:1.1.0:1.1.0")
    assert (
        await results(made, below)
        == ["Unknown tool: delegate. There is no such tool; use one of those that you were given."]
        or "delegate" in (await results(made, below))[0]
    )
    finished = [event.body for event in told if event.type == "executor_event"]
    assert ("s:1.1.0:1.1.0", "tool_finished") in [
        (one["executor"], one["event"]) for one in finished
    ]


async def test_an_executor_may_do_no_more_than_its_parent(made, workspace):
    agent(workspace, access="read-only")
    model = scripted(
        tasks("Write it.", agent="build"),
        says("Refused."),
        by_last_user={"^Write it": [calls("write_file", path="a.txt", content="x"), says("No.")]},
    )
    key = await made.session()

    async with made.worker(model):
        await made.send(key, "Begin.")
        await made.until(key, "turn_finished")

    (refused,) = await results(made, SessionKey(made.tenant, "s:1.1.0"))
    assert "write_file" in refused
    assert not (workspace / "a.txt").exists()


async def test_what_cannot_be_handed_on_is_answered_with_why(made):
    model = scripted(
        {
            "calls": [
                {"name": "delegate", "arguments": {"task": "x", "agent": "nobody"}},
                {"name": "delegate", "arguments": {"task": "x", "executor": "s:9.9.9"}},
                {"name": "delegate", "arguments": {"agent": "plan"}},
            ]
        },
        says("So be it."),
    )
    key = await made.session()

    async with made.worker(model):
        await made.send(key, "Begin.")
        await made.until(key, "turn_finished")

    unknown, foreign, empty = await results(made, key)
    assert unknown == (
        "There is no agent 'nobody' to hand work to; there are build, default, explore, plan."
    )
    assert foreign == "There is no executor 's:9.9.9' of yours; leave it out to have a new one."
    assert "task" in empty
    assert await executors(made) == []


async def test_an_executor_can_be_asked_again(made):
    model = scripted(
        tasks("Count the apples."),
        tasks("And the pears?", executor="s:1.1.0"),
        says("Apples and pears."),
        by_last_user={"^Count": [says("Seven.")], "^And the": [says("Two.")]},
    )
    key = await made.session()

    async with made.worker(model):
        await made.send(key, "Begin.")
        await made.until(key, "turn_finished")

    assert [text[-6:].strip() for text in await results(made, key)] == ["Seven.", "Two."]
    (child,) = await executors(made)
    assert child.turn == 2
    said = [str(message) for message in model.requests[-2].messages]
    assert "Seven." in "".join(said)


async def test_cancelling_a_turn_cancels_its_executors_and_begins_no_more(made, workspace):
    agent(workspace, executors="{depth_max: 1, concurrent_max: 1}")
    model = scripted(
        tasks("First.", "Second."),
        by_last_user={"^First": [says("Never heard.", hold="first")], "^Second": [says("Never.")]},
    )
    key = await made.session()

    async with made.worker(model):
        await made.send(key, "Begin.")
        await model.reached("first")
        await made.cancel(key)
        told = await made.until(key, "turn_finished")
        child = SessionKey(made.tenant, "s:1.1.0")
        ended = await made.until(child, "turn_finished")
        await made.closed(key)
        await made.closed(child)

    assert told[-1].body["outcome"] == "cancelled"
    assert ended[-1].body["outcome"] == "cancelled"
    assert [view.id for view in await executors(made)] == ["s:1.1.0"]
    late = [event.body for event in await made.events(key) if event.type == "executor_finished"]
    assert [one["late"] for one in late] == [True]


async def test_executors_draw_on_the_budget_of_their_parent(made, workspace):
    agent(workspace, budget="{steps: 4}")
    model = scripted(
        tasks("Go on."),
        says("What was left."),
        by_last_user={"^Go on": [calls("echo", text=str(n)) for n in range(9)]},
    )
    key = await made.session()

    async with made.worker(model):
        await made.send(key, "Begin.")
        told = await made.until(key, "turn_finished")
        child = await made.until(SessionKey(made.tenant, "s:1.1.0"), "turn_finished")

    # One step of the parent's own, three of the executor's, and none for the answer.
    assert (child[-1].body["outcome"], child[-1].body["steps"]) == ("budget_exceeded", 3)
    assert told[-1].body["outcome"] == "budget_exceeded"
    assert len(model.requests) == 4
    (report,) = await results(made, key)
    assert report.startswith("Executor s:1.1.0 ended as budget_exceeded: The budget of session s ")


async def test_a_budget_holds_for_a_whole_fan_out(made, workspace):
    agent(workspace, budget="{steps: 9}", executors="{depth_max: 1, concurrent_max: 6}")
    names = [f"Task {n}" for n in range(12)]
    model = scripted(tasks(*names), says("All."), by_last_user={"^Task": [says("Done.")]})
    key = await made.session()

    async with made.worker(model, workflows_cached=100):
        await made.send(key, "Begin.")
        await made.until(key, "turn_finished")

    # The parent's own step, and eight of theirs: none begins that would pass it.
    assert len(model.requests) == 9
    reports = await results(made, key)
    assert sum("has done its work" in report for report in reports) == 8
    refused = [report for report in reports if "ended as budget_exceeded" in report]
    assert len(refused) == 4
    assert all("The budget of session s allows 9 steps" in report for report in refused)


async def test_who_talks_with_an_executor_keeps_its_parent_from_nothing(made):
    model = scripted(
        tasks("Look around.", background=True),
        calls("echo", text="meanwhile"),
        says("Meanwhile, this."),
        by_last_user={
            "^Look around": [says("Looking.", hold="child"), says("Nothing here.")],
            "^And the garden": [says("Nothing in the garden.")],
            "^Executor": [says("I see.")],
        },
    )
    key, child = await made.session(), made.key("s:1.1.0")

    async with made.worker(model):
        await made.send(key, "Begin.")
        await model.reached("child")
        for n in range(20):
            await made.send(child, f"And the garden, {n}?")
        # Its executor is held in the middle of a word, with twenty messages behind it.
        first = await made.until(key, "turn_finished")
        assert first[-1].body["text"] == "Meanwhile, this."
        model.release("child")
        second = await made.until(key, "turn_finished", 2)
        await made.until(child, "turn_finished", 2)

    assert second[-1].body["text"] == "I see."
    told = await made.events(child)
    assert [e.body["text"] for e in told if e.type == "turn_finished"] == [
        "Looking.",
        "Nothing in the garden.",
    ]


async def test_a_parents_stream_tells_what_its_executor_does_and_asks(made, workspace):
    agent(workspace, approvals="{tools: [effect]}")
    model = scripted(
        tasks("Do it."),
        says("It is done."),
        by_last_user={"^Do it": [calls("effect"), says("Did it.")]},
    )
    key = await made.session()

    async with made.worker(model):
        await made.send(key, "Begin.")
        async with asyncio.timeout(20):
            while True:
                told = [e.body for e in await made.events(key) if e.type == "executor_event"]
                if told:
                    break
                await asyncio.sleep(0.02)
        (asked,) = told
        # U4: who watches the parent can decide.
        verdict = ToolVerdict(approval=1, verdict="approve", digest=asked["told"]["digest"])
        child = SessionKey(made.tenant, asked["executor"])
        await made.front.accept(child, Inbound("yes", "approval", approval=verdict))
        finished = await made.until(key, "turn_finished")

    assert (asked["executor"], asked["event"]) == ("s:1.1.0", "approval_asked")
    assert asked["told"]["name"] == "effect"
    assert finished[-1].body["text"] == "It is done."
    told = [(e.type, e.body.get("event")) for e in finished if e.type.startswith("executor")]
    assert told == [
        ("executor_started", None),
        ("executor_event", "approval_asked"),
        ("executor_event", "approval_answered"),
        ("executor_event", "tool_started"),
        ("executor_event", "tool_finished"),
        ("executor_finished", None),
    ]


async def test_a_turn_whose_history_grows_too_long_goes_on_waiting(made):
    made.waker._settings = made.settings.model_copy(update={"history_events_max": 8})
    model = scripted(
        tasks("Take long.", "Be quick."),
        by_last_user={
            "^Take long": [says("Slow.", hold="slow")],
            "^Be quick": [says("Quick.")],
            "^More": [says("Both.")],
        },
    )
    key = await made.session()

    async with made.worker(model):
        await made.send(key, "Begin.")
        await model.reached("slow")
        run = await made.waker.open_run(key.workflow_id)
        async with asyncio.timeout(20):
            # A message wakes the turn, which finds that it must continue as new.
            await made.send(key, "More.", mode="steer")
            while await made.waker.open_run(key.workflow_id) in (run, None):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        model.release("slow")
        told = await made.until(key, "turn_finished")

    assert len([event for event in told if event.type == "turn_started"]) == 1
    assert [text[-6:].strip() for text in await results(made, key)] == ["Slow.", "Quick."]
    assert len(await executors(made)) == 2


async def test_executors_outlive_the_worker_that_began_them(made):
    model = scripted(
        tasks("Take long."),
        says("At last."),
        by_last_user={"^Take long": [calls("slow", seconds=0.5), says("Slow.")]},
    )
    key = await made.session()

    async with made.worker(model):
        await made.send(key, "Begin.")
        await made.until(key, "executor_event")
    async with made.worker(model):
        told = await made.until(key, "turn_finished")

    assert told[-1].body["text"] == "At last."
    assert len(await executors(made)) == 1
    assert [event.type for event in told].count("executor_finished") == 1


async def test_a_task_that_its_sender_lost_between_two_commits_is_delivered(made, monkeypatch):
    model = scripted(tasks("Count."), says("Counted."), by_last_user={"^Count": [says("Seven.")]})
    key = await made.session()
    lost: list[Handed] = []

    async def lose(self: Messenger, handed: list[Handed]) -> None:
        lost.extend(handed)

    deliver = Messenger.deliver
    monkeypatch.setattr(Messenger, "deliver", lose)
    async with made.worker(model):
        await made.send(key, "Begin.")
        await made.until(key, "executor_started")
        monkeypatch.setattr(Messenger, "deliver", deliver)
        told = await made.until(key, "turn_finished")

    assert lost[0].delegation.executor == "s:1.1.0"
    assert told[-1].body["text"] == "Counted."
    assert (await executors(made))[0].turn == 1


async def test_E24_a_new_executor_is_shown_the_last_of_its_parents_messages(made, workspace):
    agent(workspace, executors="{depth_max: 3, parent_tail: 2}")
    model = scripted(
        tasks("Go on with it."),
        says("Good."),
        by_last_user={"^One": [says("Uno.")], "^Go on": [says("I know what you mean.")]},
    )
    key = await made.session()

    async with made.worker(model):
        await made.send(key, "One.")
        await made.until(key, "turn_finished")
        await made.send(key, "Two.")
        await made.until(key, "turn_finished", 2)

    request = next(one for one in model.requests if "Go on" in str(one.messages[-1]))
    said = [
        message.text if isinstance(message, AssistantMessage) else message.said
        for message in request.messages
        if not isinstance(message, ToolMessage)
    ]
    assert said == ["Uno.", "Two.", "Go on with it."]
    assert [view.id for view in await executors(made)] == ["s:2.1.0"]


async def test_a_session_of_somebody_else_is_not_taken_for_an_executor(made):
    model = scripted(tasks("Count."), says("So be it."))
    await made.session("s:1.1.0")
    key = await made.session()

    async with made.worker(model):
        await made.send(key, "Begin.")
        await made.until(key, "turn_finished")

    assert await results(made, key) == [
        "The executor cannot work: a session of somebody else's is called 's:1.1.0'."
    ]
    assert (await made.runtime.store.session(SessionKey(made.tenant, "s:1.1.0"))).turn == 0


async def test_a_long_report_is_cut_and_can_be_read_on(made):
    model = scripted(
        tasks("Tell all."),
        calls("read_more", result="1.1.0"),
        says("Read."),
        by_last_user={"^Tell all": [says("word " * 3_000)]},
    )
    key = await made.session()

    async with made.worker(model):
        await made.send(key, "Begin.")
        await made.until(key, "turn_finished")

    report, rest = await results(made, key)
    assert len(report) < 4_200
    assert 'bytes cut here; read_more "1.1.0" shows them' in report
    assert rest.count("word") > 2_000


async def test_an_executor_that_fails_says_why(made, workspace):
    agent(workspace, executors="{depth_max: 1, steps_max: 1}")
    model = scripted(
        tasks("Go on."),
        says("I see."),
        by_last_user={"^Go on": [{"text": "I begin.", **calls("echo", text="a")}, says("No.")]},
    )
    key = await made.session()

    async with made.worker(model):
        await made.send(key, "Begin.")
        await made.until(key, "turn_finished")

    (report,) = await results(made, key)
    calls_made = await made.runtime.store.tool_calls(key, 1, 1)
    assert [one.result.failed for one in calls_made] == [True]
    assert report.startswith("Executor s:1.1.0 ended as max_steps: ")
    assert report.endswith(" It had said:\n\nI begin.")


class Counting:
    """A gateway that knows how many of the requests for `task` were under way at once."""

    def __init__(self, gateway: ScriptedGateway, task: str) -> None:
        self._gateway, self._task = gateway, task
        self.now = self.most = 0

    async def stream(self, context: Context) -> AsyncGenerator[Delta | Reply]:
        counts = self._task in str(context.messages[-1])
        self.now += counts
        self.most = max(self.most, self.now)
        try:
            async for item in self._gateway.stream(context):
                yield item
        finally:
            self.now -= counts

    async def close(self) -> None:
        await self._gateway.close()


@pytest.mark.long
async def test_200_executors_of_a_width_of_20_leave_their_parents_history_short(made, workspace):
    agent(workspace, executors="{depth_max: 1, concurrent_max: 20}")
    sizes = {}
    for name, counts in {"few": (10,), "many": (100, 100)}.items():
        steps = [tasks(*(f"Task {n} of {count}." for n in range(count))) for count in counts]
        script = {"^Task": [says("Done.", token_ms=400)]}
        model = Counting(scripted(*steps, says("All."), by_last_user=script), "Task")
        key = await made.session(name)

        async with made.worker(model, workflows_cached=1_000):
            await made.send(key, "Begin.")
            async with asyncio.timeout(240):
                while (await made.runtime.store.session(key)).last_outcome is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
            await made.closed(key)

        assert len(await results(made, key)) == sum(counts)
        assert model.most <= 20
        handle = made.client.get_workflow_handle(key.workflow_id)
        history = await handle.fetch_history()
        sizes[name] = sum(event.ByteSize() for event in history.events)
        print(f"\n{name}: {sum(counts)} executors, {model.most} at once, {sizes[name]:,} bytes")
    # One step more, and 190 executors.
    assert (sizes["many"] - sizes["few"]) / 190 < 200


async def test_a_turn_that_is_cancelled_before_its_task_was_delivered_cancels_the_executor(
    made, monkeypatch
):
    model = scripted(tasks("Count."), by_last_user={"^Count": [says("Seven.", hold="child")]})
    key = await made.session()
    deliver = Messenger.deliver

    async def lose(self: Messenger, handed: list[Handed]) -> None:
        if handed:
            monkeypatch.setattr(Messenger, "deliver", deliver)

    monkeypatch.setattr(Messenger, "deliver", lose)
    async with made.worker(model):
        await made.send(key, "Begin.")
        await made.until(key, "executor_started")
        await made.cancel(key)
        told = await made.until(key, "turn_finished")
        ended = await made.until(key, "executor_finished")
        status = (await made.client.get_workflow_handle(key.workflow_id).describe()).status

    assert told[-1].body["outcome"] == "cancelled"
    assert ended[-1].body["outcome"] == "cancelled"
    assert status is not WorkflowExecutionStatus.FAILED
