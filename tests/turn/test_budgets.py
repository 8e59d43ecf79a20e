"""Budgets in a running turn: what is spent ends it before the next call, or makes it wait."""

from pathlib import Path

import pytest
from harness import Bench, calls, says, scripted

from everturn.budgets import Budget, BudgetVerdict
from everturn_activities.store import Inbound


def limit(workspace: Path, budget: str, model: str = "openai/gpt-5-mini") -> None:
    (workspace / "agents").mkdir()
    agent = f"---\nmodel: {model}\ntokens_max: 100\nbudget: {budget}\n---\nBe brief."
    (workspace / "agents" / "default.md").write_text(agent)


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_b8_b10_a_spent_budget_ends_the_turn_before_the_next_call(
    made: Bench, placement: str
) -> None:
    limit(made.workspace, "{steps: 2}")
    gateway = scripted(calls("add", a=1, b=2), calls("add", a=3, b=4), says("Never said."))
    key = await made.session()
    async with made.worker(gateway, placement=placement):
        await made.send(key, "add twice")
        events = await made.until(key, "turn_finished")
    assert len(gateway.requests) == 2
    assert events[-1].body["outcome"] == "budget_exceeded"
    assert events[-1].body["reason"] == "The budget of session s allows 2 steps; 2 steps spent."
    assert len([e for e in events if e.type == "tool_finished"]) == 2


async def test_a_model_without_a_price_is_refused_under_a_budget_in_dollars(made: Bench) -> None:
    limit(made.workspace, "{usd: 1}", "openai/nobody-knows-it")
    gateway = scripted(says("Never said."))
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "hello")
        events = await made.until(key, "turn_finished")
    assert gateway.requests == []
    assert events[-1].body["outcome"] == "failed"
    assert "no price of openai/nobody-knows-it is known" in events[-1].body["reason"]


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_a_budget_that_only_calls_under_way_block_is_waited_for(
    made: Bench, placement: str
) -> None:
    """Protocol detail 9."""
    store = made.runtime.store
    first, second = await made.session("first"), await made.session("second")
    await store.put_budget(made.tenant, "tenant", None, Budget(tokens=1_000_000))
    held = says("I am done.", hold="midway")
    gateway = scripted(by_last_user={"long": [held], "short": [says("So am I.")]})
    # An inline call of a workflow that leaves the cache is made again.
    async with made.worker(gateway, workflows_cached=10, placement=placement):
        await made.send(first, "long")
        await gateway.reached("midway")
        [tenant] = await store.budgets(made.tenant)
        allowed = int(tenant.reserved.tokens * 1.5)
        await store.put_budget(made.tenant, "tenant", None, Budget(tokens=allowed))
        await made.send(second, "short")
        waits = (await made.until(second, "status"))[-1]
        assert len(gateway.requests) == 1
        gateway.release("midway")
        events = await made.until(second, "turn_finished")
    assert events[-1].body["outcome"] == "completed"
    assert "reserved by calls under way. The turn waits for them." in waits.body["text"]
    [tenant] = await store.budgets(made.tenant)
    assert (tenant.reserved.tokens, tenant.reserved.usd) == (0, 0)
    assert tenant.spent.tokens == 2 * 10 + len(["I", "am", "done."]) + len(["So", "am", "I."])


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_a_soft_limit_asks_a_person_and_a_raise_lets_the_turn_go_on_after_a_restart(
    made: Bench, placement: str
) -> None:
    limit(made.workspace, "{steps: 2, soft: 0.5}")
    replies = calls("add", a=1, b=2), says("It is 3.")
    key = await made.session()
    async with made.worker(scripted(*replies), placement=placement):
        await made.send(key, "add")
        asked = (await made.until(key, "budget_asked"))[-1]
    assert asked.body["text"] == "The budget of session s allows 2 steps; 1 step spent."
    async with made.worker(scripted(*replies), placement=placement):
        verdict = BudgetVerdict(verdict="raise", steps=4, approval=asked.body["approval"])
        for _ in range(2):
            accepted = await made.front.accept(key, Inbound("b1", "budget", budget=verdict))
            assert accepted.status == "accepted"
        events = await made.until(key, "turn_finished")
        late = await made.front.accept(key, Inbound("b2", "budget", budget=verdict))
    assert events[-1].body["outcome"] == "completed"
    assert len([e for e in events if e.type == "budget_answered"]) == 1
    assert late.status == "too_late"


async def test_a_denied_raise_ends_the_turn_and_the_next_one_asks_again(made: Bench) -> None:
    limit(made.workspace, "{steps: 2, soft: 0.5}")
    gateway = scripted(calls("add", a=1, b=2), says("Never said."))
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "add")
        await made.until(key, "budget_asked")
        denied = Inbound("no", "budget", budget=BudgetVerdict(verdict="deny"))
        await made.front.accept(key, denied)
        events = await made.until(key, "turn_finished")
        await made.send(key, "again")
        await made.until(key, "budget_asked", turn=2)
        await made.cancel(key)
        cancelled = (await made.until(key, "turn_finished", turn=2))[-1]
    assert len(gateway.requests) == 1
    assert events[-1].body["outcome"] == "budget_exceeded"
    assert "A person was asked and did not raise it." in events[-1].body["reason"]
    assert cancelled.body["outcome"] == "cancelled"
    assert (await made.runtime.store.session(key)).asked == ()


async def test_a_days_budget_that_an_operator_raises_wakes_all_that_wait_for_it(
    made: Bench,
) -> None:
    keys = [await made.session(name) for name in ("a", "b")]
    day = Budget(steps=4, soft=0.25)
    await made.front.put_budget(made.tenant, "day", None, day)
    gateway = scripted(calls("add", a=1, b=2), says("It is 3."))
    async with made.worker(gateway):
        for key in keys:
            await made.send(key, "add")
        for key in keys:
            await made.until(key, "budget_asked")
        await made.front.put_budget(made.tenant, "day", None, Budget(steps=100, soft=0.25))
        ends = [(await made.until(key, "turn_finished"))[-1] for key in keys]
    assert [end.body["outcome"] for end in ends] == ["completed", "completed"]


async def test_k21_t20_each_step_shows_what_its_request_was_made_of(made: Bench) -> None:
    """K21, T20: sizes are observable, by section, beside what the provider told."""
    gateway = scripted(calls("add", a=1, b=2), says("It is 3."))
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "add")
        await made.until(key, "turn_finished")
    [turn] = await made.runtime.store.turns(key)
    first, second = (step.sections for step in turn.steps)
    assert first is not None
    assert second is not None
    assert first.system == second.system > 0
    assert first.tools == second.tools > first.system
    assert (first.history, second.history) == (0, 0)
    assert 0 < first.memory < second.memory
    assert [step.usage.input_tokens for step in turn.steps] == [10, 30]
    assert turn.usage.model_calls == 2
