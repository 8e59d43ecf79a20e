"""Budgets in a running turn: what is spent ends it before the next call, or makes it wait."""

from pathlib import Path

import pytest
from harness import Bench, calls, says, scripted

from everturn.budgets import Budget


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
