"""The ledger of embeddings: a tenant's calls that no session makes."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from databases import Databases
from stories import Clock, count, price

from everturn.budgets import Budget
from everturn.views import BudgetView, UsageRow
from everturn_activities.store.embeddings import Embedding, Refused, SqlEmbeddings
from everturn_activities.store.sql import SqlStore

CALL = Embedding("t", "/w", "openai/embed", texts=64, tokens=1_000, usd=0.01)


@dataclass
class Books:
    ledger: SqlEmbeddings
    store: SqlStore
    clock: Clock

    async def limited(self, scope: str = "tenant", **limits: float) -> None:
        await self.store.put_budget("t", scope, None, Budget(**limits))  # type: ignore[arg-type]

    async def budget(self) -> BudgetView:
        return (await self.store.budgets("t"))[0]

    async def usage(self, by: str) -> list[UsageRow]:
        return await self.store.usage("t", by, 0.0)  # type: ignore[arg-type]

    async def begun(self, call: Embedding = CALL) -> int:
        number = await self.ledger.begin(call)
        assert isinstance(number, int), number
        return number


@pytest.fixture
async def books(databases: Databases) -> AsyncIterator[Books]:
    clock = Clock()
    database = await databases.open(clock=clock)
    store = SqlStore(database, count, price)
    yield Books(SqlEmbeddings(database), store, clock)
    await store.close()


@pytest.mark.parametrize("scope", ["tenant", "day"])
async def test_a_call_is_reserved_by_our_count_and_settled_by_the_providers(
    books: Books, scope: str
) -> None:
    await books.limited(scope, usd=1, tokens=5_000)
    number = await books.begun()
    held = await books.budget()
    assert (held.reserved.usd, held.reserved.tokens) == (0.01, 1_000)
    await books.ledger.settle(number, 900, 0.009)
    await books.ledger.settle(number, 900, 0.009)
    spent = await books.budget()
    assert (spent.spent.usd, spent.spent.tokens, spent.spent.steps) == (0.009, 900, 0)
    assert (spent.reserved.usd, spent.reserved.tokens) == (0, 0)


async def test_a_provider_that_does_not_count_is_believed_to_have_taken_what_we_counted(
    books: Books,
) -> None:
    await books.limited(tokens=5_000)
    await books.ledger.settle(await books.begun(), None, None)
    assert (await books.budget()).spent.tokens == 1_000


async def test_a_call_that_failed_spends_nothing(books: Books) -> None:
    await books.limited(tokens=5_000)
    await books.ledger.refund(await books.begun())
    view = await books.budget()
    assert (view.spent.tokens, view.reserved.tokens) == (0, 0)
    assert await books.usage("model") == []


@pytest.mark.parametrize(
    ("limits", "call", "said"),
    [
        ({"tokens": 1_500}, CALL, "which leaves too little for the vectors of 64 texts"),
        ({"usd": 0.015}, CALL, "allows $0.015; $0.01 spent"),
        ({"usd": 1}, replace(CALL, usd=None), "no price of openai/embed is known"),
        ({"tokens": 2_500, "soft": 0.4}, CALL, "raise it by 'everturn budget'"),
    ],
)
async def test_a_call_that_a_budget_does_not_hold_does_not_begin_and_says_why(
    books: Books, limits: dict[str, float], call: Embedding, said: str
) -> None:
    await books.limited(**limits)
    first = await books.ledger.begin(call)
    if isinstance(first, int):
        await books.ledger.settle(first, 1_000, 0.01)
        first = await books.ledger.begin(call)
    assert isinstance(first, Refused)
    assert said in first.reason


async def test_a_budget_in_steps_or_seconds_is_no_business_of_an_embedding(books: Books) -> None:
    await books.limited(steps=1, seconds=1)
    await books.begun()
    await books.begun()


async def test_another_tenants_budget_is_no_limit(books: Books) -> None:
    await books.limited(tokens=500)
    await books.begun(replace(CALL, tenant="other"))


async def test_a_limit_that_is_set_later_begins_with_what_was_spent(books: Books) -> None:
    await books.ledger.settle(await books.begun(), 900, 0.009)
    open_ = await books.begun()
    await books.limited(usd=1, tokens=5_000)
    view = await books.budget()
    assert (view.spent.tokens, view.spent.usd) == (900, 0.009)
    assert (view.reserved.tokens, view.reserved.usd) == (1_000, 0.01)
    await books.ledger.settle(open_, 900, 0.009)
    view = await books.budget()
    assert (view.spent.tokens, view.reserved.tokens) == (1_800, 0)


async def test_what_a_killed_process_had_under_way_is_spent_by_estimate(books: Books) -> None:
    await books.limited(tokens=5_000)
    lost = await books.begun()
    books.clock.now += 601
    await books.begun()
    view = await books.budget()
    assert (view.spent.tokens, view.reserved.tokens) == (1_000, 1_000)
    # It was not killed after all: what it took is counted already.
    await books.ledger.settle(lost, 900, 0.009)
    assert (await books.budget()).spent.tokens == 1_000


async def test_yesterdays_call_is_not_todays(books: Books) -> None:
    await books.limited("day", tokens=5_000)
    number = await books.begun()
    books.clock.now += 86_400
    await books.begun(replace(CALL, tokens=10))
    await books.ledger.settle(number, 900, 0.009)
    view = await books.budget()
    assert (view.spent.tokens, view.reserved.tokens) == (0, 10)


@pytest.mark.parametrize("by", ["session", "agent", "model", "day"])
async def test_usage_counts_embeddings_as_calls_of_their_own(books: Books, by: str) -> None:
    await books.ledger.settle(await books.begun(), 900, 0.009)
    await books.ledger.settle(await books.begun(replace(CALL, usd=None)), 100, None)
    (row,) = await books.usage(by)
    if by in ("session", "agent"):
        assert row.key == "(knowledge)"
    assert (row.embedding_calls, row.model_calls, row.side_calls) == (2, 0, 0)
    assert (row.input_tokens, row.cost_usd, row.unpriced_calls) == (1_000, 0.009, 1)
