"""Taking a session back to a step: nothing is deleted, and it can be undone."""

from dataclasses import replace

import pytest
from stories import ME, Story
from test_forks import called, fork, in_session, worked

from everturn.client import event_from_flat
from everturn.errors import UsageError
from everturn.executors import Delegation, ExecutorRules
from everturn.session import FinishTurn, RunTools, SessionKey, TurnHead
from everturn_activities.store import ExecutorTurn, FollowUp, Handed, Rewound, cuts


async def tokens(story: Story) -> int:
    return await story.store.context_tokens(story.key) // 7


async def rewind(story: Story, turn: int, step: int | None = None) -> Rewound:
    return await story.store.forks.rewind(story.key, turn, step)


async def test_what_comes_behind_a_turn_is_sent_no_more_until_that_is_undone(story: Story) -> None:
    await worked(story, "one", "two", "three")
    whole = await story.transcript()

    assert await rewind(story, 1) == Rewound(1, None, 4)

    assert (await tokens(story), await story.transcript()) == (2, whole)
    # Asked twice, it is done once.
    assert await rewind(story, 1) == Rewound(1, None, 0)
    (told,) = await story.told("session_rewound")
    assert (told.body["at_turn"], told.body["first"], told.body["last"]) == (1, 3, 6)
    # As one flat object, in which its own turn is another.
    assert event_from_flat(told.flat()) == told
    await worked(story, "four")
    assert await tokens(story) == 4
    assert (await story.store.forks.undo_rewind(story.key)).first == 3
    assert await tokens(story) == 8
    with pytest.raises(UsageError, match="'s' was not taken back"):
        await story.store.forks.undo_rewind(story.key)


async def test_a_session_goes_back_into_the_midst_of_a_turn(story: Story) -> None:
    turn = await called(story)
    await story.step(turn, 2)
    await story.finish(turn, "run-call", step=2)
    assert await rewind(story, 1, 1) == Rewound(1, 1, 1)
    assert await tokens(story) == 3
    folder = await story.store.folder(story.key)
    # No call came behind it, so no file can have changed.
    assert folder.restore_turn == 0


async def test_files_are_due_to_go_back_to_the_earliest_step_that_was_asked_for(
    story: Story,
) -> None:
    await worked(story, "one")
    turn = await called(story)
    await story.step(turn, 2)
    await story.finish(turn, "run-call", step=2)
    for to, since in (((1, None), (2, 0)), ((1, 1), (1, 2)), ((1, None), (1, 2))):
        await rewind(story, *to)
        await story.store.forks.undo_rewind(story.key)
        folder = await story.store.folder(story.key)
        assert (folder.restore_turn, folder.restore_step) == since
    await story.store.files_restored(story.key, 0, None, (1, 2), "done")
    await story.store.files_restored(story.key, 0, None, (1, 2), "done")
    folder = await story.store.folder(story.key)
    assert (folder.restore_turn, folder.restore_step) == (0, 0)
    assert len(await story.told("status")) == 1


async def test_files_that_another_rewind_has_go_back_further_meanwhile_stay_due(
    story: Story,
) -> None:
    await worked(story, "one")
    await story.finish(await called(story), "run-call")
    await rewind(story, 1)
    due = []
    for since in ((2, 2), (2, 0)):
        await story.store.files_restored(story.key, 0, None, since, "done")
        folder = await story.store.folder(story.key)
        due.append((folder.restore_turn, folder.restore_step))
    assert due == [(2, 0), (0, 0)]


async def test_a_session_that_works_is_not_taken_back(story: Story) -> None:
    await worked(story, "one", "two")
    await story.send("three")
    for act in (lambda: rewind(story, 1), lambda: story.store.forks.undo_rewind(story.key)):
        with pytest.raises(UsageError, match="cancel it with 'everturn cancel s', or wait"):
            await act()
    turn = await story.begun("run-3")
    with pytest.raises(UsageError, match="cancel it"):
        await rewind(story, 1)
    await story.step(turn)
    await story.finish(turn, "run-3")
    assert (await rewind(story, 1)).messages == 4


