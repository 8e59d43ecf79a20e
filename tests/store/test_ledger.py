"""The ledger: reserved before a call, settled, refunded or lost after it, each once.

Here a token costs a tenth of a cent, every message has 7 tokens, and a reply 6 at most. So the
first call of a session may take 13 tokens.
"""

from dataclasses import replace

import pytest
from stories import ME, SPEC, Story, delta

from everturn.agents import Agent, AgentSpec
from everturn.budgets import Budget, BudgetVerdict
from everturn.session import SessionKey, TurnHead
from everturn.views import BudgetView
from everturn_activities.store import Blocked, CallFailure, Inbound, SessionSettings

MODEL = SPEC.agent.model
REPLY = 5
"""The tokens of a whole call as `Story.reply` tells them, at half a dollar."""


def spec(budget: Budget | None = None, **more: object) -> AgentSpec:
    agent = Agent(model=MODEL, steps_max=5, tokens_max=6, budget=budget, **more)  # type: ignore[arg-type]
    return AgentSpec(agent=agent, workspace="/workspace", working_dir="/workspace")


async def begun(story: Story, budget: Budget | None = None, **more: object) -> TurnHead:
    await story.send()
    return await story.begun(spec=spec(budget, **more))


async def budget(story: Story) -> BudgetView:
    return (await story.store.budgets("default"))[0]


async def test_a_call_is_reserved_at_its_most_and_settled_at_what_it_took(story: Story) -> None:
    context = await story.prepare(await begun(story, Budget(usd=1, tokens=100)))
    attempt = await story.start(context)
    view = await budget(story)
    assert (view.reserved.tokens, view.reserved.usd, view.reserved.steps) == (13, 0.013, 1)
    assert view.spent.tokens == 0

    story.clock.now += 2
    await story.reply(context, attempt)
    view = await budget(story)
    assert view.reserved.model_dump() == {"usd": 0, "tokens": 0, "steps": 0, "seconds": 0}
    assert view.spent.model_dump() == {"usd": 0.5, "tokens": 5, "steps": 1, "seconds": 2}


async def test_b10_a_spent_budget_lets_no_call_begin_and_says_which_and_how_much(
    story: Story,
) -> None:
    turn = await begun(story, Budget(usd=0.51))
    await story.step(turn)
    context = await story.prepare(turn, 2)
    blocked = await story.store.begin_model_call(context, MODEL, ME)
    assert blocked == Blocked(
        "over",
        "The budget of session s allows $0.51; $0.50 spent, and the next call may take $0.02.",
    )
    await story.finish(turn, outcome="budget_exceeded", step=1)
    [told] = await story.told("turn_finished")
    assert told.body["reason"] == blocked.reason


async def stream(story: Story, attempt: int) -> None:
    await story.events.append_deltas(story.key, 1, 1, attempt, [delta("half a", 1, attempt)])


async def test_what_a_lost_attempt_took_is_spent_by_estimate_once(story: Story) -> None:
    context = await story.prepare(await begun(story, Budget(tokens=100)))
    await stream(story, await story.start(context))
    second = await story.start(context)
    view = await budget(story)
    assert (view.spent.tokens, view.spent.steps, view.reserved.tokens) == (7 + 7, 0, 13)
    await story.reply(context, second)
    [row] = await story.store.usage("default", "session", 0)
    assert (row.lost_attempts, row.model_calls, row.input_tokens + row.output_tokens) == (1, 1, 19)
    assert (await budget(story)).spent.tokens == 19
    assert row.cost_usd == (await budget(story)).spent.usd == 0.514


async def test_an_attempt_is_charged_with_what_it_streamed_itself(story: Story) -> None:
    context = await story.prepare(await begun(story, Budget(tokens=100)))
    await stream(story, await story.start(context))
    await story.start(context)
    await story.start(context)
    assert (await budget(story)).spent.tokens == (7 + 7) + 7


@pytest.mark.parametrize("answered", [False, True])
async def test_a_failed_attempt_is_refunded_unless_it_was_answered(
    story: Story, answered: bool
) -> None:
    context = await story.prepare(await begun(story, Budget(tokens=100)))
    attempt = await story.start(context)
    if answered:
        await stream(story, attempt)
    await story.store.fail_model_call(context, attempt, CallFailure("Overloaded.", 5))
    view = await budget(story)
    assert view.spent.tokens == (14 if answered else 0)
    assert (view.reserved.tokens, view.reserved.steps) == (0, 0)


async def test_an_attempt_that_is_under_way_when_its_turn_ends_is_spent(story: Story) -> None:
    turn = await begun(story, Budget(tokens=100))
    attempt = await story.start(await story.prepare(turn))
    await stream(story, attempt)
    await story.finish(turn, outcome="cancelled", step=0)
    view = await budget(story)
    assert (view.spent.tokens, view.reserved.tokens) == (14, 0)


async def test_a_budget_that_is_set_later_knows_what_was_spent_before(story: Story) -> None:
    turn = await begun(story)
    context = await story.prepare(turn)
    await stream(story, await story.start(context))
    attempt = await story.start(context)
    await story.store.put_budget("default", "tenant", None, Budget(usd=1))
    early = await budget(story)
    await story.reply(context, attempt)
    assert (early.spent.tokens, early.spent.usd) == (14, 0.014)
    view = await budget(story)
    assert (view.spent.tokens, view.spent.usd, view.reserved.usd) == (19, 0.514, 0)


