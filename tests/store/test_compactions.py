"""Compactions in the store: paid once, fenced, counted, and read by the step that waits."""

from dataclasses import replace

import pytest
from stories import Story, anew

from everturn.agents import Compaction
from everturn.budgets import Budget
from everturn.context.cuts import Extent
from everturn.context.window import Frame
from everturn.errors import Fenced, UsageError
from everturn.session import Compact, Compacted, ContextHead, PrepareStep, SessionKey, TurnHead
from everturn.views import BudgetView
from everturn_activities.gateways import Usage
from everturn_activities.store import Caller, CompactionStarted, SessionSettings, pinned
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.sql import SqlStore

# Each message of a story takes 7 tokens.
FRAME = Frame(window=100, system=10, tools=5, compaction=Compaction(keep_last=2))
USED = Usage(input_tokens=50, output_tokens=5)


async def conversation(story: Story, turns: int) -> TurnHead:
    """So many turns of two messages, and one more that has begun."""
    for number in range(1, turns + 1):
        await story.send(f"question {number}")
        turn = await story.begun(f"run-{number}")
        await story.step(turn)
        await story.finish(turn, f"run-{number}")
    await story.send("the last question")
    return await story.begun(f"run-{turns + 1}")


async def prepare(
    story: Story, turn: TurnHead, frame: Frame = FRAME, tried: bool = False
) -> ContextHead:
    request = PrepareStep(*story.key, turn.turn, 1, turn.epoch, tried=tried)
    return await story.store.prepare_step(request, "inline", "openai/test", frame)


def asked(context: ContextHead, **more: object) -> Compact:
    head = Compact(
        context.tenant,
        context.session,
        context.turn,
        context.step,
        context.epoch,
        context.compaction,
    )
    return replace(head, **more)  # type: ignore[arg-type]


async def begin(story: Story, request: Compact, caller: Caller | None = None) -> CompactionStarted:
    caller = caller or anew()
    begun = await story.store.begin_compaction(request, FRAME, "openai/test", 3, caller)
    assert isinstance(begun, CompactionStarted), begun
    return begun


async def complete(
    story: Story, request: Compact, attempt: int, text: str = "the gist"
) -> Compacted:
    return await story.store.complete_compaction(
        request, attempt, text, f"content of {text}", USED, 0.25, FRAME
    )


async def fail(story: Story, request: Compact, attempt: int, attempts_max: int = 1) -> bool:
    return await story.store.fail_compaction(
        request, attempt, "It was busy.", attempts_max, 3, USED, 0.25
    )


async def statuses(story: Story) -> list[str]:
    return [event.body["text"] for event in await story.told("status")]


async def test_B23_the_level_of_a_step_is_told_and_a_compaction_is_due_at_90_percent(
    story: Story,
) -> None:
    turn = await conversation(story, 4)  # 9 messages, 63 tokens and 15 beside them
    context = await prepare(story, turn)
    assert (context.level, context.compaction, context.tokens) == ("none", 0, 78)
    for window, level in ((97, "warn"), (86, "compact"), (82, "critical")):
        await story.finish(turn, f"run-{turn.turn}")
        await story.send("one more")
        turn = await story.begun(f"run-{turn.turn + 1}")
        window += 7 * (turn.turn - 5)
        context = await prepare(story, turn, replace(FRAME, window=window))
        assert (context.level, bool(context.compaction)) == (level, level != "warn")


async def test_the_step_that_waits_reads_what_the_compaction_leaves(story: Story) -> None:
    turn = await conversation(story, 6)  # 13 messages, 91 tokens
    before = await prepare(story, turn)
    assert (before.level, before.compaction, before.cuts) == ("critical", 1, 0)

    request = asked(before)
    begun = await begin(story, request)
    # The last message stays whatever it takes; of the other nothing fits beside it but one.
    assert (begun.attempt, begun.plan.last, begun.plan.tokens) == (1, 11, 77)
    assert await complete(story, request, 1) == Compacted(1)

    after = await prepare(story, turn)
    assert (after.level, after.compaction, after.cuts) == ("none", 0, 1)
    assert (after.upto, after.tokens) == (13, 15 + 3 * 7)
    assert len((await story.store.history(story.key, after.extent)).whole) == 3
    (compacted,) = await story.told("compacted")
    assert (compacted.body["tokens_before"], compacted.body["tokens_after"]) == (91, 21)
    assert compacted.body["cost_usd"] == 0.25


