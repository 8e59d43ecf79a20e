"""Calls are paid for once: attempts counted by the store, late writers fenced."""

import functools
from dataclasses import replace

import pytest
from stories import ME, SPEC, Story, delta

from everturn.errors import Fenced, StaleHost
from everturn.messages import ToolResult
from everturn.session import ContextHead, StepHead, TurnHead
from everturn_activities.store import (
    Caller,
    CallFailure,
    CompletedTool,
    ToolInterrupted,
    ToolStarted,
    UnfinishedCall,
)

OTHER = Caller("worker-2", "nonce-2", b"token-2")


@pytest.fixture
async def turn(story: Story) -> TurnHead:
    await story.send()
    return await story.begun()


@pytest.fixture
async def context(story: Story, turn: TurnHead) -> ContextHead:
    return await story.prepare(turn)


async def test_a_paid_reply_answers_anyone_whatever_is_asked_now(
    story: Story, context: ContextHead
) -> None:
    head = await story.reply(context, await story.start(context), calls=["a"])
    await story.begun("run-2", previous="run-1")
    for request in (context, replace(context, epoch=99, upto=0, tokens=0, placement="queued")):
        assert await story.store.begin_model_call(request, "other/model", OTHER) == head
    assert len(await story.told("step_started")) == 1


async def test_beginning_a_model_call_demands_the_current_epoch(
    story: Story, context: ContextHead
) -> None:
    with pytest.raises(StaleHost):
        await story.start(replace(context, epoch=context.epoch + 1))
    with pytest.raises(StaleHost):
        await story.start(replace(context, epoch=context.epoch - 1))


async def test_a_call_whose_begin_was_committed_unheard_is_begun_once(
    story: Story, context: ContextHead
) -> None:
    assert [await story.start(context, ME) for _ in range(2)] == [1, 1]
    assert len(await story.told("step_started")) == 1
    assert await story.start(context, OTHER) == 2


async def test_attempts_are_counted_by_the_store_and_a_newer_one_supersedes_the_older(
    story: Story, context: ContextHead
) -> None:
    assert [await story.start(context) for _ in range(3)] == [1, 2, 3]
    assert [event.attempt for event in await story.told("superseded")] == [2, 3]
    kinds = [event.type for event in await story.told("superseded", "step_started")]
    assert kinds == ["step_started", "superseded", "step_started", "superseded", "step_started"]


async def test_a_reply_of_an_overtaken_attempt_is_fenced_and_writes_nothing(
    story: Story, context: ContextHead
) -> None:
    late = await story.start(context)
    newer = await story.start(context, OTHER)
    with pytest.raises(Fenced):
        await story.reply(context, late, "late", deltas=[delta("late", 1)])
    await story.reply(context, newer, "newer")
    with pytest.raises(Fenced):
        await story.reply(context, late, "late")
    assert (await story.transcript())[1:] == ["assistant: newer"]
    assert await story.told("text_delta") == []


async def test_deltas_of_an_overtaken_attempt_are_fenced(
    story: Story, context: ContextHead
) -> None:
    late = await story.start(context)
    await story.start(context, OTHER)
    with pytest.raises(Fenced):
        await story.events.append_deltas(story.key, 1, 1, late, [delta("late", 1, late)])
    assert await story.told("text_delta") == []


async def test_deltas_after_the_reply_are_fenced(story: Story, context: ContextHead) -> None:
    attempt = await story.start(context)
    await story.reply(context, attempt)
    with pytest.raises(Fenced):
        await story.events.append_deltas(story.key, 1, 1, attempt, [delta("late", 1)])


async def test_a_reply_that_comes_after_its_turn_ended_is_fenced(
    story: Story, turn: TurnHead, context: ContextHead
) -> None:
    attempt = await story.start(context)
    await story.finish(turn, outcome="cancelled", step=0)
    await story.send("next")
    await story.begun("run-2")
    with pytest.raises(Fenced):
        await story.reply(context, attempt, "late")
    with pytest.raises(Fenced):
        await story.events.append_deltas(story.key, 1, 1, attempt, [delta("late", 1)])
    assert await story.transcript() == ["user: hello", "user: next"]


async def test_an_older_host_may_record_what_it_paid_for_while_nobody_began_anew(
    story: Story, context: ContextHead
) -> None:
    attempt = await story.start(context)
    new = await story.begun("run-2", previous="run-1")
    head = await story.reply(context, attempt, "paid")
    again = await story.prepare(new)
    assert await story.store.begin_model_call(again, SPEC.agent.model, OTHER) == head


async def test_a_failed_attempt_is_told_and_a_late_failure_changes_nothing(
    story: Story, context: ContextHead
) -> None:
    first = await story.start(context)
    await story.store.fail_model_call(context, first, CallFailure("Overloaded.", 10))
    second = await story.start(context)
    await story.store.fail_model_call(context, first, CallFailure("Overloaded.", 10))
    await story.reply(context, second)
    (status,) = await story.told("status")
    assert status.body["text"] == "Overloaded. Trying again."
    assert status.attempt == 1


