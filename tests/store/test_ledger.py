"""The ledger: reserved before a call, settled, refunded or lost after it, each once.

Here a token costs a tenth of a cent, every message has 7 tokens, and a reply 6 at most. So the
first call of a session may take 13 tokens.
"""

from stories import ME, SPEC, Story

from everturn.agents import Agent, AgentSpec
from everturn.budgets import Budget
from everturn.session import TurnHead
from everturn.views import BudgetView
from everturn_activities.store import Blocked

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
