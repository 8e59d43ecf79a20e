"""Swarms in the store: items added, taken, opened and settled, each once."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from databases import Databases
from stories import Clock, count, price

from everturn.budgets import Budget
from everturn.errors import IdempotencyConflict, UnknownSession, UsageError
from everturn.session import SessionKey
from everturn.swarms import BeginItem, GiveUpItem, ItemRef, SwarmSpec, TakeItems
from everturn_activities.store import SessionSettings, schema
from everturn_activities.store.database import Database, Tx
from everturn_activities.store.sql import SqlStore
from everturn_activities.store.sql_swarms import SqlSwarms
from everturn_activities.store.statement import Statement

KEY = SessionKey("default", "w")
SETTINGS = SessionSettings("/workspace", "/workspace")
SPEC = SwarmSpec(prompt="Do {task}.", width=2)


@pytest.fixture
async def database(databases: Databases) -> AsyncIterator[Database]:
    database = await databases.open(clock=Clock())
    yield database
    await database.close()


@pytest.fixture
def swarms(database: Database) -> SqlSwarms:
    return SqlSwarms(database, count, price=price)


def items(first: int, last: int) -> list[dict[str, Any]]:
    return [{"task": f"t{n}", "id": f"i{n}"} for n in range(first, last + 1)]


async def three(swarms: SqlSwarms, **spec: Any) -> None:
    await swarms.create(KEY, SPEC.model_copy(update=spec), SETTINGS, items(1, 3), True)


def taking(k: int, most: int = 2, run: str = "run") -> TakeItems:
    return TakeItems("default", "w", run, k, most)


def beginning(item: ItemRef) -> BeginItem:
    return BeginItem("default", "w", item, "shard", "run", None)


async def test_the_same_swarm_is_begun_once(swarms):
    await three(swarms)
    await three(swarms)
    assert (await swarms.swarm(KEY)).items == 3
    with pytest.raises(IdempotencyConflict, match="was begun with other settings"):
        await three(swarms, width=3)


async def test_items_may_come_in_pieces_and_again(swarms):
    await swarms.create(KEY, SPEC, SETTINGS, [], False)
    await swarms.add(KEY, 1, items(1, 2), False)
    await swarms.add(KEY, 2, items(2, 4), False)
    view = await swarms.add(KEY, 4, items(4, 4), True)
    assert (view.items, view.open) == (4, False)
    # The piece whose answer was lost.
    assert (await swarms.add(KEY, 4, items(4, 4), True)).items == 4
    with pytest.raises(UsageError, match="takes no more items"):
        await swarms.add(KEY, 5, items(5, 5), True)


@pytest.mark.parametrize(
    ("first", "added", "error", "why"),
    [
        (5, [{"task": "x"}], UsageError, "has 3 items, and these begin with number 5"),
        (3, [{"task": "other"}], IdempotencyConflict, "Item 3 of swarm 'w' was another"),
        (4, [{"task": "x", "id": "i2"}], UsageError, "Items 2 and 4 have the same id 'i2'"),
        (
            4,
            [{"task": "x", "id": "a"}, {"task": "y", "id": "a"}],
            UsageError,
            "Items 4 and 5 have the same id 'a'",
        ),
        (4, [{"tusk": "x"}], UsageError, "Item 4 has no field 'task'"),
        (100_001, [{"task": "x"}], UsageError, "has 3 items"),
    ],
)
async def test_items_that_do_not_fit_are_refused_and_none_of_them_stays(
    swarms, first, added, error, why
):
    await swarms.create(KEY, SPEC, SETTINGS, items(1, 3), False)
    with pytest.raises(error, match=why):
        await swarms.add(KEY, first, added, False)
    assert (await swarms.swarm(KEY)).items == 3


async def test_a_taking_that_is_repeated_takes_nothing_more(swarms):
    await three(swarms)
    first = await swarms.take(taking(0))
    assert [item.session for item in first.items] == ["w:1", "w:2"]
    assert await swarms.take(taking(0)) == first
    second = await swarms.take(taking(1))
    assert [item.session for item in second.items] == ["w:3"]
    assert (await swarms.take(taking(2))).then == "end"
    assert (await swarms.take(taking(0, run="another"))).items == []


async def test_an_item_is_opened_once_and_under_the_swarms_settings(swarms, database):
    await three(swarms)
    (one, _) = (await swarms.take(taking(0))).items
    assert (await swarms.open_item(beginning(one))).works
    assert (await swarms.open_item(beginning(one))).works
    store = SqlStore(database, count, price)
    view = await store.session(SessionKey("default", "w:1"))
    assert (view.parent, view.waiting, view.status) == ("w", 1, "queued")
    assert (await swarms.swarm(KEY)).counts.running == 1


async def test_a_budget_of_the_tenant_holds_for_the_items_of_a_swarm_too(swarms, database):
    store = SqlStore(database, count, price)
    await store.put_budget("default", "tenant", None, Budget(steps=100))
    await three(swarms)
    (one, _) = (await swarms.take(taking(0))).items
    await swarms.open_item(beginning(one))
    asked = sa.text("SELECT id, budgeted FROM sessions ORDER BY id")
    rows = await database.read(lambda connection: connection.execute(asked).all())
    assert [tuple(row) for row in rows] == [("w", 1), ("w:1", 1)]


async def test_what_is_taken_when_a_swarm_pauses_waits_again(swarms):
    await three(swarms)
    one, two = (await swarms.take(taking(0))).items
    await swarms.open_item(beginning(one))
    await swarms.pause(KEY)
    assert not (await swarms.open_item(beginning(two))).works
    assert (await swarms.take(taking(1))).then == "wait"
    await swarms.resume(KEY, retry_failed=False)
    (again, *_) = (await swarms.take(taking(2))).items
    assert again == two
    assert (await swarms.items(KEY, 1, 1, None))[0].attempts == 1


async def test_what_lost_shards_had_taken_waits_again(swarms):
    await three(swarms)
    one, _ = (await swarms.take(taking(0))).items
    await swarms.open_item(beginning(one))
    head = await swarms.begin(KEY)
    # The one that has its session is worked on by that session's own workflow.
    assert (head.waits, head.works) == (2, 1)


async def test_a_session_of_somebody_elses_is_left_alone(swarms, database):
    store = SqlStore(database, count, price)
    await store.create_session(SessionKey("default", "w:1"), SETTINGS)
    await three(swarms)
    one, two = (await swarms.take(taking(0))).items
    assert not (await swarms.open_item(beginning(one))).works
    assert (await swarms.open_item(beginning(two))).works
    failed = (await swarms.results(KEY, 0, 10))[0]
    assert (failed.state, failed.settled) == ("failed", 1)
    assert failed.reason == "A session of somebody else's is called 'w:1'."
    assert (await store.session(SessionKey("default", "w:1"))).waiting == 0


async def test_what_was_never_opened_is_given_up_once_and_what_is_worked_is_not(swarms):
    await three(swarms)
    one, two = (await swarms.take(taking(0))).items
    assert (await swarms.open_item(beginning(two))).works

    def given_up(item: ItemRef) -> GiveUpItem:
        return GiveUpItem("default", "w", item, "It broke.")

    assert await swarms.give_up(given_up(one))
    assert await swarms.give_up(given_up(one))
    assert not await swarms.give_up(given_up(two))
    (failed,) = await swarms.results(KEY, 0, 10)
    assert (failed.n, failed.state, failed.settled, failed.reason) == (1, "failed", 1, "It broke.")
    # A taking that came to nothing and was taken anew by another.
    assert not (await swarms.open_item(beginning(one))).works


async def test_a_straggler_is_left_alone_where_its_second_session_has_somebodys_name(
    swarms, database
):
    store = SqlStore(database, count, price)
    await three(swarms)
    one, _ = (await swarms.take(taking(0))).items
    assert (await swarms.open_item(beginning(one))).works
    await store.create_session(SessionKey("default", "w:1h"), SETTINGS)

    def hedged(tx: Tx) -> None:
        tx.connection.execute(
            sa.update(schema.swarm_items)
            .where(schema.swarm_items.c.n == 1)
            .values(twin="w:1h", twin_taken_by="run/7")
        )

    await database.write(hedged)
    twin = replace(one, session="w:1h")
    assert not (await swarms.open_item(beginning(twin))).works
    assert (await store.session(SessionKey("default", "w:1h"))).waiting == 0
    # Nor is it taken again.
    assert (await swarms.take(taking(7))).items != [twin]


async def test_a_swarm_and_a_session_cannot_have_one_name(swarms, database):
    store = SqlStore(database, count, price)
    await store.create_session(KEY, SETTINGS)
    with pytest.raises(IdempotencyConflict, match="A session is called 'w'"):
        await three(swarms)


@pytest.mark.parametrize("tenant", ["default", "other"])
async def test_an_unknown_swarm_and_a_foreign_one_are_the_same_to_whoever_asks(swarms, tenant):
    await three(swarms)
    key = SessionKey(tenant, "w" if tenant == "other" else "nothing")
    for asked in (swarms.swarm(key), swarms.pause(key), swarms.items(key, 0, 1, None)):
        with pytest.raises(UnknownSession, match="There is no swarm"):
            await asked
    assert await swarms.every("other", 10, None) == []


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("pause", "is stopping; only a running one can pause"),
        ("resume", "is stopping and cannot go on; wait until it is done"),
    ],
)
async def test_what_cannot_be_asked_of_a_swarm_is_refused_in_words(swarms, asked, why):
    await three(swarms)
    await swarms.cancel(KEY)
    with pytest.raises(UsageError, match=why):
        await (swarms.pause(KEY) if asked == "pause" else swarms.resume(KEY, False))


async def test_a_cancelled_swarm_can_be_resumed_for_what_it_left(swarms):
    await three(swarms)
    await swarms.cancel(KEY)
    head = await swarms.check(KEY)
    assert head.state == "done"
    view = await swarms.swarm(KEY)
    assert (view.counts.skipped, view.reason) == (3, "cancelled")
    with pytest.raises(UsageError, match="worked again by retry_failed"):
        await swarms.resume(KEY, retry_failed=False)
    view = await swarms.resume(KEY, retry_failed=True)
    assert (view.state, view.reason, view.counts.waiting) == ("running", None, 3)
    assert (await swarms.take(taking(5))).then == "more"


async def test_many_items_are_added_and_left_out_in_few_messages_to_the_database(
    swarms, monkeypatch
):
    messages, run = [], Statement.run

    def counted(self: Statement, connection: sa.Connection, *rows: Any) -> None:
        messages.append(len(rows))
        run(self, connection, *rows)

    monkeypatch.setattr(Statement, "run", counted)
    await swarms.create(KEY, SPEC, SETTINGS, items(1, 1500), True)
    await swarms.take(taking(0))
    await swarms.cancel(KEY)
    assert (await swarms.check(KEY)).state == "done"
    assert len(messages) < 20
    left_out = await swarms.results(KEY, 0, 2000)
    assert [(item.n, item.settled) for item in left_out] == [(n, n) for n in range(1, 1501)]
    assert {(item.state, item.reason) for item in left_out} == {
        ("skipped", "The swarm was cancelled.")
    }


async def test_an_item_is_found_by_its_number_before_the_database_knows_how_many_there_are(
    swarms, database
):
    await swarms.create(KEY, SPEC, SETTINGS, items(1, 2000), True)

    def plan(connection: sa.Connection) -> str:
        one = "swarm_items WHERE sid = 1 AND level = 0 AND n = 1000"
        how = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else "EXPLAIN"
        return str(connection.execute(sa.text(f"{how} SELECT * FROM {one}")).all())

    found = await database.read(plan)
    # Any other index would have all items of the level read for each.
    assert "pk_swarm_items" in found or "PRIMARY KEY" in found or "autoindex_swarm_items_1" in found


async def test_an_open_swarm_is_not_done_before_its_last_item_is_told(swarms):
    await swarms.create(KEY, SPEC, SETTINGS, [], False)
    assert (await swarms.take(taking(0))).then == "wait"
    assert (await swarms.check(KEY)).state == "running"
    await swarms.add(KEY, 1, [], True)
    assert (await swarms.check(KEY)).state == "done"


async def test_a_swarm_that_was_changed_is_found_until_somebody_looked(swarms, database):
    await three(swarms)
    assert await swarms.asleep(-1, 10) == [KEY]
    await swarms.check(KEY)
    assert await swarms.asleep(-1, 10) == []
    ((number, key),) = await swarms.unended(0, 10)
    assert key == KEY
    assert await swarms.unended(number, 10) == []
    await swarms.cancel(KEY)
    assert await swarms.asleep(-1, 10) == [KEY]
    await swarms.check(KEY)
    assert await swarms.unended(0, 10) == []
