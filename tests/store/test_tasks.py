"""Tasks: handed in once, tried as often as may be, ended once, told outside."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from databases import Databases
from stories import Story, count

from everturn.client import event_from_flat
from everturn.errors import IdempotencyConflict, UsageError
from everturn.executors import Delegation, ExecutorRules
from everturn.session import FinishTurn, RunTools, SessionKey, TurnHead
from everturn.tasks import NewTask, TaskView, asked_again
from everturn.webhooks import Webhook
from everturn_activities.store import (
    AskPerson,
    CallFailure,
    Idle,
    SessionSettings,
    TakeoverNeeded,
    Wake,
    outbox,
)
from everturn_activities.store import tasks as task_rows
from everturn_activities.store.sql_tasks import SqlTasks

WEBHOOK = {"url": "https://example.com/hook", "secret": "HOOK"}
SETTINGS = SessionSettings("/workspace", "/workspace")


class Tasks:
    """The tasks of a store, and a hand that works their turns."""

    def __init__(self, story: Story, store: SqlTasks) -> None:
        self.story = story
        self.store = store
        self.runs = 0

    async def submit(self, name: str = "t", **given: Any) -> Wake | None:
        task = NewTask.model_validate({"input": "Count the apples.", **given})
        settings = replace(SETTINGS, webhook=task.webhook)
        (came,) = await self.store.submit("default", [(name, task, settings)])
        return came.wake

    async def task(self, name: str = "t") -> TaskView:
        return await self.store.task("default", name)

    def session(self, name: str = "t") -> Story:
        return replace(self.story, key=SessionKey("default", f"task:{name}"))

    async def begun(self, name: str = "t") -> TurnHead:
        self.runs += 1
        return await self.session(name).begun(f"run-{self.runs}")

    async def end(
        self,
        turn: TurnHead,
        outcome: str = "completed",
        reason: str | None = None,
        passing: bool = False,
    ) -> None:
        request = FinishTurn(
            *(turn.tenant, turn.session, f"t/default/s/{turn.session}", f"run-{self.runs}"),
            *(turn.turn, turn.epoch, 1, outcome, reason, passing),  # type: ignore[arg-type]
        )
        await self.story.store.finish_turn(request)

    async def fail(self, name: str = "t", reason: str = "Nobody is there.") -> None:
        """An attempt that fails at what time may mend."""
        await self.end(await self.begun(name), "failed", reason, passing=True)

    async def late(self, seconds: float) -> list[Wake]:
        self.story.clock.now += seconds
        return await self.store.come_due(100)

    async def told(self) -> list[dict[str, Any]]:
        """What the outbox has, the oldest first, as a receiver would read it."""
        due = await self.store.take_deliveries(100)
        return [json.loads(delivery.body) for delivery in due]


@pytest.fixture
async def tasks(story: Story, databases: Databases) -> AsyncIterator[Tasks]:
    database = await databases.open(clock=story.clock)
    yield Tasks(story, SqlTasks(database, count))
    await database.close()


async def test_a_task_that_is_done_has_what_its_agent_answered(tasks: Tasks) -> None:
    wake = await tasks.submit(priority=1)
    assert wake == Wake(SessionKey("default", "task:t"), None, 0, 1)
    assert (await tasks.task()).state == "queued"

    turn = await tasks.begun()
    assert (await tasks.task()).state == "running"
    await tasks.session().step(turn)
    await tasks.end(turn)

    view = await tasks.task()
    assert (view.state, view.result, view.reason) == ("done", "text of step 1", None)
    assert [(a.attempt, a.turn, a.outcome, a.cost_usd) for a in view.attempts] == [
        (1, 1, "completed", 0.5)
    ]
    assert await tasks.session().transcript() == [
        "user: Count the apples.",
        "assistant: text of step 1",
    ]


async def test_the_same_id_again_is_the_same_task_and_another_content_is_refused(
    tasks: Tasks,
) -> None:
    await tasks.submit()
    await tasks.end(await tasks.begun())

    assert await tasks.submit() is None
    assert (await tasks.task()).state == "done"
    with pytest.raises(IdempotencyConflict, match="Task 't' was handed in with another content"):
        await tasks.submit(input="Count the pears.")


async def test_many_are_taken_in_together_or_none_of_them(tasks: Tasks) -> None:
    one, late = NewTask(input="One."), NewTask(input="Two.", deadline=1.0)
    with pytest.raises(UsageError, match="The deadline of task 'b'"):
        await tasks.store.submit("default", [("a", one, SETTINGS), ("b", late, SETTINGS)])
    with pytest.raises(UsageError, match="There is no task 'a'"):
        await tasks.task("a")


async def test_a_session_of_another_kind_is_not_taken_for_the_tasks(tasks: Tasks) -> None:
    key = SessionKey("default", "task:t")
    await tasks.story.store.create_session(key, SETTINGS)
    with pytest.raises(IdempotencyConflict, match="A session 'task:t' exists"):
        await tasks.submit()


async def test_what_time_may_mend_is_tried_again_after_a_growing_pause(tasks: Tasks) -> None:
    await tasks.submit(retry={"attempts_max": 3, "first_seconds": 10, "factor": 3})
    begun = tasks.story.clock.now

    await tasks.fail()
    view = await tasks.task()
    assert (view.state, view.reason, view.attempts_left) == ("waiting", "Nobody is there.", 2)
    assert 10 <= view.due_at - begun <= 11

    assert await tasks.late(9.9) == []
    (wake,) = await tasks.late(1.1)
    assert wake.key.session == "task:t"
    await tasks.fail()
    again = (await tasks.task()).due_at - tasks.story.clock.now
    assert 30 <= again <= 33
    assert len(await tasks.late(33)) == 1
    await tasks.fail()

    view = await tasks.task()
    assert view.state == "dead"
    assert view.reason == "It was tried 3 times, and the last attempt failed: Nobody is there."
    assert [each.turn for each in view.attempts] == [1, 2, 3]
    assert (await tasks.session().transcript())[1] == "user: " + asked_again(
        "Count the apples.", 2, "Nobody is there."
    )


async def test_pauses_of_tasks_that_failed_at_once_are_spread(tasks: Tasks) -> None:
    for name in ("a", "b"):
        await tasks.submit(name, retry={"first_seconds": 1000})
        await tasks.fail(name)
    due = {(await tasks.task(name)).due_at for name in ("a", "b")}
    assert len(due) == 2


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ("budget_exceeded", "The session's budget of $1.00 is spent."),
        ("ended_by_denial", "A person denied it."),
        ("max_steps", "The turn took 5 steps without a final answer."),
        ("failed", "The workspace cannot be used."),
    ],
)
async def test_what_time_does_not_mend_is_given_up_at_once(
    tasks: Tasks, outcome: str, reason: str
) -> None:
    await tasks.submit()
    await tasks.end(await tasks.begun(), outcome, reason)

    view = await tasks.task()
    assert (view.state, view.attempts_left) == ("dead", 2)
    assert (view.reason or "").endswith(" Time does not mend that, so it was not tried again.")


@pytest.mark.parametrize(("refused", "state"), [(False, "waiting"), (True, "dead")])
async def test_a_provider_that_is_away_is_tried_again_and_one_that_refuses_is_not(
    tasks: Tasks, refused: bool, state: str
) -> None:
    await tasks.submit()
    turn = await tasks.begun()
    context = await tasks.session().prepare(turn)
    attempt = await tasks.session().start(context)
    failure = CallFailure("HTTP 503", 1, refused=refused)
    await tasks.story.store.fail_model_call(context, attempt, failure)

    await tasks.end(turn, "model_failed")

    view = await tasks.task()
    assert view.state == state
    assert (view.reason or "").startswith("HTTP 503")


async def test_an_answer_that_is_no_answer_is_not_tried_again(tasks: Tasks) -> None:
    await tasks.submit()
    await tasks.end(await tasks.begun(), "model_failed", "The model answered with nothing.")
    assert (await tasks.task()).state == "dead"


async def test_a_task_begins_at_its_time_and_not_before(tasks: Tasks) -> None:
    at = tasks.story.clock.now + 60
    assert await tasks.submit(not_before=at) is None
    assert (await tasks.task()).state == "waiting"

    assert await tasks.late(59) == []
    assert [wake.key.session for wake in await tasks.late(1)] == ["task:t"]
    assert await tasks.store.come_due(100) == []


async def test_a_deadline_ends_a_task_that_waits_and_one_that_stands_in_line(
    tasks: Tasks,
) -> None:
    at = tasks.story.clock.now + 60
    await tasks.submit("waits", not_before=at, deadline=at + 10)
    await tasks.submit("line", deadline=at + 10)
    assert len(await tasks.late(69)) == 1

    assert await tasks.late(1) == []

    for name in ("waits", "line"):
        view = await tasks.task(name)
        assert view.state == "dead"
        assert "was not done by its deadline, 2023-11-14 22:14:30 UTC." in (view.reason or "")
    # Nobody works what is over.
    assert isinstance(await tasks.session("line").begin("run-9"), Idle)


async def test_a_deadline_ends_a_running_attempt_as_a_cancel_with_that_reason(
    tasks: Tasks,
) -> None:
    await tasks.submit(deadline=tasks.story.clock.now + 60)
    turn = await tasks.begun()
    await tasks.session().check(turn.turn)

    (wake,) = await tasks.late(60)

    assert wake.key.session == "task:t"
    assert (await tasks.session().check(turn.turn)).cancelled
    assert await tasks.late(1) == []
    await tasks.end(turn, "cancelled", "The turn was cancelled.")
    view = await tasks.task()
    assert view.state == "dead"
    assert (view.reason or "").startswith("The task was not done by its deadline")
    (ended,) = await tasks.session().told("turn_finished")
    assert ended.body["reason"] == view.reason


async def test_an_attempt_has_all_of_its_time_once_it_runs_and_is_then_tried_again(
    tasks: Tasks,
) -> None:
    await tasks.submit(attempt_seconds=30)
    # An hour in line is none of its time.
    for _ in range(4):
        assert await tasks.late(900) == []
    turn = await tasks.begun()
    await tasks.session().check(turn.turn)
    assert await tasks.late(29) == []

    assert len(await tasks.late(30)) == 1

    await tasks.end(turn, "cancelled", "The turn was cancelled.")
    view = await tasks.task()
    assert (view.state, view.reason) == ("waiting", "The attempt took longer than 30 s.")


async def test_who_finds_an_attempt_stopped_that_was_late_when_it_looked_leaves_it(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tasks.submit(attempt_seconds=30)
    turn = await tasks.begun()
    await tasks.session().check(turn.turn)
    look, seen = task_rows._LOOK.all, []

    def as_seen(connection: sa.Connection, asked: dict[str, Any]) -> list[Any]:
        seen.append(look(connection, asked))
        return seen[0]

    monkeypatch.setattr(task_rows._LOOK, "all", as_seen)
    assert len(await tasks.late(31)) == 1
    before = (await tasks.story.store.session(tasks.session().key)).updated_at
    # Another worker, whose look was before the first one's commit.
    assert await tasks.late(1) == []
    assert (await tasks.story.store.session(tasks.session().key)).updated_at == before


async def test_an_attempt_that_ends_as_its_time_is_up_keeps_its_result(tasks: Tasks) -> None:
    await tasks.submit(attempt_seconds=30)
    turn = await tasks.begun()
    await tasks.session().step(turn)
    await tasks.late(31)
    await tasks.late(31)
    await tasks.end(turn)
    assert (await tasks.task()).state == "done"


async def test_a_pause_that_would_end_behind_the_deadline_is_not_waited_for(tasks: Tasks) -> None:
    deadline = tasks.story.clock.now + 5
    await tasks.submit(deadline=deadline)
    await tasks.fail()
    view = await tasks.task()
    assert view.state == "dead"
    assert "Nobody is there. The next attempt would begin after its deadline" in (view.reason or "")


async def test_a_cancelled_task_is_over_wherever_it_stood(tasks: Tasks) -> None:
    await tasks.submit("waits", not_before=tasks.story.clock.now + 60)
    await tasks.submit("line")
    await tasks.submit("runs")
    turn = await tasks.begun("runs")
    await tasks.session("runs").check(turn.turn)

    wakes = [await tasks.store.cancel("default", name) for name in ("waits", "line", "runs")]

    assert [wake is not None for wake in wakes] == [False, False, True]
    assert await tasks.late(60) == []
    assert [(await tasks.task(name)).state for name in ("waits", "line")] == ["cancelled"] * 2
    await tasks.end(turn, "cancelled", "The turn was cancelled.")
    view = await tasks.task("runs")
    assert (view.state, view.reason) == ("cancelled", "The task was cancelled.")
    assert await tasks.store.cancel("default", "runs") is None


async def test_a_task_that_was_cancelled_in_time_is_not_said_to_be_late(tasks: Tasks) -> None:
    await tasks.submit(deadline=tasks.story.clock.now + 60)
    turn = await tasks.begun()
    await tasks.store.cancel("default", "t")
    await tasks.late(60)
    await tasks.end(turn, "cancelled", "The turn was cancelled.")
    view = await tasks.task()
    assert (view.state, view.reason) == ("cancelled", "The task was cancelled.")


async def test_a_turn_that_a_person_cancels_ends_its_task(tasks: Tasks) -> None:
    await tasks.submit()
    turn = await tasks.begun()
    await tasks.session().cancel()
    await tasks.end(turn, "cancelled", "The turn was cancelled.")
    assert (await tasks.task()).state == "cancelled"


async def test_a_task_that_is_begun_anew_has_all_its_attempts_and_keeps_its_history(
    tasks: Tasks,
) -> None:
    await tasks.submit(retry={"attempts_max": 1})
    await tasks.fail()
    assert (await tasks.task()).reason == (
        "It was tried once, and the last attempt failed: Nobody is there."
    )

    wake = await tasks.store.requeue("default", "t")

    assert wake is not None
    assert ((await tasks.task()).state, (await tasks.task()).reason) == ("queued", None)
    turn = await tasks.begun()
    await tasks.session().step(turn)
    await tasks.end(turn)
    view = await tasks.task()
    assert (view.state, [each.outcome for each in view.attempts]) == (
        "done",
        ["failed", "completed"],
    )
    assert view.cost_usd == 0.5


async def test_a_fresh_count_is_as_long_as_the_first(tasks: Tasks) -> None:
    await tasks.submit(retry={"attempts_max": 2, "first_seconds": 1})
    for _ in range(2):
        await tasks.fail()
        await tasks.late(2)
    assert (await tasks.task()).state == "dead"
    await tasks.store.requeue("default", "t")
    await tasks.fail()
    assert ((await tasks.task()).state, (await tasks.task()).attempts_left) == ("waiting", 1)


async def test_what_cannot_be_begun_anew_is_said(tasks: Tasks) -> None:
    await tasks.submit()
    with pytest.raises(UsageError, match="Attempt 1 of task 't' is under way"):
        await tasks.store.requeue("default", "t")
    await tasks.end(await tasks.begun())
    with pytest.raises(UsageError, match="Task 't' is done"):
        await tasks.store.requeue("default", "t")
    with pytest.raises(UsageError, match="There is no task 'x'"):
        await tasks.store.requeue("default", "x")

    await tasks.submit("late", deadline=tasks.story.clock.now + 1)
    await tasks.late(2)
    with pytest.raises(UsageError, match=r"has passed; name a later one"):
        await tasks.store.requeue("default", "late")
    await tasks.store.requeue("default", "late", tasks.story.clock.now + 9)
    assert (await tasks.task("late")).state == "queued"


async def test_a_task_that_waits_is_begun_at_once_where_a_person_says_so(tasks: Tasks) -> None:
    await tasks.submit(retry={"attempts_max": 2})
    await tasks.fail()
    await tasks.store.requeue("default", "t")
    await tasks.fail()
    # It was no fresh count.
    assert (await tasks.task()).state == "dead"


async def test_who_talks_in_a_tasks_session_changes_nothing_of_the_task(tasks: Tasks) -> None:
    await tasks.submit()
    await tasks.end(await tasks.begun())
    await tasks.session().send("And the pears?")
    await tasks.end(await tasks.begun(), "failed", "Oh.")
    view = await tasks.task()
    assert (view.state, len(view.attempts)) == ("done", 1)


async def test_a_turn_that_finishes_twice_reports_once(tasks: Tasks) -> None:
    await tasks.submit(webhook=WEBHOOK)
    turn = await tasks.begun()
    await tasks.end(turn)
    await tasks.end(turn)
    assert len(await tasks.told()) == 1
    [told] = await tasks.session().told("task_ended")
    assert told.body["task_attempt"] == 1
    # As one flat object too, in which a call's attempt is another.
    assert event_from_flat(told.flat()) == told


async def test_lists_are_by_state_and_newest_first(tasks: Tasks) -> None:
    for name in ("a", "b", "c", "d"):
        await tasks.submit(name)
    await tasks.end(await tasks.begun("b"))
    await tasks.begun("c")

    async def names(*given: Any) -> list[str]:
        return [view.id for view in await tasks.store.tasks("default", *given)]

    assert await names(None, 2, None) == ["d", "c"]
    assert await names(None, 2, "c") == ["b", "a"]
    assert await names("queued", 9, None) == ["d", "a"]
    assert await names("running", 9, None) == ["c"]
    assert await names("done", 9, None) == ["b"]
    assert await tasks.store.tasks("another", None, 9, None) == []


async def test_the_end_of_a_task_is_told_outside_with_its_result(tasks: Tasks) -> None:
    await tasks.submit(webhook=WEBHOOK)
    turn = await tasks.begun()
    await tasks.session().step(turn)
    await tasks.end(turn)

    (told,) = await tasks.told()

    assert told["type"] == "task.done"
    assert told["timestamp"] == "2023-11-14T22:13:20Z"
    assert told["data"] == {
        "session": "task:t",
        "turn": 0,
        "task": "t",
        "task_attempt": 1,
        "state": "done",
        "reason": None,
        "attempts": 1,
        "result": "text of step 1",
        "result_cut": False,
    }


async def test_a_sessions_own_webhook_is_told_of_its_turns_and_questions(tasks: Tasks) -> None:
    key = SessionKey("default", "mine")
    settings = replace(SETTINGS, webhook=Webhook.model_validate(WEBHOOK))
    await tasks.story.store.create_session(key, settings)
    mine = replace(tasks.story, key=key)
    await mine.send()
    turn = await mine.begun()
    await mine.step(turn, calls=["delegate"])
    handed = Delegation(
        index=0, executor="mine:1.1.0", task="Work.", agent="default", rules=ExecutorRules(level=1)
    )
    request = RunTools(*key, turn.turn, 1, turn.epoch, [])
    (begun,) = await mine.store.hand_over(request, 1, [handed], {})
    await mine.store.open_executor(begun)
    executor = replace(mine, key=SessionKey("default", "mine:1.1.0"))
    below = await executor.begun()
    await executor.step(below, calls=["pick"])
    await executor.begin_tool(below)
    asked = AskPerson(below.turn, 1, 0, 1, "pick", "Which?")
    await executor.store.ask_person(executor.key, asked)
    await mine.finish(turn)

    awaited, ended = await tasks.told()

    assert (awaited["type"], awaited["data"]["executor"]) == ("person.awaited", "mine:1.1.0")
    assert (ended["type"], ended["data"]["text"]) == ("turn.finished", "text of step 1")


async def test_only_the_end_is_told_and_not_each_attempt(tasks: Tasks) -> None:
    await tasks.submit(webhook=WEBHOOK, retry={"attempts_max": 2, "first_seconds": 1})
    await tasks.fail()
    assert await tasks.told() == []
    await tasks.late(2)
    await tasks.fail()
    assert [told["type"] for told in await tasks.told()] == ["task.dead"]


async def test_a_task_that_cannot_begin_keeps_no_other_from_it(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = tasks.story.clock.now + 60
    for name in ("broken", "sound"):
        await tasks.submit(name, not_before=at)
    begun = task_rows._begin

    def begin(task: Any, meter: Any) -> Wake | None:
        if task.id == "broken":
            raise ValueError("a fault of ours")
        return begun(task, meter)

    monkeypatch.setattr(task_rows, "_begin", begin)
    tasks.story.clock.now = at
    (woken,) = await tasks.store.come_due(10)
    assert woken.key.session == "task:sound"
    assert (await tasks.task("broken")).attempts == ()
    # It is tried again, later.
    assert await tasks.store.come_due(10) == []
    monkeypatch.setattr(task_rows, "_begin", begun)
    tasks.story.clock.now = at + 61
    (woken,) = await tasks.store.come_due(10)
    assert woken.key.session == "task:broken"


async def test_no_message_of_a_persons_takes_the_place_of_an_attempt(tasks: Tasks) -> None:
    at = tasks.story.clock.now + 60
    await tasks.submit(not_before=at)
    for mine in ("attempt:1", "task:1:deadline"):
        await tasks.session().send(mine)
    tasks.story.clock.now = at
    await tasks.store.come_due(10)
    assert (await tasks.task()).state == "queued"


async def test_a_receiver_that_answers_nothing_leaves_places_for_others(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "RECEIVER_MAX", 2)
    slow = {**WEBHOOK, "url": "https://slow.example/hook"}
    for name, webhook in [*[(f"s{n}", slow) for n in range(4)], ("other", WEBHOOK)]:
        await tasks.submit(name, webhook=webhook)
        await tasks.end(await tasks.begun(name))
    first = await tasks.store.take_deliveries(3)
    assert sorted(one.url for one in first) == [WEBHOOK["url"], slow["url"], slow["url"]]
    assert await tasks.store.take_deliveries(3, {slow["url"]: 2}) == []


async def test_a_delivery_is_one_senders_and_is_tried_again_under_its_id(tasks: Tasks) -> None:
    await tasks.submit(webhook=WEBHOOK)
    await tasks.end(await tasks.begun())
    (first,) = await tasks.store.take_deliveries(9)
    assert await tasks.store.take_deliveries(9) == []

    await tasks.store.not_delivered(first, "HTTP 500", False, spread=0.5)
    tasks.story.clock.now += 4.9
    assert await tasks.store.take_deliveries(9) == []
    tasks.story.clock.now += 0.2
    (second,) = await tasks.store.take_deliveries(9)
    assert (second.id, second.attempt, second.body) == (first.id, 2, first.body)

    # Whoever wakes up late settles nothing.
    await tasks.store.delivered(first)
    (view,) = (await tasks.task()).webhooks
    assert (view.state, view.attempts, view.reason) == ("waits", 2, "HTTP 500")
    await tasks.store.delivered(second)
    (view,) = (await tasks.task()).webhooks
    assert (view.state, view.due_at, view.reason) == ("delivered", None, None)


async def test_a_sender_that_was_killed_is_made_up_for(tasks: Tasks) -> None:
    await tasks.submit(webhook=WEBHOOK)
    await tasks.end(await tasks.begun())
    (first,) = await tasks.store.take_deliveries(9)
    tasks.story.clock.now += 60
    (second,) = await tasks.store.take_deliveries(9)
    assert second.id == first.id


async def test_a_delivery_is_given_up_in_the_end_and_sent_again_on_demand(tasks: Tasks) -> None:
    await tasks.submit(webhook=WEBHOOK)
    await tasks.end(await tasks.begun())
    for _ in range(12):
        tasks.story.clock.now += 5000
        (delivery,) = await tasks.store.take_deliveries(9)
        await tasks.store.not_delivered(delivery, "The receiver answered HTTP 500.", False, 1.0)

    tasks.story.clock.now += 5000
    assert await tasks.store.take_deliveries(9) == []
    (dead,) = await tasks.store.webhooks("default", "dead", 9, None)
    assert dead.reason == "The receiver answered HTTP 500. It was sent 12 times."
    assert await tasks.store.webhooks("another", None, 9, None) == []

    with pytest.raises(UsageError, match="There is no webhook"):
        await tasks.store.send_again("another", dead.id)
    await tasks.store.send_again("default", dead.id)
    (again,) = await tasks.store.take_deliveries(9)
    assert (again.id, again.attempt) == (dead.id, 1)


async def test_a_receiver_that_is_gone_is_not_asked_again(tasks: Tasks) -> None:
    await tasks.submit(webhook=WEBHOOK)
    await tasks.end(await tasks.begun())
    (delivery,) = await tasks.store.take_deliveries(9)
    await tasks.store.not_delivered(delivery, "Gone.", True, 0.0)
    (dead,) = await tasks.store.webhooks("default", None, 9, None)
    assert (dead.state, dead.reason) == ("dead", "Gone.")


async def test_a_turn_that_worked_no_attempt_decides_nothing_of_the_next(tasks: Tasks) -> None:
    await tasks.submit(retry={"first_seconds": 1})
    await tasks.fail()
    await tasks.session().send("Which apples?")
    talk = await tasks.begun()
    await tasks.late(2)
    await tasks.end(talk)
    view = await tasks.task()
    assert (view.state, view.attempts[1].turn) == ("queued", None)


async def test_an_attempt_whose_time_was_up_is_over_where_it_failed_at_something_else(
    tasks: Tasks,
) -> None:
    await tasks.submit(attempt_seconds=30)
    turn = await tasks.begun()
    await tasks.late(31)
    await tasks.end(turn, "budget_exceeded", "The budget is spent.")
    assert (await tasks.task()).state == "dead"


async def test_an_attempt_that_lost_its_workers_too_often_is_tried_again(tasks: Tasks) -> None:
    await tasks.submit()
    turn = await tasks.begun()
    for number in range(2, 6):
        lost = TakeoverNeeded("t/default/s/task:t", f"run-{number - 1}")
        turn = await tasks.session().begun(f"run-{number}", closed=lost)
    tasks.runs = 5
    await tasks.end(turn, "failed", turn.failure)
    view = await tasks.task()
    assert (view.state, (view.reason or "")[:34]) == (
        "waiting",
        "The turn lost its workflow 4 times",
    )


@pytest.mark.parametrize(
    ("deadline", "attempt", "said"),
    [(10, 100, "was not done by its deadline"), (100, 10, "took longer than 10 s")],
)
async def test_of_a_deadline_and_an_attempts_time_the_first_counts(
    tasks: Tasks, deadline: float, attempt: float, said: str
) -> None:
    at = tasks.story.clock.now + deadline
    await tasks.submit(deadline=at, attempt_seconds=attempt)
    turn = await tasks.begun()
    await tasks.session().check(turn.turn)
    assert len(await tasks.late(11)) == 1
    await tasks.end(turn, "cancelled")
    assert said in ((await tasks.task()).reason or "")