async def test_a_completed_compaction_answers_every_later_execution(story: Story) -> None:
    turn = await conversation(story, 6)
    request = asked(await prepare(story, turn))
    await begin(story, request)
    made = await complete(story, request, 1)
    assert await story.store.begin_compaction(request, FRAME, "m", 3, anew()) == made
    assert await complete(story, request, 1) == made
    assert len(await story.told("compacted")) == 1


async def test_a_later_attempt_keeps_the_plan_and_fences_the_earlier_one(story: Story) -> None:
    turn = await conversation(story, 6)
    request = asked(await prepare(story, turn))
    first = await begin(story, request)
    await story.send("now", mode="steer")
    second = await begin(story, request)
    assert (second.attempt, second.plan) == (2, first.plan)
    with pytest.raises(Fenced):
        await complete(story, request, 1)
    with pytest.raises(Fenced):
        await fail(story, request, 1)
    assert await complete(story, request, 2) == Compacted(1)
    assert len(await story.told("compaction_started")) == 1


async def test_preparing_again_names_the_same_compaction_until_it_has_ended(story: Story) -> None:
    turn = await conversation(story, 6)
    request = asked(await prepare(story, turn))
    await begin(story, request)
    assert (await prepare(story, turn)).compaction == 1
    await fail(story, request, 1)
    assert (await prepare(story, turn)).compaction == 2


async def test_one_that_failed_is_made_before_the_next_step_and_when_critical_at_once(
    story: Story,
) -> None:
    turn = await conversation(story, 6)
    wide = replace(FRAME, window=116)  # 106 of 116: compact
    context = await prepare(story, turn, wide)
    assert (context.level, context.compaction) == ("compact", 1)
    await begin(story, asked(context))
    await fail(story, asked(context), 1)
    assert (await prepare(story, turn, wide, tried=True)).compaction == 0
    assert (await prepare(story, turn, wide)).compaction == 2


async def test_after_three_failures_the_turn_goes_on_without_and_the_next_turn_tries_again(
    story: Story,
) -> None:
    turn = await conversation(story, 6)
    wide = replace(FRAME, window=107)
    for ordinal in (1, 2, 3):
        context = await prepare(story, turn, wide)
        assert (context.level, context.compaction) == ("critical", ordinal)
        await begin(story, asked(context))
        assert await fail(story, asked(context), 1)
    assert "After 3 failures the turn goes on without" in (await statuses(story))[-1]
    context = await prepare(story, turn, wide)
    assert (context.compaction, context.overfull) == (0, False)

    await story.reply(context, await story.start(context))
    await story.finish(turn, "run-7")
    await story.send("and now?")
    assert (await prepare(story, await story.begun("run-8"), wide)).compaction == 1


async def test_attempts_that_the_provider_failed_count_and_the_last_one_gives_up(
    story: Story,
) -> None:
    turn = await conversation(story, 6)
    request = asked(await prepare(story, turn))
    for attempt, final in ((1, False), (2, False), (3, True)):
        assert (await begin(story, request)).attempt == attempt
        assert await fail(story, request, attempt, attempts_max=3) is final
    assert await story.store.begin_compaction(request, FRAME, "m", 3, anew()) == Compacted(0)
    assert await statuses(story) == ["The conversation could not be summarised: It was busy."]


async def test_one_that_loses_its_workers_again_and_again_is_given_up(story: Story) -> None:
    turn = await conversation(story, 6)
    request = asked(await prepare(story, turn))
    for _ in range(5):
        await begin(story, request)
    assert await story.store.begin_compaction(request, FRAME, "m", 3, anew()) == Compacted(0)
    assert "workers ended" in (await statuses(story))[-1]