async def test_a_failure_is_the_last_where_as_many_were_counted_and_lost_attempts_are_not(
    story: Story, context: ContextHead
) -> None:
    followed = []
    for _ in range(3):
        await story.start(context)  # Its worker is lost: nobody reports of it.
        attempt = await story.start(context)
        failure = CallFailure("Overloaded.", tries_max=3)
        after = await story.store.fail_model_call(context, attempt, failure)
        followed.append((after.then, after.tries))

    assert followed == [("again", 1), ("again", 2), ("end", 3)]
    texts = [status.body["text"] for status in await story.told("status")]
    assert texts[-2:] == ["Overloaded. Trying again.", "Overloaded."]


async def test_a_reply_without_parts_leaves_no_message(story: Story, context: ContextHead) -> None:
    await story.reply(context, await story.start(context), text="")
    assert await story.transcript() == ["user: hello"]


async def test_calls_beyond_the_most_are_answered_without_being_run(
    story: Story, turn: TurnHead, context: ContextHead
) -> None:
    """Protocol detail 11."""
    names = [f"t{n}" for n in range(130)]
    head = await story.reply(context, await story.start(context), calls=names, runs_max=128)
    assert len(head.calls) == 128
    stored = await story.store.tool_calls(story.key, 1, 1)
    assert [call.state for call in stored[127:]] == ["proposed", "done", "done"]
    result = stored[129].result
    assert result is not None
    assert result.failed
    assert "128 calls at most" in result.text
    await story.prepare(turn, 2)
    assert (await story.transcript())[-1].count("call-") == 130


async def test_a_done_call_answers_anyone_and_beginning_one_demands_the_current_epoch(
    story: Story, turn: TurnHead
) -> None:
    await story.step(turn, 1, calls=["a", "b"])
    await story.begin_tool(turn, 0)
    await story.end_tool(turn, 0, text="done")
    await story.begun("run-2", previous="run-1")
    done = await story.begin_tool(turn, 0, OTHER, once=True)
    assert isinstance(done, ToolResult)
    assert done.text == "done"
    with pytest.raises(StaleHost):
        await story.begin_tool(turn, 1)


async def test_a_once_call_with_an_intent_and_no_result_never_starts_again(
    story: Story, turn: TurnHead
) -> None:
    await story.step(turn, 1, calls=["a"])
    assert isinstance(await story.begin_tool(turn, once=True), ToolStarted)
    story.clock.now += 7
    interrupted = await story.begin_tool(turn, caller=OTHER, once=True)
    assert isinstance(interrupted, ToolInterrupted)
    assert (interrupted.call.worker, interrupted.seconds) == (ME.worker, 7)
    assert len(await story.told("tool_started")) == 1


async def test_a_once_call_whose_commit_was_not_acknowledged_knows_its_own_intent(
    story: Story, turn: TurnHead
) -> None:
    """Protocol detail 10."""
    await story.step(turn, 1, calls=["a"])
    first = await story.begin_tool(turn, once=True)
    again = await story.begin_tool(turn, once=True)
    assert isinstance(first, ToolStarted)
    assert isinstance(again, ToolStarted)
    assert again.attempt == first.attempt == 1
    assert len(await story.told("tool_started")) == 1


async def test_a_repeatable_call_begins_again_and_its_older_attempt_is_fenced(
    story: Story, turn: TurnHead
) -> None:
    await story.step(turn, 1, calls=["a"])
    await story.begin_tool(turn)
    again = await story.begin_tool(turn, caller=OTHER)
    assert isinstance(again, ToolStarted)
    assert again.attempt == 2
    with pytest.raises(Fenced):
        await story.end_tool(turn, attempt=1, text="late")
    await story.end_tool(turn, attempt=2, text="newer")
    await story.end_tool(turn, attempt=1, text="late")
    (call,) = await story.store.tool_calls(story.key, 1, 1)
    assert call.result is not None
    assert call.result.text == "newer"
    assert len(await story.told("tool_finished")) == 1


async def test_a_result_that_comes_after_its_turn_ended_is_fenced(
    story: Story, turn: TurnHead
) -> None:
    await story.step(turn, 1, calls=["a"])
    await story.begin_tool(turn)
    await story.finish(turn, outcome="cancelled")
    with pytest.raises(Fenced):
        await story.end_tool(turn)
    assert (await story.told())[-1].type == "turn_finished"


async def test_inline_calls_need_no_intent_and_the_first_result_stands(
    story: Story, turn: TurnHead
) -> None:
    await story.step(turn, 1, calls=["a", "b"])
    for text in ("first", "second"):
        results = [ToolResult(call_id=f"call-{i}", name="t", text=text) for i in range(2)]
        done = [CompletedTool(i, 0, result, 0.1) for i, result in enumerate(results)]
        await story.store.complete_tools(story.key, 1, 1, turn.epoch, done)
    kinds = [e.type for e in await story.told("tool_started", "tool_finished")]
    assert kinds == ["tool_started", "tool_finished"] * 2
    stored = await story.store.tool_calls(story.key, 1, 1)
    assert [call.result.text for call in stored if call.result] == ["first", "first"]


