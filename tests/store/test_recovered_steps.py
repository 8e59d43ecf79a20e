"""What the store keeps of replies that were cut, and of calls that another model takes over."""

import pytest
from stories import SPEC, Story

from everturn.context import nudges
from everturn.session import PrepareStep, Stop, TurnHead
from everturn_activities.store import AfterFailure, CallFailure


@pytest.fixture
async def turn(story: Story) -> TurnHead:
    await story.send("hello")
    return await story.begun()


async def replied(story: Story, turn: TurnHead, step: int, text: str, stop: Stop) -> None:
    context = await story.prepare(turn, step)
    await story.reply(context, await story.start(context), text, stop=stop)


async def test_b16_a_cut_reply_and_its_nudge_end_what_the_next_step_reads(
    story: Story, turn: TurnHead
) -> None:
    await replied(story, turn, 1, "one and", "max_tokens")
    await story.send("hurry", mode="steer")

    context = await story.prepare(turn, 2)

    expected = ["user: hello", "assistant: one and", f"user: {nudges.CUT}", "user: hurry"]
    assert await story.transcript() == expected
    assert context.upto == len(expected)
    await story.prepare(turn, 2)
    assert await story.transcript() == expected


async def test_a_resumed_turn_knows_how_many_replies_in_a_row_were_no_answer(
    story: Story, turn: TurnHead
) -> None:
    await replied(story, turn, 1, "x", "max_tokens")
    await story.step(turn, 2, calls=())
    for step, stop in ((3, "max_tokens"), (4, "empty")):
        await replied(story, turn, step, "" if stop == "empty" else "y", stop)

    resumed = await story.begun("run-2", previous="run-1")

    assert (resumed.step, resumed.stop, resumed.recoveries) == (4, "empty", 2)
    assert resumed.recoveries_max == SPEC.agent.recoveries_max


async def test_the_text_of_a_turn_is_its_last_reply_with_the_cut_pieces_before_it(
    story: Story, turn: TurnHead
) -> None:
    await replied(story, turn, 1, "not this. ", "tool_use")
    await replied(story, turn, 2, "One ", "max_tokens")
    await replied(story, turn, 3, "and ", "max_tokens")
    await replied(story, turn, 4, "two.", "end_turn")

    await story.finish(turn, step=4)

    (finished,) = await story.told("turn_finished")
    assert finished.body["text"] == "One and two."


async def test_stalls_are_counted_apart_from_other_failures(story: Story, turn: TurnHead) -> None:
    context = await story.prepare(turn)
    silent = CallFailure("Silence.", tries_max=2, stalled=True)
    busy = CallFailure("Overloaded.", tries_max=3)

    followed = []
    for failure in (busy, silent, busy, silent):
        attempt = await story.start(context)
        followed.append(await story.store.fail_model_call(context, attempt, failure))

    again = [AfterFailure("again", tries) for tries in (1, 1, 2)]
    assert followed == [*again, AfterFailure("end", 2)]


async def test_b18_a_switch_is_recorded_and_holds_for_every_later_attempt_of_the_step(
    story: Story, turn: TurnHead
) -> None:
    context = await story.prepare(turn)
    failure = CallFailure("Overloaded.", tries_max=1, next_model="other/model")
    attempt = await story.start(context)

    after = await story.store.fail_model_call(context, attempt, failure)
    await story.start(context)
    last = await story.start(context)

    assert after.then == "switch"
    asked = [event.body["model"] for event in await story.told("step_started")]
    assert asked == [SPEC.agent.model, "other/model", "other/model"]
    (status,) = await story.told("status")
    text = f"Overloaded. Switching from {SPEC.agent.model} to other/model."
    assert status.body["text"] == text
    # The next model has tries of its own.
    patient = CallFailure("Overloaded.", tries_max=2)
    after = await story.store.fail_model_call(context, last, patient)
    assert after == AfterFailure("again", 1)


async def test_a_model_that_rests_is_named_once_a_turn(story: Story, turn: TurnHead) -> None:
    for step in (1, 2):
        request = PrepareStep(*story.key, turn.turn, step, turn.epoch, resting="openai/own")
        context = await story.store.prepare_step(request, "inline", "openai/spare")
        await story.reply(context, await story.start(context), stop="tool_use")

    (status,) = await story.told("status")
    text = "Model openai/own failed too often of late. Switching to openai/spare."
    assert (status.body["text"], status.step) == (text, 1)
    asked = [event.body["model"] for event in await story.told("step_started")]
    assert asked == ["openai/spare", "openai/spare"]
