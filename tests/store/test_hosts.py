"""Who works a session: one run at a time, whatever is lost, stalled or run again."""

from dataclasses import replace

import pytest
from stories import SPEC, Story

from everturn.errors import StaleHost
from everturn.session import SessionKey, TurnHead
from everturn_activities.store import Idle, SessionSettings, SpecNeeded, TakeoverNeeded
from everturn_activities.store.turns import ADOPTIONS_MAX


async def test_a_run_that_finds_nothing_waiting_is_idle_and_hosts_nothing(story: Story) -> None:
    assert isinstance(await story.begin(), Idle)
    await story.send()
    assert isinstance(await story.begin("run-2"), TurnHead)


async def test_a_second_execution_of_begin_answers_alike_and_admits_nothing_new(
    story: Story,
) -> None:
    await story.send("one")
    first = await story.begun()
    await story.send("two")
    assert await story.begun() == first
    assert await story.transcript() == ["user: one"]


async def test_begin_asks_for_a_spec_when_a_message_came_in_between(story: Story) -> None:
    await story.send()
    assert isinstance(await story.begin(spec=None), SpecNeeded)
    assert isinstance(await story.begin("run-2"), TurnHead)


async def test_messages_for_another_agent_wait_for_a_turn_of_their_own(story: Story) -> None:
    await story.send("one")
    await story.send("two", agent="writer")
    await story.send("three")
    turn = await story.begun()
    assert await story.transcript() == ["user: one"]
    assert (await story.finish(turn)).more
    waiting = await story.store.assignment(story.key)
    assert waiting is not None
    assert waiting.agent == "writer"


async def test_another_run_is_refused_until_the_host_is_known_to_be_closed(story: Story) -> None:
    await story.send()
    turn = await story.begun("run-1")
    refused = await story.begin("run-2")
    assert refused == TakeoverNeeded(story.key.workflow_id, "run-1")
    assert isinstance(refused, TakeoverNeeded)
    adopted = await story.begun("run-2", closed=refused)
    assert (adopted.turn, adopted.epoch) == (turn.turn, turn.epoch + 1)


async def test_a_takeover_of_one_host_does_not_rob_the_next(story: Story) -> None:
    await story.send()
    await story.begun("run-1")
    refused = await story.begin("zombie")
    assert isinstance(refused, TakeoverNeeded)
    await story.begun("run-2", closed=refused)
    assert await story.begin("zombie", closed=refused) == TakeoverNeeded(
        story.key.workflow_id, "run-2"
    )


async def test_the_run_that_a_host_continued_as_follows_it_without_being_an_adoption(
    story: Story,
) -> None:
    await story.send()
    turn = await story.begun("run-1")
    await story.step(turn, 1)
    await story.prepare(turn, 2)
    followed = await story.begun("run-2", previous="run-1")
    assert followed.epoch == turn.epoch + 1
    assert followed.step == 1
    assert await story.told("status") == []


async def test_a_turn_is_given_up_when_it_lost_its_workflow_too_often(story: Story) -> None:
    await story.send()
    await story.begun("run-0")
    for number in range(1, ADOPTIONS_MAX + 2):
        refused = await story.begin(f"run-{number}")
        assert isinstance(refused, TakeoverNeeded)
        head = await story.begun(f"run-{number}", closed=refused)
        assert (head.failure is not None) == (number > ADOPTIONS_MAX)
    assert head.failure is not None
    assert "4 times" in head.failure


async def test_an_older_host_can_neither_prepare_call_nor_finish(story: Story) -> None:
    await story.send()
    old = await story.begun("run-1")
    context = await story.prepare(old)
    await story.begun("run-2", previous="run-1")
    with pytest.raises(StaleHost):
        await story.prepare(old, 2)
    with pytest.raises(StaleHost):
        await story.start(context)
    with pytest.raises(StaleHost):
        await story.finish(old)


async def test_a_forgotten_host_stays_if_another_took_over_meanwhile(story: Story) -> None:
    await story.send()
    await story.begun("run-1")
    late = (await story.send()).wake
    assert late is not None
    await story.begun("run-2", previous="run-1")
    await story.store.clear_host(late)
    assert isinstance(await story.begin("run-3"), TakeoverNeeded)