async def test_a_day_ends_at_midnight_utc_and_calls_count_for_the_day_they_began(
    story: Story,
) -> None:
    await story.store.put_budget("default", "day", None, Budget(tokens=20))
    context = await story.prepare(await begun(story))
    attempt = await story.start(context)
    story.clock.now += 86_400
    assert (await budget(story)).reserved.tokens == 0
    await story.reply(context, attempt)
    view = await budget(story)
    assert (view.day, view.spent.tokens, view.reserved.tokens) == ("2023-11-15", 0, 0)
    days = await story.store.usage("default", "day", 0)
    assert [(row.key, row.input_tokens) for row in days] == [("2023-11-14", 3)]


async def test_a_limit_that_was_raised_stays_until_the_agents_own_is_changed(
    story: Story,
) -> None:
    turn = await begun(story, Budget(usd=1))
    raised = Inbound("b", "budget", budget=BudgetVerdict(verdict="raise", usd=5))
    await story.store.accept(story.key, raised)
    await story.finish(turn, step=0)
    for limit, expected in ((1, 5), (2, 2)):
        await story.send()
        turn = await story.begun(f"run-{limit}-b", spec=spec(Budget(usd=limit)))
        assert (await budget(story)).limits.usd == expected
        await story.finish(turn, f"run-{limit}-b", step=0)


async def test_a_session_without_a_limit_writes_no_entry(story: Story) -> None:
    await story.step(await begun(story))
    assert await story.store.budgets("default") == []
    [row] = await story.store.usage("default", "model", 0)
    assert (row.key, row.model_calls, row.cost_usd) == (MODEL, 1, 0.5)


async def blocked(story: Story, turn: TurnHead, step: int) -> Blocked | None:
    begun = await story.store.begin_model_call(await story.prepare(turn, step), MODEL, ME)
    return begun if isinstance(begun, Blocked) else None


async def test_a_soft_share_that_is_spent_when_a_budget_is_set_asks_before_the_next_call(
    story: Story,
) -> None:
    turn = await begun(story)
    await story.step(turn)
    await story.store.put_budget("default", "session", "s", Budget(tokens=100, soft=0.05))
    asked = await blocked(story, turn, 2)
    assert asked == Blocked("asked", "The budget of session s allows 100 tokens; 5 tokens spent.")
    [question] = (await story.store.session(story.key)).asked
    assert (question.turn, question.budget, question.unit) == (1, "session", "tokens")


@pytest.mark.parametrize("way", ["answer", "set"])
async def test_who_raises_a_limit_is_not_asked_about_a_share_that_is_spent_already(
    story: Story, way: str
) -> None:
    turn = await begun(story, Budget(tokens=50, soft=0.1))
    await story.step(turn)
    assert await blocked(story, turn, 2) is not None
    if way == "answer":
        verdict = BudgetVerdict(verdict="raise", tokens=51)
        await story.store.accept(story.key, Inbound("b", "budget", budget=verdict))
    else:
        await story.store.put_budget("default", "session", "s", Budget(tokens=51, soft=0.1))
        await story.store.settle_asks("default")
    await story.store.put_budget("default", "session", "s", Budget(tokens=51, soft=0.1))
    assert (await story.store.session(story.key)).asked == ()
    assert await blocked(story, turn, 2) is None


async def test_a_budget_that_is_set_again_as_it_is_leaves_its_question_open(story: Story) -> None:
    turn = await begun(story, Budget(tokens=50, soft=0.1))
    await story.step(turn)
    assert await blocked(story, turn, 2) is not None
    await story.store.put_budget("default", "session", "s", Budget(tokens=50, soft=0.1))
    await story.store.settle_asks("default")
    assert len((await story.store.session(story.key)).asked) == 1
    assert await blocked(story, turn, 2) is not None


async def test_the_seconds_that_a_call_may_take_are_reserved_by_what_the_last_ones_took(
    story: Story,
) -> None:
    turn = await begun(story, Budget(seconds=60))
    context = await story.prepare(turn)
    attempt = await story.start(context)
    # Nothing is known of a session's first call.
    assert (await budget(story)).reserved.seconds == 10
    story.clock.now += 4
    await story.reply(context, attempt)
    view = await budget(story)
    assert (view.reserved.seconds, view.spent.seconds) == (0, 4)
    await story.start(await story.prepare(turn, 2))
    assert (await budget(story)).reserved.seconds == 4


async def test_what_is_left_of_the_seconds_lets_one_call_begin_and_a_second_wait(
    story: Story,
) -> None:
    await story.store.put_budget("default", "tenant", None, Budget(seconds=5))
    context = await story.prepare(await begun(story))
    attempt = await story.start(context)
    view = await budget(story)
    # Ten are expected, and never more is reserved than there is.
    assert view.reserved.seconds == 5
    beside = replace(story, key=SessionKey("default", "beside"))
    await story.store.create_session(beside.key, SessionSettings("/workspace", "/workspace"))
    second = await beside.prepare(await begun(beside))
    blocked = await story.store.begin_model_call(second, MODEL, ME)
    assert isinstance(blocked, Blocked)
    assert blocked.how == "waits"
    story.clock.now += 3
    await story.reply(context, attempt)
    await beside.start(second)
    assert (await budget(story)).reserved.seconds == 2