async def test_an_inline_result_of_an_older_host_is_refused(story: Story, turn: TurnHead) -> None:
    await story.step(turn, 1, calls=["a"])
    await story.begun("run-2", previous="run-1")
    with pytest.raises(StaleHost):
        await story.end_tool(turn, attempt=0)


async def test_queued_calls_without_a_result_are_named_with_worker_and_token(
    story: Story, turn: TurnHead, context: ContextHead
) -> None:
    attempt = await story.start(context)
    assert await story.store.unfinished_calls() == [UnfinishedCall("worker-1", b"token-1")]
    await story.reply(context, attempt, calls=["a"])
    assert await story.store.unfinished_calls() == []
    await story.begin_tool(turn, caller=OTHER)
    assert await story.store.unfinished_calls() == [UnfinishedCall("worker-2", b"token-2")]
    await story.end_tool(turn)
    assert await story.store.unfinished_calls() == []


async def test_durations_of_the_newest_calls_come_first(story: Story, turn: TurnHead) -> None:
    for step, seconds in ((1, 1.0), (2, 3.0), (3, 2.0)):
        context = await story.prepare(turn, step)
        attempt = await story.start(context)
        story.clock.now += seconds
        await story.reply(context, attempt)
    assert await story.store.durations("model", SPEC.agent.model, 2) == [2.0, 3.0]
    assert await story.store.durations("model", "other", 2) == []


async def test_a_step_head_comes_back_as_it_was_recorded(
    story: Story, context: ContextHead
) -> None:
    head = await story.reply(context, await story.start(context), calls=["a", "b"])
    known = await story.store.begin_model_call(context, SPEC.agent.model, OTHER)
    assert isinstance(known, StepHead)
    assert known == head


async def test_a_call_that_lost_its_worker_too_often_does_not_begin_again(
    story: Story, turn: TurnHead
) -> None:
    await story.step(turn, 1, calls=["a"])
    began = [
        await story.begin_tool(turn, caller=replace(ME, nonce=str(number))) for number in range(6)
    ]

    assert [type(each) for each in began] == [ToolStarted] * 5 + [ToolInterrupted]
    assert len(await story.told("tool_started")) == 5


async def test_K28_what_a_call_says_is_told_only_while_its_attempt_runs(
    story: Story, turn: TurnHead
) -> None:
    await story.step(turn, 1, calls=["a"])

    async def says(attempt: int, text: str) -> None:
        await story.store.tell_output(story.key, 1, 1, 0, attempt, 1, text)

    with pytest.raises(Fenced):
        await says(0, "before it began")
    await story.begin_tool(turn)
    await says(1, "one")
    await story.begin_tool(turn, caller=OTHER)
    with pytest.raises(Fenced):
        await says(1, "late")
    await says(2, "two")
    await story.end_tool(turn, attempt=2)
    with pytest.raises(Fenced):
        await says(2, "after it ended")
    await story.finish(turn)
    with pytest.raises(Fenced):
        await says(2, "after its turn")

    assert [event.body["text"] for event in await story.told("tool_output")] == ["one", "two"]


async def test_a_whole_result_is_kept_for_its_session_and_a_boundary_for_its_turn(
    story: Story, turn: TurnHead
) -> None:
    await story.step(turn, 1, calls=["a", "b"])
    results = [ToolResult(call_id=f"call-{i}", name="t", text="cut") for i in range(2)]
    done = [
        CompletedTool(i, 0, result, 0.1, whole)
        for i, (result, whole) in enumerate(zip(results, ("the whole", None), strict=True))
    ]
    await story.store.complete_tools(story.key, 1, 1, turn.epoch, done)

    assert await story.store.whole_result(story.key, 1, 1, 0) == "the whole"
    assert await story.store.whole_result(story.key, 1, 1, 1) is None
    assert await story.store.whole_result(story.key, 1, 1, 7) is None
    first = await story.store.boundary(story.key, 1)
    assert first == await story.store.boundary(story.key, 1)
    assert len(first) == 12


async def test_a_once_call_runs_again_after_the_attempt_that_a_person_named_and_once(
    story: Story,
) -> None:
    await story.send()
    turn = await story.begun()
    await story.step(turn, calls=["tool"])
    begin = functools.partial(story.store.begin_tool, story.key, turn.turn, 1, 0, turn.epoch)
    await begin(Caller("one", "n1"), True)
    assert await begin(Caller("two", "n2"), True, 2) == await begin(Caller("two", "n2"), True)

    again = await begin(Caller("two", "n3"), True, 1)
    late = await begin(Caller("three", "n4"), True, 1)

    assert isinstance(again, ToolStarted)
    assert isinstance(late, ToolInterrupted)
    assert (again.attempt, late.attempt, late.call.worker) == (2, 2, "two")
