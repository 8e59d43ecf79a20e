"""Amounts and limits: whole numbers inside, dollars and seconds for people."""

import pytest
from pydantic import ValidationError

from everturn.budgets import (
    UNITS,
    Amount,
    Budget,
    BudgetVerdict,
    Limits,
    Unit,
    part,
    shown,
    whole,
)


@pytest.mark.parametrize(
    ("unit", "amount", "text"),
    [
        ("usd", 10**12 // 4, "$0.25"),
        ("usd", 1234 * 10**12, "$1,234.00"),
        ("usd", 10**12 + 10**6, "$1.000001"),
        ("usd", 50 * 10**6, "$0.00005"),
        ("usd", 10**9 + 1, "$0.001000000001"),
        ("usd", 0, "$0.00"),
        ("tokens", 1000, "1,000 tokens"),
        ("tokens", 1, "1 token"),
        ("steps", 0, "0 steps"),
        ("seconds", 2500, "2.5 s"),
    ],
)
def test_an_amount_is_written_with_its_unit(unit: Unit, amount: int, text: str) -> None:
    assert shown(unit, amount) == text


@pytest.mark.parametrize(
    ("unit", "value", "amount"),
    [("usd", 0.1, 10**11), ("usd", 0.29, 29 * 10**10), ("seconds", 0.0019, 2), ("tokens", 7, 7)],
)
def test_what_is_stored_is_the_nearest_whole_number(unit: Unit, value: float, amount: int) -> None:
    assert whole(unit, value) == amount


def test_an_amount_goes_out_as_it_came_in() -> None:
    assert [part(unit, whole(unit, 2)) for unit in UNITS] == [2, 2, 2, 2]
    assert part("seconds", 1500) == 1.5


def test_what_costs_nobody_knows_what_takes_no_dollars() -> None:
    assert [Amount(None, 3).of(unit) for unit in UNITS] == [0, 3, 0, 0]


def test_the_least_limit_of_each_unit_is_more_than_nothing() -> None:
    least = {"usd": 1e-6, "tokens": 1, "steps": 1, "seconds": 0.001}
    limits = Limits.model_validate(least)
    assert all((limits.amount(unit) or 0) >= 1 for unit in UNITS)
    for unit, value in least.items():
        with pytest.raises(ValidationError):
            Limits.model_validate({unit: value / 2})


@pytest.mark.parametrize(
    ("kind", "given", "why"),
    [
        (Budget, {"soft": 0.5}, "a soft share needs a limit"),
        (Budget, {"soft": 1, "usd": 1}, "less than 1"),
        (BudgetVerdict, {"verdict": "raise"}, "a raise needs a new limit"),
        (BudgetVerdict, {"verdict": "deny", "usd": 1}, "a denial names no limit"),
    ],
)
def test_a_budget_or_verdict_that_says_nothing_is_refused(
    kind: type[Limits], given: dict[str, object], why: str
) -> None:
    with pytest.raises(ValidationError, match=why):
        kind.model_validate(given)
