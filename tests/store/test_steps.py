"""Preparing steps and finishing turns: rows that the first writer wins."""

from dataclasses import replace
from pathlib import Path

import pytest
from stories import Open, Story

from everturn.context.cuts import Extent
from everturn.messages import user_text
from everturn_activities.store import CallFailure, sql, steps


async def test_prepare_admits_steered_messages_and_leaves_queued_ones(story: Story) -> None:
    await story.send("start")
    turn = await story.begun()
    await story.send("later")
    await story.send("now", mode="steer")
    context = await story.prepare(turn)
    assert await story.transcript() == ["user: start", "user: now"]
    assert context.upto == 2
    opening, admitted = await story.told("message_admitted")
    assert (opening.body["message_id"], opening.step) == ("m1", 1)
    assert (admitted.body["message_id"], admitted.step) == ("m3", 1)
    assert (await story.finish(turn)).more


async def test_a_steered_message_reads_after_the_results_of_the_step_before(story: Story) -> None:
    await story.send("start")
    turn = await story.begun()
    await story.step(turn, 1, calls=["tool"])
    await story.send("now", mode="steer")
    await story.begin_tool(turn)
    await story.end_tool(turn)
    await story.prepare(turn, 2)
    assert [line.split(":")[0] for line in await story.transcript()] == [
        "user",
        "assistant",
        "tool",
        "user",
    ]


async def test_results_enter_the_transcript_in_call_order_whatever_ended_first(
    story: Story,
) -> None:
    await story.send()
    turn = await story.begun()
    await story.step(turn, 1, calls=["a", "b", "c"])
    for index in (2, 0, 1):
        await story.begin_tool(turn, index)
        await story.end_tool(turn, index, text=f"result {index}")
    await story.prepare(turn, 2)
    assert (await story.transcript())[-1] == (
        "tool: call-0=result 0, call-1=result 1, call-2=result 2"
    )


async def test_prepare_run_again_answers_alike_and_admits_nothing_new(story: Story) -> None:
    await story.send("start")
    turn = await story.begun()
    first = await story.prepare(turn)
    await story.send("now", mode="steer")
    assert await story.prepare(turn) == replace(first, reruns=1)
    assert await story.transcript() == ["user: start"]
    await story.prepare(turn, 2)
    assert await story.transcript() == ["user: start", "user: now"]


async def test_a_prepared_step_answers_a_later_host_in_its_own_name(story: Story) -> None:
    await story.send()
    old = await story.begun("run-1")
    first = await story.prepare(old)
    new = await story.begun("run-2", previous="run-1")
    again = await story.prepare(new)
    assert (again.upto, again.placement) == (first.upto, first.placement)
    assert again.epoch == new.epoch


async def test_a_cancel_since_a_step_was_prepared_holds_when_it_is_prepared_again(
    story: Story,
) -> None:
    await story.send()
    turn = await story.begun()
    assert not (await story.prepare(turn)).cancelled
    await story.cancel()
    assert (await story.prepare(turn)).cancelled


async def test_finish_run_again_tells_the_outcome_once_and_the_first_one_stands(
    story: Story,
) -> None:
    await story.send()
    turn = await story.begun()
    await story.step(turn)
    assert await story.finish(turn) == await story.finish(turn, outcome="max_steps")
    (finished,) = await story.told("turn_finished")
    assert finished.body["outcome"] == "completed"
    assert finished.body["text"] == "text of step 1"
    assert finished.body["cost_usd"] == 0.5
    assert finished.body["usage"] == {"input_tokens": 3, "output_tokens": 2, "model_calls": 1}


async def test_a_call_without_a_price_leaves_the_known_sum_and_is_counted(story: Story) -> None:
    await story.send()
    turn = await story.begun()
    await story.step(turn, calls=["a"])
    await story.end_tool(turn, attempt=0)
    context = await story.prepare(turn, 2)
    await story.reply(context, await story.start(context), cost_usd=None)
    await story.finish(turn, step=2)
    (finished,) = await story.told("turn_finished")
    assert (finished.body["cost_usd"], finished.body["unpriced_calls"]) == (0.5, 1)
    (view,) = await story.store.turns(story.key)
    for usage in (view.usage, (await story.store.session(story.key)).usage):
        assert (usage.cost_usd, usage.unpriced_calls, usage.model_calls) == (0.5, 1, 2)
    steps = [(step.usage.cost_usd, step.usage.unpriced_calls) for step in view.steps]
    assert steps == [(0.5, 0), (0.0, 1)]


