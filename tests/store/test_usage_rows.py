"""What was used, added up: each call once, under its session, agent, model and day.

In a turn of n a reply took n/4 dollars, each of two attempts that were lost or cut n, and a
side call n/2; each of the four n tokens in and n out.
"""

import time
from typing import Any

import pytest
from books import DAY, NOON, Books, fill

from everturn.views import UsageBy, UsageRow, UsageView
from everturn_activities.store import schema, usage


def taken(n: int, turns: int = 1) -> dict[str, Any]:
    """The figures of `turns` turns of n together."""
    return {
        "input_tokens": 4 * n,
        "output_tokens": 4 * n,
        "cached_tokens": 3 * n,
        "reasoning_tokens": n,
        "cost_usd": 2.75 * n,
        "unpriced_calls": 0,
        "model_calls": 2 * turns,
    }


def test_a_session_and_each_of_its_turns_add_up(books: Books) -> None:
    fill(books)
    assert usage.of_session(books.connection, 1) == UsageView(**taken(3, 2))
    of_turns = usage.of_turns(books.connection, 1, 1)
    assert of_turns == {1: UsageView(**taken(1)), 2: UsageView(**taken(2))}
    assert list(usage.of_turns(books.connection, 1, 2)) == [2]
    assert usage.of_session(books.connection, 9) == UsageView()


@pytest.mark.parametrize(
    ("by", "since", "rows"),
    [
        ("session", 0.0, [("b", 30), ("a", 3)]),
        ("session", NOON, [("b", 10), ("a", 1)]),
        ("session", NOON + 1, []),
        ("agent", 0.0, [("y", 22), ("x", 11)]),
        ("day", 0.0, [("2023-11-14", 22), ("2023-11-15", 11)]),
        ("day", NOON - DAY + 1, [("2023-11-15", 11)]),
    ],
)
def test_a_tenants_usage_is_of_its_own_calls_the_dearest_first_and_days_in_order(
    books: Books, by: UsageBy, since: float, rows: list[tuple[str, int]]
) -> None:
    fill(books)
    found = usage.by(books.connection, "t", by, since)
    assert [row.key for row in found] == [key for key, _ in rows]
    turns = {3: 2, 30: 2, 1: 1, 10: 1, 11: 2, 22: 2}
    for row, (_, n) in zip(found, rows, strict=True):
        calls = {"model_calls": turns[n], "side_calls": turns[n], "lost_attempts": 2 * turns[n]}
        assert row == UsageRow(key=row.key, **{**taken(n), **calls})


def test_days_stand_in_order_though_a_later_one_was_dearer(books: Books) -> None:
    step = {"sid": 1, "context": "{}", "placement": "inline", "model": "m", "state": "done"}
    for number, (began, cost) in enumerate([(NOON - DAY, 1.0), (NOON, 5.0)], start=1):
        at = {"turn": number, "step": 1, "started_at": began, "ended_at": began}
        turn = {"sid": 1, "turn": number, "agent": "x", "spec_hash": "", "boundary": ""}
        books.insert(schema.turns, **turn, started_at=began)
        books.insert(schema.steps, **step, **at, cost_usd=cost)
    found = usage.by(books.connection, "t", "day", 0.0)
    assert [row.key for row in found] == ["2023-11-14", "2023-11-15"]


def test_embeddings_are_the_tenants_own_that_began_in_time_and_were_or_may_be_answered(
    books: Books,
) -> None:
    tokens = 1
    for tenant, began, state in [
        ("t", NOON, "done"),
        ("t", NOON, "lost"),
        ("t", NOON, "open"),
        ("t", NOON, "refunded"),
        ("t", NOON - 1, "done"),
        ("other", NOON, "done"),
    ]:
        row = {"tenant": tenant, "workspace": "/", "model": "v", "texts": 1, "state": state}
        row |= {"day": "", "started_at": began, "reserved_tokens": 0, "input_tokens": tokens}
        books.insert(schema.embeddings, **row, usd=0, nonce=str(tokens))
        tokens *= 10
    [row] = usage.by(books.connection, "t", "model", NOON)
    assert (row.key, row.embedding_calls, row.input_tokens) == ("v", 2, 11)


def test_a_side_call_is_of_the_time_when_it_began(books: Books) -> None:
    books.insert(schema.turns, sid=1, turn=1, agent="x", spec_hash="", boundary="", started_at=0.0)
    side = {"sid": 1, "turn": 1, "ordinal": 1, "kind": "compaction", "plan": "{}", "model": "m"}
    times = {"started_at": NOON - 1, "ended_at": NOON + 1}
    books.insert(schema.side_calls, **side, **times, state="done", output_tokens=1)
    assert usage.by(books.connection, "t", "model", NOON) == []
    [row] = usage.by(books.connection, "t", "model", NOON - 1)
    assert row.side_calls == 1


def test_each_model_has_its_own_calls_and_those_without_a_price_are_counted(books: Books) -> None:
    fill(books)
    where = {"sid": 1, "turn": 1, "started_at": NOON, "ended_at": NOON, "model": "new"}
    step = {**where, "step": 3, "context": "{}", "placement": "inline", "input_tokens": 7}
    books.insert(schema.steps, **step, state="done", cost_usd=None)
    found = {row.key: row for row in usage.by(books.connection, "t", "model", 0.0)}
    assert list(found) == ["old", "new", "m"]
    figures = {
        key: (row.model_calls, row.lost_attempts, row.side_calls, row.cost_usd)
        for key, row in found.items()
    }
    assert figures == {
        "old": (2, 4, 0, 2.25 * 22),
        "new": (3, 4, 0, 2.25 * 11),
        "m": (0, 0, 4, 0.5 * 33),
    }
    assert [row.unpriced_calls for row in found.values()] == [0, 1, 0]
    assert found["new"].input_tokens == 3 * 11 + 7


def test_costs_that_no_float_can_hold_add_up_exactly(books: Books) -> None:
    fill(books)
    where = {"sid": 3, "turn": 1, "started_at": NOON, "ended_at": NOON, "context": "{}"}
    for step in range(3, 13):
        row = {**where, "step": step, "placement": "inline", "state": "done", "cost_usd": 0.1}
        books.insert(schema.steps, **row)
    assert usage.of_session(books.connection, 3).cost_usd == 2.75 * 300 + 1
    [other] = usage.by(books.connection, "other", "session", 0.0)
    assert other.cost_usd == 2.75 * 300 + 1


def test_a_day_begins_at_midnight_utc_wherever_this_machine_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert usage.start_of("2023-11-15") == NOON - DAY / 2
    finally:
        monkeypatch.undo()
        time.tzset()
    with pytest.raises(ValueError, match="yesterday"):
        usage.start_of("yesterday")