async def test_one_under_way_is_found_when_its_worker_is_dead(story: Story) -> None:
    turn = await conversation(story, 6)
    request = asked(await prepare(story, turn))
    await begin(story, request)
    assert [call.task_token for call in await story.store.unfinished_calls()] == [b"token-1"]
    await complete(story, request, 1)
    assert await story.store.unfinished_calls() == []


async def test_a_cancelled_one_is_no_failure(story: Story) -> None:
    turn = await conversation(story, 6)
    request = asked(await prepare(story, turn))
    await begin(story, request)
    await story.store.cancel_compaction(request, 1)
    assert await story.store.begin_compaction(request, FRAME, "m", 3, anew()) == Compacted(0)
    assert await statuses(story) == []
    assert await story.store.unfinished_calls() == []


async def test_a_reply_is_known_by_its_content_to_its_tenant_only(story: Story) -> None:
    turn = await conversation(story, 6)
    request = asked(await prepare(story, turn))
    await begin(story, request)
    assert await story.store.known_reply("default", "content of the gist") is None
    await complete(story, request, 1)
    known = await story.store.known_reply("default", "content of the gist")
    assert known is not None
    assert "the gist" in known
    assert await story.store.known_reply("another", "content of the gist") is None


async def test_a_request_that_a_provider_found_too_long_is_made_again_on_less(
    story: Story,
) -> None:
    """What a step does whose provider answers that its request is too long, at most once."""
    turn = await conversation(story, 6)
    large = replace(FRAME, window=10_000)
    context = await prepare(story, turn, large)
    assert context.compaction == 0
    attempt = await story.start(context)
    request = asked(context, ordinal=-context.step, forced=True)

    begun = await begin(story, request)
    assert begun.plan.last == 11
    await complete(story, request, 1)

    again = await prepare(story, turn, large)
    assert (again.cuts, again.tokens) == (1, 15 + 3 * 7)
    with pytest.raises(Fenced):
        await story.reply(context, attempt)
    assert await story.start(again) == attempt + 1
    assert await story.store.begin_compaction(request, large, "m", 3, anew()) == Compacted(1)


async def test_a_request_beyond_the_window_without_anything_to_cut_is_overfull(
    story: Story,
) -> None:
    turn = await conversation(story, 0)
    small = replace(FRAME, window=20)
    assert (await prepare(story, turn, small)).overfull
    off = replace(small, compaction=Compaction(enabled=False))
    assert not (await prepare(story, turn, off)).overfull


async def test_undoing_needs_a_compaction(story: Story) -> None:
    with pytest.raises(UsageError, match="'s' has no compaction"):
        await story.store.undo_compaction(story.key)


async def test_K21_what_every_request_takes_is_told_where_it_is_much(story: Story) -> None:
    for number, system in ((1, 10_000), (2, 10_001)):
        key = SessionKey("default", f"k21-{number}")
        await story.store.create_session(key, SessionSettings("/workspace", "/workspace"))
        told = replace(story, key=key)
        turn = await conversation(told, 0)
        await prepare(told, turn, Frame(window=100_000, system=system))
        await prepare(told, turn, Frame(window=100_000, system=system))
        texts = await statuses(told)
        assert len(texts) == number - 1
        assert all("10,001 tokens of every request" in text for text in texts)


async def test_what_holds_whatever_was_said_is_put_back_behind_the_summary(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned, "SOURCES", [lambda session: ["## Waits for a person\n- a refund"]])
    turn = await conversation(story, 6)
    request = asked(await prepare(story, turn))
    await begin(story, request)
    await complete(story, request, 1)
    summary, *_ = (await story.store.history(story.key, Extent(13, 1))).whole
    assert "the gist\n\n## Waits for a person\n- a refund" in summary.parts[0].text  # type: ignore[union-attr]


async def test_failures_in_a_row_are_counted_anew_after_one_that_did_not_fail(
    story: Story,
) -> None:
    turn = await conversation(story, 6)
    for ordinal in (1, 2, 3):
        context = await prepare(story, turn)
        request = asked(context, ordinal=ordinal)
        await begin(story, request)
        if ordinal == 3:
            await complete(story, request, 1)
        else:
            await fail(story, request, 1)

    def failures(tx: Tx) -> int:
        return LockedSession(tx, story.key).compaction_failures

    assert isinstance(story.store, SqlStore)
    assert await story.store._database.write(failures) == 0


