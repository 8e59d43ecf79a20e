"""Accounts: what is counted where, for whom and on which day, and what a limit lets begin.

A token costs a tenth of a cent.
"""

from typing import Any

import pytest
import sqlalchemy as sa
from books import DAY, NOON, ONE, Books, fill
from stories import SPEC, count, price

from everturn.budgets import UNITS, Amount, Unit
from everturn.session import ContextHead
from everturn_activities.gateways import Usage
from everturn_activities.store import ledger, schema
from everturn_activities.store.accounts import Account
from everturn_activities.store.metering import Meter, Terms

TERMS = Terms(Meter(count, price), lambda connection: SPEC)


def account(**given: Any) -> Account:
    none: dict[Unit, Any] = dict.fromkeys(UNITS)
    zero: dict[Unit, Any] = dict.fromkeys(UNITS, 0)
    values = {"limit": none, "mark": none, "reserved": zero, "spent": zero}
    made = {kind: {**known, **given.pop(kind, {})} for kind, known in values.items()}
    head = {"id": 1, "tenant": "t", "sid": 1, "scope": "session", "day": "", "parent": None}
    return Account(**{**head, "soft": None, "applied": "", **given, **made})


def test_a_limit_may_be_spent_to_its_last_token_and_not_beyond() -> None:
    mine = account(limit={"tokens": 20}, spent={"tokens": 5}, reserved={"tokens": 5})
    ten, fifteen, sixteen = (Amount(tokens=n) for n in (10, 15, 16))
    assert (mine.is_taken("tokens", ten), mine.is_taken("tokens", Amount(tokens=11))) == (
        False,
        True,
    )
    assert (mine.is_over("tokens", fifteen), mine.is_over("tokens", sixteen)) == (False, True)
    assert not account(spent={"tokens": 5}).is_over("tokens", sixteen)


def test_a_call_needs_some_seconds_to_be_left_though_none_are_reserved() -> None:
    left, gone = (account(limit={"seconds": 100}, spent={"seconds": n}) for n in (99, 100))
    assert (left.is_over("seconds", ONE), gone.is_over("seconds", ONE)) == (False, True)


@pytest.mark.parametrize(
    ("limit", "soft", "mark"), [(100, 0.8, 80), (3, 0.5, 1), (1, 0.5, 1), (100, None, None)]
)
def test_a_person_is_asked_from_the_soft_share_on(
    limit: int, soft: float | None, mark: int | None
) -> None:
    mine = account(soft=soft)
    mine.allow("steps", limit)
    assert (mine.limit["steps"], mine.mark["steps"]) == (limit, mark)
    if mark is not None:
        asked = []
        for spent in (mark - 1, mark):
            mine.spent["steps"] = spent
            asked.append(mine.is_marked("steps"))
        assert asked == [False, True]
    mine.allow("steps", None)
    assert (mine.limit["steps"], mine.mark["steps"]) == (None, None)


def test_who_raises_is_asked_at_the_new_share_only_where_it_is_not_spent() -> None:
    mine = account(soft=0.5, spent={"steps": 5})
    mine.raise_to("steps", 10)
    assert mine.mark["steps"] is None
    mine.raise_to("steps", 12)
    assert mine.mark["steps"] == 6


def test_a_day_begins_with_nothing_spent_and_asks_anew() -> None:
    spent, limit = {"tokens": 90}, {"tokens": 100}
    day = account(scope="day", day="2023-11-15", soft=0.5, spent=spent, reserved=spent, limit=limit)
    day.begin_day("2023-11-15")
    day.begin_day("2023-11-14")
    assert (day.spent["tokens"], day.covers("2023-11-15")) == (90, True)
    day.begin_day("2023-11-16")
    assert (day.day, day.spent["tokens"], day.reserved["tokens"]) == ("2023-11-16", 0, 0)
    assert (day.mark["tokens"], day.covers("2023-11-15")) == (50, False)
    session = account(spent=spent)
    session.begin_day("2023-11-16")
    assert (session.spent["tokens"], session.covers("2023-11-15")) == (90, True)


@pytest.mark.parametrize(("scope", "n"), [("session", 1 + 2), ("tenant", 33), ("day", 11)])
def test_an_account_that_is_opened_late_begins_with_all_that_is_its_own(
    books: Books, scope: str, n: int
) -> None:
    """A step is n/4 dollars, an attempt that was lost or cut n each, a side call n/2."""
    fill(books)
    books.put(scope, "a" if scope == "session" else None, usd=10**6)
    found = books.account(scope, 1 if scope == "session" else 0)
    assert found.spent == {
        "usd": round((0.25 + 2 + 0.5) * n * 10**12),
        "tokens": (2 + 4 + 2) * n,
        "steps": {"session": 2, "tenant": 4, "day": 2}[scope],
        "seconds": 1000 * n + 2 * n + 1000 * n,
    }
    assert found.reserved == dict.fromkeys(UNITS, n)
    marked = books.connection.execute(sa.select(schema.sessions.c.budgeted)).scalars().all()
    assert list(marked) == ([1, 0, 0] if scope == "session" else [1, 1, 0])


