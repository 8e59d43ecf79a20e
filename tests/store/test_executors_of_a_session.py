"""Tasks that a session hands on: begun in order, reported once, dropped with their turn."""

from dataclasses import replace

import pytest
from stories import SPEC, Story

from everturn.executors import Delegation, ExecutorRules
from everturn.session import FinishTurn, RunTools, SessionKey, TurnHead
from everturn_activities.store import FollowUp, Handed, SessionSettings


def task(index: int, text: str = "Work.", **more: object) -> Delegation:
    made = {"index": index, "executor": f"s:1.1.{index}", "task": text, "agent": "default"}
    return Delegation.model_validate({**made, "rules": ExecutorRules(level=1), **more})


async def asked(story: Story, calls: int, **more: object) -> TurnHead:
    """A turn whose first step calls `delegate` so often."""
    await story.send()
    turn = await story.begun(**more)
    await story.step(turn, calls=["delegate"] * calls)
    return turn


async def hand(
    story: Story, turn: TurnHead, *tasks: Delegation, width: int = 2, **refused: str
) -> list[Handed]:
    request = RunTools(*story.key, turn.turn, 1, turn.epoch, [])
    why = {int(index[1:]): text for index, text in refused.items()}
    return await story.store.hand_over(request, width, tasks, why)


async def left(story: Story, turn: TurnHead) -> int:
    request = RunTools(*story.key, turn.turn, 1, turn.epoch, [])
    return (await story.store.check_executors(request)).left


async def finish(story: Story, turn: TurnHead, outcome: str = "completed") -> FollowUp:
    request = FinishTurn(
        *story.key,
        story.key.workflow_id,
        "run-1",
        turn.turn,
        turn.epoch,
        1,
        outcome,  # type: ignore[arg-type]
    )
    return await story.store.finish_turn(request)


def child(story: Story, name: str) -> Story:
    return replace(story, key=SessionKey(story.key.tenant, name))


async def worked(story: Story, handed: Handed, outcome: str = "completed") -> FollowUp:
    """The turn of an executor, from its task to its end."""
    await story.store.open_executor(handed)
    executor = child(story, handed.delegation.executor)
    turn = await executor.begun()
    await executor.step(turn)
    return await finish(executor, turn, outcome)


async def results(story: Story, turn: TurnHead) -> list[str | None]:
    calls = await story.store.tool_calls(story.key, turn.turn, 1)
    return [None if call.result is None else call.result.text for call in calls]


async def test_tasks_begin_in_order_as_places_become_free(story: Story) -> None:
    turn = await asked(story, 4)
    begun = await hand(story, turn, task(0), task(1), task(2), task(3))
    assert [one.delegation.index for one in begun] == [0, 1]

    for one in begun:
        await story.store.open_executor(one)
    executor = child(story, "s:1.1.0")
    end = await finish(executor, await executor.begun())

    assert [one.delegation.index for one in end.begun] == [2]
    assert await left(story, turn) == 3
    # Asked anew, it names what is on its way and writes nothing twice.
    assert [one.delegation.index for one in await hand(story, turn, task(0), task(3))] == [2]
    started = await story.told("executor_started")
    assert [event.body["index"] for event in started] == [0, 1, 2]


async def test_a_parent_is_woken_by_the_last_report_of_a_step_only(story: Story) -> None:
    turn = await asked(story, 2)
    first, second = await hand(story, turn, task(0), task(1))
    await story.check(turn.turn)

    assert (await worked(story, first)).wake is None
    wake = (await worked(story, second)).wake

    assert wake is not None
    assert wake.key == story.key
    assert await results(story, turn) == [
        f"Executor s:1.1.{n} has done its work:\n\ntext of step 1" for n in range(2)
    ]


async def test_a_report_is_told_once_however_often_its_turn_finishes(story: Story) -> None:
    turn = await asked(story, 1)
    (handed,) = await hand(story, turn, task(0))
    await story.store.open_executor(handed)
    executor = child(story, "s:1.1.0")
    begun = await executor.begun()

    assert (await finish(executor, begun)).wake is not None
    assert (await finish(executor, begun)).wake is None

    assert len(await story.told("executor_finished")) == 1
    assert len(await story.told("tool_finished")) == 1


