"""Questions about budgets: whom they stop, who answers them, and what each answer does.

A token costs a tenth of a cent; a message has 7 tokens, a reply at most 6. `Story.step` takes 5.
"""

from dataclasses import replace

import pytest
from books import Books
from stories import SPEC, Story, anew

from everturn.budgets import Budget, BudgetVerdict
from everturn.errors import UsageError
from everturn.session import SessionKey, TurnHead
from everturn.views import BudgetView
from everturn_activities.store import Accepted, Blocked, Inbound, SessionSettings

AGENT = SPEC.agent.model_copy(update={"tokens_max": 6})


async def worked(story: Story, run: str = "run-1", step: int = 1) -> TurnHead:
    """A turn that has taken a step: 5 tokens, half a dollar."""
    await story.send()
    turn = await story.begun(run, spec=SPEC.model_copy(update={"agent": AGENT}))
    await story.step(turn, step)
    return turn


async def put(story: Story, scope: str = "session", **limits: float) -> BudgetView:
    session = story.key.session if scope == "session" else None
    return await story.store.put_budget("default", scope, session, Budget(**limits))  # type: ignore[arg-type]


async def next_call(story: Story, turn: TurnHead, step: int = 2) -> str:
    """How the turn's next call is blocked; `begins` where it is not."""
    context = await story.prepare(turn, step)
    begun = await story.store.begin_model_call(context, SPEC.agent.model, anew())
    return begun.how if isinstance(begun, Blocked) else "begins"


async def answer(story: Story, name: str = "b", **verdict: object) -> Accepted:
    given = BudgetVerdict.model_validate({"verdict": "raise", **verdict})
    return await story.store.accept(story.key, Inbound(name, "budget", budget=given))


async def asked(story: Story) -> list[tuple[int, str, str]]:
    """The open questions: number, whose budget, unit."""
    found = (await story.store.session(story.key)).asked
    return [(one.approval, one.budget, one.unit) for one in found]


async def test_without_a_soft_share_nobody_is_asked(story: Story) -> None:
    turn = await worked(story)
    await put(story, tokens=6)
    assert await next_call(story, turn) == "over"
    assert await asked(story) == []


async def test_each_limit_and_each_budget_has_a_question_of_its_own_told_once(
    story: Story,
) -> None:
    turn = await worked(story)
    await put(story, tokens=100, steps=100, soft=0.01)
    await put(story, "tenant", tokens=100, soft=0.01)
    for _ in range(2):
        assert await next_call(story, turn) == "asked"
    expected = [(1, "session", "tokens"), (2, "session", "steps"), (3, "tenant", "tokens")]
    assert await asked(story) == expected
    told = await story.told("budget_asked")
    assert [event.body["approval"] for event in told] == [1, 2, 3]
    assert told[0].body["text"] == "The budget of session s allows 100 tokens; 5 tokens spent."
    assert (told[2].body["limit"], told[2].body["spent"]) == (100, 5)
    for number, unit in ((1, "tokens"), (2, "steps"), (3, "tokens")):
        assert await next_call(story, turn) == "asked"
        await answer(story, f"b{number}", approval=number, **{unit: 200})
    assert await next_call(story, turn) == "begins"


async def test_a_limit_that_nobody_is_asked_about_stops_the_turn_whatever_else_asks(
    story: Story,
) -> None:
    turn = await worked(story)
    await put(story, tokens=100, soft=0.01)
    await put(story, "tenant", steps=1)
    assert await next_call(story, turn) == "over"


async def test_a_turn_with_several_questions_waits_with_the_first(story: Story) -> None:
    turn = await worked(story)
    await put(story, tokens=100, steps=10, soft=0.01)
    context = await story.prepare(turn, 2)
    blocked = await story.store.begin_model_call(context, SPEC.agent.model, anew())
    first = "The budget of session s allows 100 tokens; 5 tokens spent."
    assert blocked == Blocked("asked", first)