def test_a_call_is_reserved_from_its_own_accounts_and_given_back_to_them(books: Books) -> None:
    for scope, name, tenant in (
        ("session", "a", "t"), ("session", "b", "t"), ("session", "c", "other"),
        ("tenant", None, "t"), ("day", None, "t"), ("tenant", None, "other"),
    ):  # fmt: skip
        books.put(scope, name, tenant, tokens=100, steps=9)
    row = books.row()
    assert books.reserve("a", row) is None

    def sums(kind: str) -> list[tuple[int, int]]:
        places = (("session", 1, "t"), ("tenant", 0, "t"), ("day", 0, "t"))
        others = (("session", 2, "t"), ("session", 3, "other"), ("tenant", 0, "other"))
        found = [getattr(books.account(*place), kind) for place in places + others]
        return [(each["tokens"], each["steps"]) for each in found]

    assert sums("reserved") == [(10, 1)] * 3 + [(0, 0)] * 3
    other = books.row(step=2)
    assert books.reserve("a", other) is None
    for _ in range(2):
        books.settle("a", row)
    assert sums("reserved") == [(10, 1)] * 3 + [(0, 0)] * 3
    assert sums("spent") == [(5, 1)] * 3 + [(0, 0)] * 3
    books.in_session("a", lambda s: ledger.fail(s, other, TERMS))
    assert sums("reserved") == [(0, 0)] * 6
    assert sums("spent") == [(5, 1)] * 3 + [(0, 0)] * 3


def test_an_executor_draws_from_what_all_its_ancestors_have_left(books: Books) -> None:
    """Here `b` works for `a`, and a third session of the tenant for `b`."""
    books.insert(
        schema.sessions, tenant="t", id="d", working_dir="/", turn=1, open_turn=1, host_epoch=1,
        created_at=0.0, updated_at=0.0, agent="x", workspace="/",
    )  # fmt: skip
    books.put("session", "a", tokens=25)
    for name, sid, parent in (("b", 2, 1), ("d", 4, 2)):
        books.put("session", name, tokens=1000)
        of_parent = books.account("session", parent).id
        books.connection.execute(
            sa.update(schema.accounts).where(schema.accounts.c.sid == sid).values(parent=of_parent)
        )
    row = books.row()
    assert books.reserve("d", row) is None
    assert [books.account("session", n).reserved["tokens"] for n in (1, 2, 4)] == [10] * 3
    books.settle("d", row, 16)
    assert [books.account("session", n).spent["tokens"] for n in (1, 2, 4)] == [16] * 3
    assert books.reserve("b", books.row(step=2), Amount(0, 9, 1)) is None
    blocked = books.reserve("d", books.row(step=3))
    assert blocked is not None
    assert blocked.how == "over"
    assert "allows 25 tokens; 16 tokens spent" in blocked.reason


def test_the_next_day_lets_begin_what_this_one_did_not(books: Books) -> None:
    books.put("day", tokens=12)
    row = books.row()
    assert books.reserve("a", row) is None
    taken = books.reserve("b", books.row())
    assert taken is not None
    assert taken.how == "waits"
    books.now += DAY
    assert books.put("day", tokens=12).reserved.tokens == 0
    assert books.reserve("b", books.row()) is None
    books.settle("a", row)
    day = books.account("day")
    assert (day.spent["tokens"], day.reserved["tokens"]) == (0, 10)
    books.put("day", tokens=50)
    assert books.account("day").reserved["tokens"] == 10


def test_a_call_that_began_without_an_entry_counts_for_the_day_it_began(books: Books) -> None:
    row = books.row()
    books.now += DAY
    books.put("day", tokens=100)
    books.put("tenant", tokens=100)
    books.settle("a", row)
    spent = [books.account(scope).spent["tokens"] for scope in ("tenant", "day")]
    assert spent == [5, 0]


def test_a_call_without_a_price_is_barred_by_a_limit_in_dollars_alone(books: Books) -> None:
    books.put("session", "a", tokens=100)
    assert books.reserve("a", books.row(), Amount(None, 10, 1)) is None
    books.put("tenant", usd=1)
    blocked = books.reserve("a", books.row(step=2), Amount(None, 10, 1))
    assert blocked is not None
    assert blocked.how == "unpriced"
    assert blocked.reason.startswith("The budget of the tenant is in dollars, and no price of m")