async def test_a_turn_that_is_cancelled_begins_no_task(story: Story) -> None:
    turn = await asked(story, 1)
    await story.cancel()

    assert await hand(story, turn, task(0)) == []


@pytest.mark.parametrize("outcome", ["cancelled", "failed"])
async def test_a_turn_that_ends_names_whom_it_waited_for_and_drops_the_others(
    story: Story, outcome: str
) -> None:
    turn = await asked(story, 3)
    (first,) = await hand(story, turn, task(0), task(1), task(2), width=1)
    await story.store.open_executor(first)

    end = await finish(story, turn, outcome)

    assert list(end.left) == [SessionKey("default", "s:1.1.0")]
    # Its report comes too late for the turn, and frees a place that nobody takes.
    executor = child(story, "s:1.1.0")
    late = await finish(executor, await executor.begun(), "cancelled")
    assert (list(late.begun), late.wake) == ([], None)
    (finished,) = await story.told("executor_finished")
    assert finished.body["late"]
    assert await left(story, turn) == 0


async def test_what_works_in_the_background_outlives_its_turn(story: Story) -> None:
    turn = await asked(story, 2)
    (first,) = await hand(story, turn, task(0, background=True), task(1, background=True), width=1)
    said = await results(story, turn)
    assert said[0] is not None
    assert said[0].startswith("Executor s:1.1.0 works on it in the background.")
    assert await left(story, turn) == 0

    assert list((await finish(story, turn)).left) == []
    end = await worked(story, first)

    assert [one.delegation.index for one in end.begun] == [1]
    assert end.wake is not None
    again = await story.begun("run-2", previous="run-1")
    assert again.turn == 2


async def test_only_the_turn_that_worked_a_task_reports_it(story: Story) -> None:
    turn = await asked(story, 2)
    (first,) = await hand(story, turn, task(0))
    await story.store.open_executor(first)
    executor = child(story, "s:1.1.0")
    begun = await executor.begun()
    # The second task comes while the first is worked, and waits for a turn of its own.
    (second,) = await hand(story, turn, task(1, "And this.", executor="s:1.1.0"))
    await story.store.open_executor(second)

    await finish(executor, begun)

    assert await left(story, turn) == 1
    assert [text is None for text in await results(story, turn)] == [False, True]


async def test_a_task_that_nobody_delivered_is_found_after_a_while(story: Story) -> None:
    turn = await asked(story, 1)
    (handed,) = await hand(story, turn, task(0))
    story.clock.now += 1
    assert await story.store.undelivered(2) == []
    story.clock.now += 2
    assert await story.store.undelivered(2) == [handed]

    assert await story.store.open_executor(handed) is not None
    assert await story.store.undelivered(2) == []
    # Whoever delivers it once more changes nothing.
    await story.store.open_executor(handed)
    assert (await story.store.session(SessionKey("default", "s:1.1.0"))).waiting == 1


async def test_refused_calls_are_answered_and_begin_nothing(story: Story) -> None:
    turn = await asked(story, 2)
    await hand(story, turn, task(1), _0="There is no such agent.")
    assert await results(story, turn) == ["There is no such agent.", None]
    assert await left(story, turn) == 1


async def test_an_executor_works_in_the_folder_and_for_the_user_of_its_parent(
    story: Story,
) -> None:
    turn = await asked(story, 1, spec=SPEC)
    (handed,) = await hand(story, turn, task(0))
    await story.store.open_executor(handed)

    made = await story.store.session(SessionKey("default", "s:1.1.0"))
    assert (made.parent, made.workspace, made.working_dir, made.user) == (
        *("s", "/workspace", "/workspace"),
        (await story.store.session(story.key)).user,
    )
    assignment = await story.store.assignment(SessionKey("default", "s:1.1.0"))
    assert assignment is not None
    assert assignment.rules == ExecutorRules(level=1)


async def test_an_executor_works_in_the_own_folder_of_its_parent(story: Story) -> None:
    key = SessionKey("default", "own")
    settings = SessionSettings("/workspace", "/workspace", folder="copy", own_dir="/copied")
    await story.store.create_session(key, settings)
    handed = Handed(key, 1, 1, "delegate:1.1.0", task(0, executor="own:1.1.0"))

    await story.store.open_executor(handed)

    made = await story.store.session(SessionKey("default", "own:1.1.0"))
    assert (made.working_dir, made.own_dir) == ("/copied", None)
