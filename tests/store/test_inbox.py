"""What is accepted: once, in order, and woken for."""

import asyncio

import pytest
from stories import Story

from everturn.errors import IdempotencyConflict, UnknownSession, UsageError
from everturn.messages import user_text
from everturn.session import SessionKey
from everturn_activities.store import Idle, Inbound


async def test_a_message_sent_twice_is_accepted_once_and_answered_alike(story: Story) -> None:
    first = await story.send("hello", id_="a")
    turn = await story.begun()
    await story.step(turn)
    await story.finish(turn)

    again = await story.send("hello", id_="a")

    assert again.view.duplicate
    assert again.view.model_copy(update={"duplicate": False}) == first.view
    assert isinstance(await story.begin("run-2"), Idle)
    assert await story.transcript() == ["user: hello", "assistant: text of step 1"]


async def test_an_id_used_for_another_content_is_refused_by_name(story: Story) -> None:
    await story.send("hello", id_="a")
    with pytest.raises(IdempotencyConflict, match="'a'"):
        await story.send("goodbye", id_="a")
    assert len(await story.told("message_accepted")) == 1


async def test_a_message_to_an_unknown_session_is_refused_by_name(story: Story) -> None:
    with pytest.raises(UnknownSession, match="'nobody'"):
        await story.store.accept(
            SessionKey("default", "nobody"), Inbound("a", "message", user_text("x"))
        )


async def test_another_tenants_session_of_the_same_name_is_unknown(story: Story) -> None:
    with pytest.raises(UnknownSession):
        await story.store.session(SessionKey("other", story.key.session))
    assert await story.store.sessions("other", 10, None) == []


async def test_fifty_messages_at_once_take_positions_in_the_order_of_acceptance(
    story: Story,
) -> None:
    accepted = await asyncio.gather(*(story.send(f"text {n}", id_=f"m{n}") for n in range(50)))
    assert sorted(a.view.position for a in accepted) == list(range(1, 51))

    turn = await story.begun()
    by_position = sorted(accepted, key=lambda a: a.view.position)
    (started,) = await story.told("turn_started")
    assert started.body["messages"] == [a.view.id for a in by_position]
    assert await story.transcript() == [f"user: text {a.view.id[1:]}" for a in by_position]
    assert turn.turn == 1


async def test_only_the_sender_that_set_wake_at_signals_until_the_turn_has_looked(
    story: Story,
) -> None:
    assert (await story.send()).wake is not None
    assert (await story.send()).wake is None
    turn = await story.begun()
    assert (await story.send()).wake is not None
    assert (await story.send()).wake is None
    await story.check(turn.turn)
    assert (await story.send()).wake is not None


async def test_preparing_a_step_is_a_look_at_the_inbox_too(story: Story) -> None:
    await story.send()
    turn = await story.begun()
    await story.send()
    await story.prepare(turn)
    assert (await story.send()).wake is not None


async def test_a_run_whose_turn_is_over_takes_no_wake_up(story: Story) -> None:
    await story.send()
    turn = await story.begun()
    await story.finish(turn)
    await story.send()
    await story.check(turn.turn)
    story.clock.now += 10
    assert [wake.key for wake in await story.store.left_asleep(2.0, 10)] == [story.key]


async def test_a_sender_that_asks_again_wakes_where_the_first_may_have_crashed(
    story: Story,
) -> None:
    await story.send("hello", id_="a")
    assert (await story.send("hello", id_="a")).wake is not None
    await story.begun()
    assert (await story.send("hello", id_="a")).wake is None


async def test_a_session_left_asleep_is_named_once_and_put_off(story: Story) -> None:
    await story.send()
    assert await story.store.left_asleep(2.0, 10) == []
    story.clock.now += 3
    assert [wake.key for wake in await story.store.left_asleep(2.0, 10)] == [story.key]
    assert await story.store.left_asleep(2.0, 10) == []
    story.clock.now += 3
    assert len(await story.store.left_asleep(2.0, 10)) == 1


async def test_a_cancel_means_the_open_turn(story: Story) -> None:
    await story.send()
    turn = await story.begun()
    accepted = await story.cancel()
    assert accepted.view.status == "accepted"
    assert accepted.wake is not None
    assert (await story.check(turn.turn)).cancelled
    assert await story.store.cancelled(story.key, turn.turn)


async def test_a_cancel_of_a_turn_that_nothing_waits_for_is_refused(story: Story) -> None:
    await story.send()
    await story.begun()
    await story.send()

    with pytest.raises(UsageError, match=r"Session '.*' has no turn 3; its newest is 1\."):
        await story.cancel(3)

    assert (await story.cancel(2)).view.status == "accepted"


@pytest.mark.parametrize("target", [None, 1])
async def test_a_cancel_of_a_closed_turn_is_too_late_and_wakes_nobody(
    story: Story, target: int | None
) -> None:
    await story.send()
    turn = await story.begun()
    await story.finish(turn)
    accepted = await story.cancel(target)
    assert accepted.view.status == "too_late"
    assert accepted.wake is None
    assert (await story.told("cancel_accepted"))[0].body["too_late"]
    await story.send()
    assert not (await story.begun("run-2")).cancelled


async def test_a_cancel_before_its_turn_began_cancels_it_when_it_opens(story: Story) -> None:
    await story.send()
    assert (await story.cancel()).view.status == "accepted"
    assert (await story.begun()).cancelled


async def test_cancels_of_two_turns_do_not_undo_each_other(story: Story) -> None:
    await story.send()
    turn = await story.begun()
    await story.send()
    await story.cancel(target=1)
    await story.cancel(target=2)
    assert (await story.check(1)).cancelled
    assert (await story.finish(turn, outcome="cancelled")).more
    assert (await story.begun("run-2", previous="run-1")).cancelled


async def test_a_cancel_of_one_turn_leaves_the_next_alone(story: Story) -> None:
    await story.send()
    turn = await story.begun()
    await story.send()
    await story.cancel()
    await story.finish(turn, outcome="cancelled")
    assert not (await story.begun("run-2", previous="run-1")).cancelled


async def test_a_cancelled_turn_takes_no_steered_message_in(story: Story) -> None:
    await story.send()
    turn = await story.begun()
    await story.cancel()
    await story.send("for the next turn", mode="steer")
    assert (await story.prepare(turn)).cancelled
    assert (await story.finish(turn, outcome="cancelled", step=0)).more
    await story.begun("run-2", previous="run-1")
    assert (await story.told("turn_started"))[1].body["messages"] == ["m3"]
