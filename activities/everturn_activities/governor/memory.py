"""The governor of one process alone: its state is a few dictionaries."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from everturn_activities.governor import (
    BreakerState,
    Cause,
    Ending,
    GovernorState,
    KeyState,
    ModelCall,
    Permit,
    Route,
    Wait,
    rules,
)
from everturn_activities.governor.limits import Limits


class MemoryGovernor:
    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._books: dict[str, _MemoryBook] = {}
        self._breakers: dict[tuple[str, str], rules.Breaker] = {}

    async def ask(self, call: ModelCall) -> Permit | Wait:
        now = self._clock()
        limits = self._limits.of(call.route.provider)
        answer = rules.ask(self._book(call.route), call, limits, now)
        if isinstance(answer, Wait):
            return answer
        return Permit(call, now, answer.leased, answer.after_seconds)

    async def settle(self, permit: Permit, ending: Ending) -> None:
        now = self._clock()
        call = permit.call
        limits = self._limits.of(call.route.provider)
        book = self._book(call.route)
        rules.settle(book, call, ending, limits, now - permit.began, now)

    async def renew(self, permits: Sequence[Permit]) -> None:
        for permit in permits:
            call = permit.call
            limits = self._limits.of(call.route.provider)
            rules.renew(self._book(call.route), call, limits, self._clock())

    async def state(self) -> GovernorState:
        now = self._clock()
        keys = [book.state(key, now) for key, book in self._books.items()]
        return GovernorState(
            [state for state in keys if state is not None],
            [
                BreakerState(
                    provider,
                    model,
                    breaker.state(now),
                    breaker.failures,
                    max(0.0, breaker.until - now),
                )
                for (provider, model), breaker in self._breakers.items()
            ],
        )

    def now(self) -> float:
        return self._clock()

    async def close(self) -> None:
        """Nothing is open."""

    def _book(self, route: Route) -> "_MemoryBook":
        book = self._books.get(route.key)
        if book is None:
            book = self._books[route.key] = _MemoryBook(route.provider, self._breakers)
        return book


class _MemoryBook:
    def __init__(self, provider: str, breakers: dict[tuple[str, str], rules.Breaker]) -> None:
        self.key = rules.KeyRow()
        self._provider = provider
        self._breakers = breakers
        self._waiters: dict[str, rules.Waiter] = {}
        self._leases: dict[str, tuple[str, float]] = {}

    def breaker(self, model: str) -> rules.Breaker:
        known = self._breakers.get((self._provider, model))
        return replace(known) if known is not None else rules.Breaker()

    def keep_breaker(self, model: str, breaker: rules.Breaker | None) -> None:
        if breaker is None:
            self._breakers.pop((self._provider, model), None)
        else:
            self._breakers[(self._provider, model)] = breaker

    def tidy(self, gone: float, now: float) -> None:
        self._waiters = {key: one for key, one in self._waiters.items() if one.due >= gone}
        self._leases = {key: one for key, one in self._leases.items() if one[1] > now}

    def waiter(self, call_id: str) -> rules.Waiter | None:
        return self._waiters.get(call_id)

    def keep_waiter(self, waiter: rules.Waiter) -> None:
        self._waiters[waiter.id] = waiter

    def drop_waiter(self, call_id: str) -> None:
        self._waiters.pop(call_id, None)

    def ahead(self, waiter: rules.Waiter, line: Cause, model: str | None, due_after: float) -> int:
        lines = ("busy", "rate") if line == "busy" else (line,)
        place = (waiter.tag, waiter.number)
        return sum(
            1
            for other in self._waiters.values()
            if other.line in lines
            and model in (None, other.model)
            and other.due > due_after
            and (other.tag, other.number) < place
        )

    def running(self, model: str, besides: str) -> int:
        return sum(1 for key, (of, _) in self._leases.items() if of == model and key != besides)

    def keep_lease(self, call_id: str, model: str, until: float) -> None:
        self._leases[call_id] = (model, until)

    def drop_lease(self, call_id: str) -> None:
        self._leases.pop(call_id, None)

    def state(self, key: str, now: float) -> KeyState | None:
        """None where nothing is held back."""
        self.tidy(now - rules.GONE_SECONDS, now)
        return rules.state(
            key, self._provider, self.key, len(self._waiters), len(self._leases), now
        )
