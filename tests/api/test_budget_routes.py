"""Budgets and usage over HTTP."""

from typing import Any

import httpx
import pytest

from everturn.budgets import Budget, BudgetVerdict
from everturn.errors import IdempotencyConflict, UnknownSession, UsageError
from everturn.views import NewBudget


@pytest.fixture
async def http(served):
    async with httpx.AsyncClient(base_url=served.url, timeout=10) as http:
        yield http


async def test_budgets_of_a_tenant_its_days_and_its_sessions_are_set_and_listed(client):
    for name in ("s", "later"):
        await client.create_session(name)
        await client.put_budget(NewBudget(scope="session", session=name, steps=9))
    await client.put_budget(NewBudget(scope="day", usd=1.5, soft=0.5))
    put = await client.put_budget(NewBudget(scope="tenant", tokens=1000, seconds=60.5))

    assert (put.scope, put.session, put.day) == ("tenant", None, None)
    assert put.limits == Budget(tokens=1000, seconds=60.5)
    listed = await client.budgets()
    assert [(each.scope, each.session) for each in listed] == [
        ("tenant", None),
        ("day", None),
        ("session", "later"),
        ("session", "s"),
    ]
    assert listed[1].limits == Budget(usd=1.5, soft=0.5)
    assert listed[1].day is not None
    assert listed[0] == put


async def test_a_budget_that_is_set_again_has_only_its_new_limits(client, http):
    await client.put_budget(NewBudget(scope="tenant", tokens=1000, usd=1, soft=0.5))
    await client.put_budget(NewBudget(scope="tenant", steps=5))
    assert (await client.budgets())[0].limits == Budget(steps=5)
    await client.put_budget(NewBudget(scope="tenant"))
    assert (await client.budgets())[0].limits == Budget()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"scope": "session", "usd": 1}, "names its 'session'"),
        ({"scope": "day", "session": "s", "usd": 1}, "names its 'session'"),
        ({"scope": "tenant", "usd": -1}, "Field 'usd' is wrong"),
        ({"scope": "tenant", "usd": 10**9}, "Field 'usd' is wrong"),
        ({"scope": "tenant", "soft": 0.5}, "a soft share needs a limit"),
        ({"scope": "month", "usd": 1}, "Field 'scope' is wrong"),
        ({"scope": "tenant", "euros": 1}, "Field 'euros' is not known"),
    ],
)
async def test_what_cannot_be_a_budget_is_refused(client, http, body: dict[str, Any], told: str):
    await client.create_session("s")
    answer = await http.put("/v1/budgets", json=body)
    assert answer.status_code == 422
    assert told in answer.json()["detail"]
    assert await client.budgets() == []


async def test_a_budget_of_a_session_that_is_not_there_is_refused(client):
    with pytest.raises(UnknownSession, match="nowhere"):
        await client.put_budget(NewBudget(scope="session", session="nowhere", usd=1))
    with pytest.raises(UnknownSession, match="nowhere"):
        await client.answer_budget("nowhere", BudgetVerdict(verdict="deny"))


async def test_a_raise_counts_once_under_its_id(client):
    await client.create_session("s")
    await client.put_budget(NewBudget(scope="session", session="s", tokens=10))
    raised = BudgetVerdict(verdict="raise", tokens=20)
    first, again = [await client.answer_budget("s", raised, id="r") for _ in range(2)]
    assert [(each.status, each.duplicate) for each in (first, again)] == [
        ("accepted", False),
        ("accepted", True),
    ]
    with pytest.raises(IdempotencyConflict):
        await client.answer_budget("s", BudgetVerdict(verdict="raise", tokens=30), id="r")
    with pytest.raises(UsageError, match="is not below"):
        await client.answer_budget("s", BudgetVerdict(verdict="raise", tokens=19))
    assert (await client.budgets())[0].limits.tokens == 20
    late = await client.answer_budget("s", BudgetVerdict(verdict="deny"))
    assert late.status == "too_late"


async def test_an_answer_wakes_its_turn_and_those_that_ask_about_the_same(client, runtime):
    for name in ("a", "b"):
        await client.create_session(name)
        await client.send(name, "hello")
    await client.put_budget(NewBudget(scope="tenant", tokens=1, soft=0.5))
    for name in ("a", "b"):
        head = await runtime.begin(name)
        context = await runtime.prepared(head)
        assert await runtime.store.check_budget(context, "m") is not None
        # The turn has looked into its inbox, and waits.
        await runtime.looked(head)
    runtime.waker.woken.clear()

    await client.answer_budget("a", BudgetVerdict(verdict="raise", tokens=10_000))

    assert [wake.key.session for wake in runtime.waker.woken] == ["a", "b"]
    assert [(await client.session(name)).asked for name in ("a", "b")] == [(), ()]


async def test_a_budget_that_is_set_higher_wakes_the_turns_that_ask_about_it(client, runtime):
    await client.create_session("s")
    await client.send("s", "hello")
    await client.put_budget(NewBudget(scope="tenant", tokens=1, soft=0.5))
    head = await runtime.begin("s")
    assert await runtime.store.check_budget(await runtime.prepared(head), "m") is not None
    await runtime.looked(head)
    runtime.waker.woken.clear()

    await client.put_budget(NewBudget(scope="tenant", tokens=10_000, soft=0.5))

    assert [wake.key.session for wake in runtime.waker.woken] == ["s"]
    assert (await client.session("s")).asked == ()


async def test_usage_is_added_up_since_a_day_and_by_what_is_asked(client, http, runtime):
    await client.create_session("s")
    await client.send("s", "hello")
    await runtime.work("s", "Done.")
    by = {by: [row.key for row in await client.usage(by)] for by in ("session", "agent", "model")}
    assert by == {"session": ["s"], "agent": ["default"], "model": ["m"]}
    [day] = await client.usage("day")
    assert [row.key for row in await client.usage("session", day.key)] == ["s"]
    assert await client.usage("session", "2999-01-01") == []
    wrong = await http.get("/v1/usage", params={"since": "yesterday"})
    assert wrong.status_code == 422
    assert "The day 'yesterday' is not possible" in wrong.json()["detail"]
    assert (await http.get("/v1/usage", params={"by": "moon"})).status_code == 422