async def test_a_call_that_never_ended_is_answered_when_its_turn_ends(story: Story) -> None:
    await story.send()
    turn = await story.begun()
    await story.step(turn, 1, calls=["a", "b"])
    await story.begin_tool(turn, 1)
    await story.end_tool(turn, 1)
    await story.finish(turn, outcome="cancelled")
    assert (await story.transcript())[-1] == (
        "tool: call-0=The call did not run to its end., call-1=ok"
    )


async def test_a_turn_that_ends_where_it_was_resumed_answers_the_calls_of_its_last_step(
    story: Story,
) -> None:
    """The adopting run goes back before the last step, and a cancel ends it right there."""
    await story.send()
    turn = await story.begun("run-1")
    await story.step(turn, 1, calls=["a"])
    await story.cancel()
    resumed = await story.begun("run-2", previous="run-1")
    assert (resumed.step, resumed.cancelled) == (0, True)
    await story.finish(resumed, "run-2", outcome="cancelled", step=0)
    assert (await story.transcript())[-1] == "tool: call-0=The call did not run to its end."


async def test_why_the_last_model_call_failed_is_the_reason_of_the_outcome(story: Story) -> None:
    await story.send()
    turn = await story.begun()
    context = await story.prepare(turn)
    attempt = await story.start(context)
    await story.store.fail_model_call(context, attempt, CallFailure("The key was refused.", 1))
    await story.finish(turn, outcome="model_failed", step=0)
    (finished,) = await story.told("turn_finished")
    assert finished.body["reason"] == "The key was refused."
    (view,) = await story.store.turns(story.key)
    assert (view.outcome, view.reason) == ("model_failed", "The key was refused.")


async def test_the_first_line_of_the_first_message_names_the_session(story: Story) -> None:
    await story.send("Sort the files\nby size")
    await story.begun()
    view = await story.store.session(story.key)
    assert (view.title, view.status, view.turn) == ("Sort the files", "running", 1)


async def test_the_transcript_is_read_up_to_where_a_step_was_prepared(story: Story) -> None:
    await story.send("start")
    turn = await story.begun()
    first = await story.step(turn, 1)
    assert len((await story.store.history(story.key, Extent(first.upto, 0))).whole) == 1
    await story.send("now", mode="steer")
    second = await story.prepare(turn, 2)
    assert [
        m.role for m in (await story.store.history(story.key, Extent(second.upto, 0))).whole
    ] == [
        "user",
        "assistant",
        "user",
    ]
    assert len((await story.store.history(story.key, Extent(first.upto, 0))).whole) == 1


async def test_specs_of_turns_that_another_process_finishes_are_not_kept_for_ever(
    story: Story, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "SPECS_KEPT", 2)
    async with opened(tmp_path) as other:
        specs = []
        for number in range(1, 5):
            await story.send()
            turn = await story.begun(f"run-{number}")
            specs.append(await other.store.spec(story.key, turn.turn))
            await story.finish(turn, f"run-{number}", step=0)
            # Asked for again and again, the first one stays.
            await other.store.spec(story.key, 1)
        assert isinstance(other.store, sql.SqlStore)
        assert [turn for _, turn in other.store._specs] == [4, 1]
        # Turns under one spec share it, however many they are.
        assert len({id(spec) for spec in specs}) == 1


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("Sort the files.\nAll of them.", "Sort the files."),
        ('{\n  "invoice": 7,\n  "due": "May"\n}', '"invoice": 7,'),
        ("???", "???"),
        ("", "untitled"),
    ],
)
def test_a_session_is_called_by_the_first_line_that_says_something(said, title):
    assert steps.title(user_text(said)) == title