async def test_after_a_raise_the_next_share_asks_again_and_the_limit_itself_too(
    story: Story,
) -> None:
    turn = await worked(story)
    await put(story, tokens=20, soft=0.2)
    assert await next_call(story, turn) == "asked"
    await answer(story, tokens=60)
    await story.step(turn, 2)
    await story.step(turn, 3)
    assert await next_call(story, turn, 4) == "asked"
    assert await asked(story) == [(2, "session", "tokens")]


async def test_a_limit_that_was_let_stand_ends_the_turn_once_it_is_reached(story: Story) -> None:
    """A raise to the same limit says: go on up to it."""
    turn = await worked(story)
    await put(story, steps=2, soft=0.5)
    assert await next_call(story, turn) == "asked"
    await answer(story, steps=2)
    assert await next_call(story, turn) == "begins"
    context = await story.prepare(turn, 2)
    await story.reply(context, 1)
    assert await next_call(story, turn, 3) == "over"


async def test_a_share_that_is_set_lower_asks_anew_about_a_limit_that_was_let_stand(
    story: Story,
) -> None:
    turn = await worked(story)
    await put(story, tokens=100, soft=0.05)
    assert await next_call(story, turn) == "asked"
    await answer(story, tokens=100)
    await put(story, tokens=100, soft=0.02)
    for _ in range(2):
        assert await next_call(story, turn) == "asked"
    assert await asked(story) == [(2, "session", "tokens")]
    await answer(story, "b2", tokens=100)
    assert await next_call(story, turn) == "begins"


def test_a_question_that_is_open_is_waited_for_though_others_reach_the_limit_meanwhile(
    books: Books,
) -> None:
    books.put("tenant", tokens=30, soft=0.1)
    books.settle("a", books.row())
    for step, others in ((2, 0), (3, 30)):
        books.settle("a", books.row(step), others)
        blocked = books.reserve("b", books.row())
        assert blocked is not None
        assert blocked.how == "asked"
    assert books.account("tenant").spent["tokens"] > 30


async def test_a_denial_ends_its_turn_and_the_next_asks_again(story: Story) -> None:
    turn = await worked(story)
    await put(story, tokens=100, soft=0.01)
    assert await next_call(story, turn) == "asked"
    await answer(story, verdict="deny")
    context = await story.prepare(turn, 2)
    blocked = await story.store.begin_model_call(context, SPEC.agent.model, anew())
    assert isinstance(blocked, Blocked)
    assert blocked.how == "over"
    assert blocked.reason.endswith("A person was asked and did not raise it.")
    await story.finish(turn, outcome="budget_exceeded")
    await story.send()
    turn = await story.begun("run-2", previous="run-1")
    assert await next_call(story, turn, 1) == "asked"
    assert await asked(story) == [(2, "session", "tokens")]
    told = [event.body["text"] for event in await story.told("budget_answered")]
    assert told == ["The budget was not raised."]


async def test_a_turn_that_is_over_asks_nothing(story: Story) -> None:
    turn = await worked(story)
    await put(story, tokens=100, soft=0.01)
    await next_call(story, turn)
    await story.finish(turn, outcome="cancelled")
    assert await asked(story) == []
    late = await answer(story, approval=1, tokens=200)
    assert late.view.status == "too_late"
    assert late.wake is None
    assert (await story.store.budgets("default"))[0].limits.tokens == 100


@pytest.mark.parametrize(
    "verdict",
    [{"verdict": "deny"}, {"approval": 2, "tokens": 200}],
    ids=["nothing to deny", "another question"],
)
async def test_a_verdict_on_what_is_not_asked_is_too_late(
    story: Story, verdict: dict[str, object]
) -> None:
    turn = await worked(story)
    await put(story, tokens=100, soft=0.01)
    if "approval" in verdict:
        await next_call(story, turn)
    view = (await answer(story, **verdict)).view
    assert view.status == "too_late"
    assert len(await asked(story)) == len(verdict) - 1
    [told] = await story.told("budget_answered")
    assert told.body["too_late"]
    assert told.body["text"] == "The answer came too late."


