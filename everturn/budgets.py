"""Budgets: what may be spent, in which unit, and how that is written for people.

Inside, every amount is a whole number, so that sums are exact: millionths of a millionth
of a dollar, tokens, steps and milliseconds.
"""

from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from everturn.messages import Frozen

Scope = Literal["session", "tenant", "day"]
Unit = Literal["usd", "tokens", "steps", "seconds"]
UNITS: tuple[Unit, ...] = ("usd", "tokens", "steps", "seconds")

_PARTS: dict[Unit, int] = {"usd": 10**12, "tokens": 1, "steps": 1, "seconds": 1000}

USD_MIN = 1e-6
USD_MAX = 1_000_000
COUNT_MAX = 10**15


class Amount(NamedTuple):
    """What a call takes; `usd` is None where its price is unknown."""

    usd: int | None = 0
    tokens: int = 0
    steps: int = 0
    seconds: int = 0

    def of(self, unit: Unit) -> int:
        value: int | None = getattr(self, unit)
        return value or 0


class Limits(Frozen):
    """What may be spent at most; None is no limit. `seconds` are those of model and tool calls."""

    usd: float | None = Field(default=None, ge=USD_MIN, le=USD_MAX)
    tokens: int | None = Field(default=None, gt=0, le=COUNT_MAX)
    steps: int | None = Field(default=None, gt=0, le=COUNT_MAX)
    seconds: float | None = Field(default=None, ge=0.001, le=COUNT_MAX / 1000)

    def amount(self, unit: Unit) -> int | None:
        value = getattr(self, unit)
        return None if value is None else whole(unit, value)

    @property
    def units(self) -> tuple[Unit, ...]:
        """Those that have a limit."""
        return tuple(unit for unit in UNITS if getattr(self, unit) is not None)


class Budget(Limits):
    """Limits of a session, tenant or day.

    `soft` is the share of a limit at which a person is asked, such as 0.8; without it the
    turn ends at the limit and nobody is asked.
    """

    soft: float | None = Field(default=None, gt=0, lt=1)

    @model_validator(mode="after")
    def _limits_something(self) -> "Budget":
        if self.soft is not None and not self.units:
            raise ValueError("a soft share needs a limit: usd, tokens, steps or seconds")
        return self


class BudgetVerdict(Limits):
    """What a person says to a question about a budget: its new limits, or that it stays.

    `approval` is the question's number; None is the one that is open.
    """

    verdict: Literal["raise", "deny"]
    approval: int | None = None

    @model_validator(mode="after")
    def _names_what_it_raises(self) -> "BudgetVerdict":
        if self.verdict == "raise" and not self.units:
            raise ValueError("a raise needs a new limit: usd, tokens, steps or seconds")
        if self.verdict == "deny" and self.units:
            raise ValueError("a denial names no limit")
        return self


def whole(unit: Unit, value: float) -> int:
    """`value` in the whole numbers that are stored."""
    return round(value * _PARTS[unit])


def part(unit: Unit, amount: int) -> float:
    """A stored amount as people write it: dollars, tokens, steps, seconds."""
    return amount / _PARTS[unit] if _PARTS[unit] > 1 else amount


def shown(unit: Unit, amount: int) -> str:
    """`amount` with its unit: $0.25, 1,000 tokens, 1 step, 2.5 s."""
    if unit == "usd":
        # What is less than a cent has all of its places.
        places = 6 if amount >= _PARTS["usd"] // 100 else 12
        text = f"{amount / _PARTS['usd']:.{places}f}".rstrip("0")
        whole_part, _, cents = text.partition(".")
        return f"${int(whole_part):,}.{cents:<02}"
    if unit == "seconds":
        return f"{amount / 1000:g} s"
    return f"{amount:,} {unit.removesuffix('s') if amount == 1 else unit}"
