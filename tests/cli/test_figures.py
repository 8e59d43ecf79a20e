"""How figures are written for people."""

import pytest

from everturn_workers.cli.figures import shown_cost, shown_dollars, shown_span


@pytest.mark.parametrize(
    ("usd", "unpriced", "shown"),
    [
        (0.0, 0, "$0.0000"),
        (0.00001, 0, "<$0.0001"),
        (0.0001, 0, "$0.0001"),
        (1.25, 0, "$1.2500"),
        (1.25, 2, "$1.2500 + 2 unpriced"),
        (0.0, 1, "1 unpriced"),
    ],
)
def test_a_cost_tells_its_known_sum_and_how_many_calls_had_no_price(
    usd: float, unpriced: int, shown: str
) -> None:
    assert shown_cost(usd, unpriced) == shown


@pytest.mark.parametrize(
    ("usd", "shown"),
    [(0.0, "$0.0000"), (0.00005, "$0.00005"), (0.0123456, "$0.0123456"), (2500.5, "$2,500.5000")],
)
def test_a_budget_is_shown_with_all_of_its_places(usd: float, shown: str) -> None:
    assert shown_dollars(usd) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.04, "0 s"),
        (2.0, "2 s"),
        (2.34, "2.3 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (3599, "59 min 59 s"),
        (3600, "1 h"),
        (5400, "1 h 30 min"),
        (86_400, "1 d"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_span_is_shown_in_its_two_largest_units(seconds: float, shown: str) -> None:
    assert shown_span(seconds) == shown