async def test_a_summary_of_what_is_taken_back_is_taken_back_with_it(story: Story) -> None:
    await worked(story, "one", "two", "three")
    await in_session(story, lambda s: cuts.cut(s, "compaction", 1, 4, 1, "the gist", 5))
    await rewind(story, 1)
    assert await tokens(story) == 2


async def test_what_was_taken_back_can_only_be_forked(story: Story) -> None:
    await worked(story, "one", "two")
    await rewind(story, 1)
    await worked(story, "three")
    with pytest.raises(UsageError, match=r"since a rewind; 'everturn rewind s --undo' takes that"):
        await rewind(story, 2)
    assert await tokens(await fork(story, turn=2)) == 4
    assert await tokens(await fork(story, "g")) == 4
    assert "user: two" not in (await (await fork(story, "h", turn=1)).transcript())


def task(executor: str, **more: object) -> Delegation:
    made = {"index": 0, "executor": executor, "task": "Work.", "agent": "default", **more}
    return Delegation.model_validate({**made, "rules": ExecutorRules(level=1)})


async def delegates(story: Story, run: str, executor: str, **more: object) -> TurnHead:
    """An open turn whose first step has handed a task to an executor, which has it."""
    if story.key.session == "s":
        await story.send("go")
    turn = await story.begun(run)
    await story.step(turn, calls=["delegate"])
    request = RunTools(*story.key, turn.turn, 1, turn.epoch, [])
    (handed,) = await story.store.hand_over(request, 9, [task(executor, **more)], {})
    assert isinstance(handed, Handed)
    await story.store.open_executor(handed)
    return turn


async def ends(story: Story, turn: TurnHead, run: str) -> FollowUp:
    request = FinishTurn(
        *story.key, story.key.workflow_id, run, turn.turn, turn.epoch, 1, "completed"
    )
    return await story.store.finish_turn(request)


async def test_the_turns_of_executors_are_known_by_the_step_above_all(story: Story) -> None:
    child = replace(story, key=SessionKey("default", "c"))
    grandchild = replace(story, key=SessionKey("default", "g"))
    first = await delegates(story, "run-1", "c")
    inner = await delegates(child, "run-c", "g")
    turn = await grandchild.begun("run-g")
    await grandchild.step(turn)
    await ends(grandchild, turn, "run-g")
    await ends(child, inner, "run-c")
    await ends(story, first, "run-1")
    await delegates(story, "run-2", "c")

    found = await story.store.forks.executor_turns(story.key)

    assert found == [
        ExecutorTurn(child.key, 1, (1, 1), False),
        ExecutorTurn(child.key, 0, (2, 1), True),
        ExecutorTurn(grandchild.key, 1, (1, 1), False),
    ]
    assert await story.store.forks.executor_turns(story.key, (1, 2)) == found[1:2]
    await child.begun("run-c2")
    assert (await story.store.forks.executor_turns(story.key, (2, 0))) == [
        ExecutorTurn(child.key, 2, (2, 1), True)
    ]


async def test_executors_in_the_background_end_with_a_turn_that_is_rolled_back(
    story: Story,
) -> None:
    turn = await delegates(story, "run-1", "c", background=True)
    await story.send("instead", mode="rollback")
    end = await ends(story, turn, "run-1")
    assert [key.session for key in end.left] == ["c"]

    child = replace(story, key=SessionKey("default", "c"))
    await ends(child, await child.begun("run-c"), "run-c")

    (told,) = await story.told("executor_finished")
    assert told.body["late"]
    turn = await story.begun("run-2", previous="run-1")
    await story.start(await story.prepare(turn), ME)
    assert [line for line in await story.transcript() if "has done its work" in line] == []


async def test_a_task_that_waits_for_its_executor_is_still_to_be_worked(story: Story) -> None:
    first = await delegates(story, "run-1", "c", background=True)
    await replace(story, key=SessionKey("default", "c")).begun("run-c")
    await ends(story, first, "run-1")
    await delegates(story, "run-2", "c", background=True)
    (found,) = await story.store.forks.executor_turns(story.key, (2, 0))
    assert (found.turn, found.works) == (0, True)