async def test_a_raise_without_a_question_raises_the_sessions_own_budget(story: Story) -> None:
    await worked(story)
    with pytest.raises(UsageError, match="has no budget of its own; set one with"):
        await answer(story, "b0", tokens=9)
    await put(story, tokens=100)
    await put(story, "tenant", tokens=100)
    await answer(story, "b1", tokens=150)
    tenant, mine = await story.store.budgets("default")
    assert (tenant.limits.tokens, mine.limits.tokens) == (100, 150)
    assert await story.store.budgets("elsewhere") == []
    with pytest.raises(UsageError, match="has 150 tokens in tokens; a raise names"):
        await answer(story, "b2", tokens=149)
    with pytest.raises(UsageError, match="has no limit in steps; a raise names"):
        await answer(story, "b3", steps=5)


async def test_an_answer_must_be_about_what_is_asked(story: Story) -> None:
    turn = await worked(story)
    await put(story, tokens=100, usd=100, soft=0.01)
    await put(story, "day", steps=50, soft=0.02)
    await next_call(story, turn)
    with pytest.raises(UsageError, match=r"Question 1 is about tokens; give a new limit in tokens"):
        await answer(story, "b1", usd=200)
    await answer(story, "b2", approval=2, steps=60)
    day, mine = await story.store.budgets("default")
    assert (day.limits.steps, mine.limits.steps) == (60, None)
    assert await asked(story) == [(1, "session", "tokens")]


async def test_a_limit_that_an_operator_changed_closes_the_question_and_wakes_its_turn(
    story: Story,
) -> None:
    turn = await worked(story)
    await put(story, tokens=100, steps=50, soft=0.01)
    await next_call(story, turn)
    await story.check(turn.turn)
    await put(story, tokens=100, steps=60, soft=0.01)
    [wake] = await story.store.settle_asks("default")
    assert wake.key == story.key
    assert await story.store.left_asleep(-1, 10) == [wake]
    assert await asked(story) == [(1, "session", "tokens")]
    [told] = await story.told("budget_answered")
    assert told.body["text"] == "The budget was changed."
    assert await story.store.settle_asks("default") == []
    assert await story.store.settle_asks("elsewhere") == []


@pytest.mark.parametrize(
    ("tokens", "soft"), [(100, 0.01), (1001, 0.004)], ids=["a lower limit", "a lower share"]
)
async def test_a_budget_that_is_set_anew_asks_unless_it_is_only_raised(
    story: Story, tokens: int, soft: float
) -> None:
    turn = await worked(story)
    await put(story, tokens=1000, soft=0.01)
    assert await next_call(story, turn) == "begins"
    await put(story, tokens=tokens, soft=soft)
    assert await next_call(story, turn) == "asked"


async def test_a_text_names_what_the_next_call_may_take_where_some_is_left(story: Story) -> None:
    turn = await worked(story)
    for limit, rest in ((5, ""), (20, ", and the next call may take 20 tokens")):
        await put(story, tokens=limit)
        context = await story.prepare(turn, 2)
        blocked = await story.store.begin_model_call(context, SPEC.agent.model, anew())
        assert isinstance(blocked, Blocked)
        assert blocked.reason.endswith(f"allows {limit} tokens; 5 tokens spent{rest}.")


async def test_a_session_that_is_created_under_a_tenants_limit_is_held_to_it(story: Story) -> None:
    await put(story, "tenant", tokens=1)
    later = replace(story, key=SessionKey("default", "later"))
    await later.store.create_session(later.key, SessionSettings("/", "/"))
    await later.send()
    turn = await later.begun(spec=SPEC.model_copy(update={"agent": AGENT}))
    assert await next_call(later, turn, step=1) == "over"


async def test_who_asks_is_looked_for_among_the_tenants_own_sessions(story: Story) -> None:
    turn = await worked(story)
    await put(story, tokens=10, soft=0.5)
    assert await next_call(story, turn) == "asked"
    await put(story, tokens=20, soft=0.5)
    assert await story.store.settle_asks("another") == []
    assert [wake.key for wake in await story.store.settle_asks("default")] == [story.key]