async def test_what_a_compaction_took_is_part_of_the_turn_and_of_its_session(
    story: Story,
) -> None:
    turn = await conversation(story, 6)
    request = asked(await prepare(story, turn))
    await begin(story, request)
    await complete(story, request, 1)
    context = await prepare(story, turn)
    await story.reply(context, await story.start(context))
    await story.finish(turn, "run-7")
    finished = (await story.told("turn_finished"))[-1].body
    assert finished["usage"] == {"input_tokens": 53, "output_tokens": 7, "model_calls": 2}
    assert finished["cost_usd"] == 0.75
    (view,) = await story.store.turns(story.key, 7)
    assert (view.usage.input_tokens, view.usage.cost_usd) == (53, 0.75)
    assert (await story.store.session(story.key)).usage.input_tokens == 53 + 6 * 3


async def budgeted(story: Story, tokens: int) -> BudgetView:
    await story.store.put_budget("default", "tenant", None, Budget(tokens=tokens))
    return await account(story)


async def account(story: Story) -> BudgetView:
    (view,) = await story.store.budgets("default")
    return view


async def test_a_compaction_is_reserved_from_the_budget_and_settled(story: Story) -> None:
    await budgeted(story, 100_000)
    turn = await conversation(story, 6)
    before = (await account(story)).spent
    request = asked(await prepare(story, turn))
    await begin(story, request)
    assert (await account(story)).reserved.tokens == 77 + 600 + 64
    await complete(story, request, 1)
    after = await account(story)
    assert after.reserved.tokens == 0
    assert (after.spent.tokens - before.tokens, after.spent.steps) == (55, before.steps)


async def test_what_becomes_of_a_reservation_when_no_summary_comes(story: Story) -> None:
    await budgeted(story, 100_000)
    turn = await conversation(story, 6)
    spent = (await account(story)).spent.tokens
    request = asked(await prepare(story, turn))

    await begin(story, request)
    await story.store.fail_compaction(request, 1, "Busy.", 3, 3, Usage(), None)
    assert (await account(story)).spent.tokens == spent  # Nothing was answered.

    await begin(story, request)
    await begin(story, request)  # The second attempt has lost its worker.
    assert (await account(story)).spent.tokens == spent + 677

    await fail(story, request, 3)  # An answer that was paid for and cannot be used.
    assert (await account(story)).spent.tokens == spent + 677 + 55

    request = asked(await prepare(story, turn))
    await begin(story, request)
    await story.finish(turn, "run-7", outcome="cancelled", step=0)
    view = await account(story)
    assert (view.reserved.tokens, view.spent.tokens) == (0, spent + 677 + 55 + 677)


async def test_a_budget_that_a_summary_would_exceed_bars_it_before_it_is_asked_for(
    story: Story,
) -> None:
    await budgeted(story, 100_000)
    turn = await conversation(story, 6)
    request = asked(await prepare(story, turn))
    await budgeted(story, 500)
    barred = await story.store.begin_compaction(request, FRAME, "openai/test", 3, anew())
    assert barred == Compacted(0, "over")
    assert await story.told("compaction_started") == []
    await story.finish(turn, "run-7", outcome="budget_exceeded", step=0)
    (finished,) = (await story.told("turn_finished"))[-1:]
    assert "allows 500 tokens" in finished.body["reason"]


async def test_who_asks_again_for_what_cannot_be_summarised_is_told_again(story: Story) -> None:
    await story.send()
    turn = await story.begun()
    large = replace(FRAME, window=10_000)
    for _ in range(2):
        await story.store.ask_compaction(story.key)
        assert (await prepare(story, turn, large)).compaction == 0
    texts = [event.body["text"] for event in await story.told("status")]
    assert texts == ["There is nothing yet that a summary could replace."] * 2