async def test_a_forgotten_host_leaves_its_turn_to_be_adopted(story: Story) -> None:
    await story.send()
    turn = await story.begun("run-1")
    wake = (await story.send()).wake
    assert wake is not None
    await story.store.clear_host(wake)
    adopted = await story.begun("run-2")
    assert adopted.turn == turn.turn
    assert len(await story.told("status")) == 1


async def test_finish_lets_go_when_nothing_waits_and_goes_on_when_something_does(
    story: Story,
) -> None:
    await story.send("one")
    first = await story.begun("run-1")
    await story.send("two")
    assert (await story.finish(first)).more
    second = await story.begun("run-2", previous="run-1")
    assert second.turn == 2
    assert not (await story.finish(second, "run-2")).more
    assert isinstance(await story.begin("run-3"), Idle)


async def test_finish_decides_anew_whether_it_lets_go(story: Story) -> None:
    """Protocol detail 1: a message came in between two executions of finish."""
    await story.send("one")
    turn = await story.begun("run-1")
    assert not (await story.finish(turn)).more
    await story.send("two")
    assert (await story.finish(turn)).more
    assert isinstance(await story.begin("other"), TakeoverNeeded)
    assert len(await story.told("turn_finished")) == 1
    assert (await story.begun("run-2", previous="run-1")).turn == 2


async def test_finish_run_again_leaves_a_session_that_another_run_hosts(story: Story) -> None:
    await story.send("one")
    turn = await story.begun("run-1")
    await story.finish(turn)
    await story.send("two")
    await story.begun("run-2")
    with pytest.raises(StaleHost):
        await story.finish(turn)


async def test_a_run_lost_between_two_turns_is_made_up_for(story: Story) -> None:
    await story.send("one")
    turn = await story.begun("run-1")
    await story.send("two")
    await story.check(turn.turn)
    assert (await story.finish(turn)).more
    story.clock.now += 3
    assert [wake.key for wake in await story.store.left_asleep(2.0, 10)] == [story.key]


async def test_an_open_turn_that_nothing_changes_is_named_with_its_run(story: Story) -> None:
    await story.send()
    await story.begun("run-1")
    assert await story.store.open_hosts(10.0, None, 10) == []
    story.clock.now += 11
    ((wake, run_id),) = await story.store.open_hosts(10.0, None, 10)
    assert (wake.key, run_id) == (story.key, "run-1")


async def test_open_turns_are_named_page_by_page(story: Story) -> None:
    keys = [SessionKey("default", name) for name in ("b", "c", "a")]
    for key in keys:
        await story.store.create_session(key, SessionSettings("/workspace", "/workspace"))
        other = replace(story, key=key)
        await other.send()
        await other.begun("run-1")
    story.clock.now += 11
    first = await story.store.open_hosts(10.0, None, 2)
    rest = await story.store.open_hosts(10.0, first[-1][0].key, 2)
    assert [wake.key.session for wake, _ in (*first, *rest)] == ["a", "b", "c"]


async def test_a_broken_workspace_ends_the_turn_with_its_own_reason(story: Story) -> None:
    broken = SPEC.model_copy(update={"settings_error": "everturn.toml line 3 is wrong; mend it."})
    await story.send()
    turn = await story.begun(spec=broken)
    assert turn.failure is not None
    assert "everturn.toml" not in turn.failure
    await story.finish(turn, outcome="failed", step=0, reason=turn.failure)
    (finished,) = await story.told("turn_finished")
    assert finished.body["reason"] == "everturn.toml line 3 is wrong; mend it."


async def test_a_run_that_follows_begins_after_the_last_step_that_finished_calls_and_all(
    story: Story,
) -> None:
    """Else a run that took one step and continues as new would take that step for ever."""
    await story.send()
    turn = await story.begun("run-1")
    await story.step(turn, 1, calls=["a"])
    assert (await story.begun("run-2", previous="run-1")).step == 0
    turn = await story.begun("run-3", previous="run-2")
    await story.begin_tool(turn)
    await story.end_tool(turn)
    followed = await story.begun("run-4", previous="run-3")
    assert (followed.step, followed.stop) == (1, "tool_use")
    await story.step(followed, 2)
    done = await story.begun("run-5", previous="run-4")
    assert (done.step, done.stop) == (2, "end_turn")
