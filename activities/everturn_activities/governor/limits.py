"""What providers allow, as declared, and as token buckets keep to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

BURST = 0.1
"""The part of a window's allowance that may go at once after a quiet time."""
ANY = "*"

Slots = Annotated[int, Field(ge=1)]


class ProviderLimits(BaseModel):
    """What one provider key may do. `concurrency` is for each model, or by model; a breaker
    opens after `breaker_failures` in a row, at first for `breaker_seconds`. Where no rate is
    declared a crowd begins slowly, unless `careful` is false."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests_per_second: float | None = Field(default=None, gt=0)
    requests_per_minute: float | None = Field(default=None, gt=0)
    tokens_per_minute: float | None = Field(default=None, gt=0)
    concurrency: Slots | dict[str, Slots] | None = None
    breaker_failures: int = Field(default=5, ge=1)
    breaker_seconds: float = Field(default=10.0, gt=0)
    careful: bool = True

    def slots(self, model: str) -> int | None:
        """How many calls of `model` may run at once; None where any number may."""
        if isinstance(self.concurrency, dict):
            return self.concurrency.get(model, self.concurrency.get(ANY))
        return self.concurrency

    @property
    def rates(self) -> "tuple[Rate, ...]":
        found = []
        if self.requests_per_second is not None:
            found.append(Rate.of("requests_second", "calls", self.requests_per_second, 1.0))
        if self.requests_per_minute is not None:
            found.append(Rate.of("requests_minute", "calls", self.requests_per_minute, 60.0))
        if self.tokens_per_minute is not None:
            found.append(Rate.of("tokens_minute", "tokens", self.tokens_per_minute, 60.0))
        return tuple(found)

    def shared(self, part: float) -> "ProviderLimits":
        """That `part` of every limit; of running calls one at least."""

        def of(most: float | None) -> float | None:
            return None if most is None else most * part

        slots = self.concurrency
        if isinstance(slots, dict):
            slots = {model: max(1, int(most * part)) for model, most in slots.items()}
        elif slots is not None:
            slots = max(1, int(slots * part))
        return self.model_copy(
            update={
                "requests_per_second": of(self.requests_per_second),
                "requests_per_minute": of(self.requests_per_minute),
                "tokens_per_minute": of(self.tokens_per_minute),
                "concurrency": slots,
            }
        )

    def governs(self, model: str) -> bool:
        """Whether anything is declared that a call of `model` must be counted for."""
        return bool(self.rates) or self.slots(model) is not None


@dataclass(frozen=True)
class Rate:
    """A bucket: it holds `capacity` at most and gains `per_second`, which itself rises by
    `growth` with every call."""

    name: str
    counts: Literal["calls", "tokens"]
    capacity: float
    per_second: float
    growth: float = 0.0

    @classmethod
    def of(
        cls, name: str, counts: Literal["calls", "tokens"], most: float, seconds: float
    ) -> "Rate":
        """A bucket that lets at most `most` calls through in any window of `seconds`.

        A full bucket and what it gains meanwhile could otherwise be twice the allowance,
        which a provider that counts strictly refuses.
        """
        capacity = max(1.0, BURST * most)
        return cls(name, counts, capacity, (most - capacity + 1) / seconds)


class Limits:
    """Limits by provider: its address or its name; `*` is any that is not named."""

    def __init__(self, by_provider: Mapping[str, ProviderLimits] | None = None) -> None:
        self._by_provider = dict(by_provider or {})
        self._default = self._by_provider.get(ANY, ProviderLimits())

    def shared(self, part: float) -> "Limits":
        """What is left for one of several who cannot ask each other."""
        return Limits({name: one.shared(part) for name, one in self._by_provider.items()})

    def of(self, provider: str) -> ProviderLimits:
        return self._by_provider.get(provider, self._default)
