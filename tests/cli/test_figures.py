"""How figures are written for people."""

import pytest

from everturn_workers.cli.figures import shown_cost


@pytest.mark.parametrize(
    ("usd", "shown"),
    [(None, "unknown"), (0.0, "$0.0000"), (0.00001, "<$0.0001"), (1.25, "$1.2500")],
)
def test_a_cost_too_small_to_show_is_not_shown_as_nothing(usd: float | None, shown: str) -> None:
    assert shown_cost(usd) == shown