def test_a_clock_that_was_put_back_takes_no_seconds_off(books: Books) -> None:
    books.put("session", "a", seconds=100)
    row = books.row()
    books.reserve("a", row)
    books.now -= 5
    books.settle("a", row)
    assert books.account("session", 1).spent["seconds"] == 0


def test_the_seconds_of_a_steps_tools_add_up_in_one_entry_and_in_all_accounts(
    books: Books,
) -> None:
    books.put("session", "a", seconds=100)
    books.put("tenant", seconds=100)
    for seconds in (1.5, 0.0, 0.5):
        books.in_session("a", lambda s, taken=seconds: ledger.spend_tools(s, 1, 1, taken))
    books.in_session("b", lambda s: ledger.spend_tools(s, 1, 1, 1.0))
    entries = books.connection.execute(
        sa.select(schema.entries.c.sid, schema.entries.c.milliseconds).order_by("sid")
    ).all()
    assert [tuple(entry) for entry in entries] == [(1, 2000), (2, 1000)]
    assert books.account("session", 1).spent["seconds"] == 2000
    assert books.account("tenant").spent["seconds"] == 3000


@pytest.mark.parametrize(
    ("limits", "wanted", "free"),
    [
        ({"tokens": 100}, Amount(None, 10, 1), True),
        ({"usd": 1}, Amount(None, 10, 1), False),
        ({"tokens": 14}, ONE, False),
        ({"tokens": 15}, ONE, True),
        ({"tokens": 100, "soft": 0.05}, ONE, False),
    ],
    ids=["priceless", "without a price", "too much", "just enough", "to be asked about"],
)
def test_a_call_that_nobody_waits_for_begins_only_where_nothing_is_in_the_way(
    books: Books, limits: dict[str, Any], wanted: Amount, free: bool
) -> None:
    books.put("session", "a", **limits)
    row = books.row()
    books.reserve("a", row, Amount(0, 5, 1))
    books.settle("a", row, 5)
    call = ledger.Call(1, 1, 1, "m", None, books.now, 7, "compaction")
    assert books.in_session("a", lambda s: ledger.reserve_if_free(s, call, wanted)) == free
    assert books.account("session", 1).reserved["tokens"] == (wanted.tokens if free else 0)
    asked = books.connection.execute(sa.select(schema.budget_asks)).all()
    assert asked == []


def test_a_side_call_is_no_step_and_its_refund_spends_nothing(books: Books) -> None:
    books.put("session", "a", tokens=100)
    first, second = (ledger.Call(1, n, 1, "m", None, NOON, 7, "compaction") for n in (1, 2))
    for call in (first, second):
        books.in_session("a", lambda s, one=call: ledger.reserve_call(s, one, Amount(0, 10)))
    books.settle("a", first, 4)
    books.now += 3
    books.in_session("a", lambda s: ledger.refund(s, second))
    found = books.account("session", 1)
    assert found.spent == {"usd": 4 * 10**9, "tokens": 4, "steps": 0, "seconds": 0}
    assert found.reserved == dict.fromkeys(UNITS, 0)


@pytest.mark.parametrize("attempt", [1, 2])
def test_each_attempt_of_a_step_has_an_entry_of_its_own(books: Books, attempt: int) -> None:
    books.put("session", "a", tokens=100)
    for number in (1, 2):
        assert books.reserve("a", books.row(attempt=number)) is None
    books.settle("a", books.row(attempt=attempt))
    states = books.connection.execute(
        sa.select(schema.entries.c.state).order_by(schema.entries.c.attempt)
    ).scalars()
    assert list(states) == (["settled", "open"] if attempt == 1 else ["open", "settled"])


def test_what_a_call_may_take_is_its_input_and_the_longest_reply() -> None:
    meter, context = Meter(count, price), ContextHead("t", "a", 1, 1, 1, 0, 7, "inline")
    short = SPEC.model_copy(update={"agent": SPEC.agent.model_copy(update={"tokens_max": 20})})
    assert meter.most(short, "m", context.tokens) == Amount(27 * 10**9, 27, 1)
    assert meter.most(SPEC, "m", context.tokens) == Amount(4103 * 10**9, 4103, 1)
    assert meter.most(short, "openai/unpriced", 7) == Amount(None, 27, 1)
    assert meter.streamed(7, "") == Usage(7, 0, estimated=True)
    assert meter.streamed(7, "words") == Usage(7, 7, estimated=True)
