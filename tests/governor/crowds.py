"""Crowds of callers and an endpoint that counts, on a clock of their own."""

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from governed import OK, Clock, call

from everturn_activities.gateways.allowances import Allowance
from everturn_activities.governor import Ending, Permit
from everturn_activities.governor.quick import LOOK_SECONDS, QuickGovernor


class Endpoint(Protocol):
    refused: int

    def answer(self, now: float) -> Ending: ...


@dataclass
class Strict:
    """Refuses every call beyond `per_second` within any second, and tells nothing before."""

    per_second: int
    refused: int = 0
    taken: deque[float] = field(default_factory=deque)

    def answer(self, now: float) -> Ending:
        while self.taken and self.taken[0] <= now - 1:
            self.taken.popleft()
        if len(self.taken) >= self.per_second:
            self.refused += 1
            return Ending("rate_limited", self.taken[0] + 1 - now)
        self.taken.append(now)
        return OK


@dataclass
class Telling:
    """A bucket of `limit` calls that fills within a minute; each reply tells what is left."""

    limit: float
    refused: int = 0
    level: float = math.inf
    at: float = 0.0

    def answer(self, now: float) -> Ending:
        gain = self.limit / 60
        self.level = min(self.limit, self.level + (now - self.at) * gain)
        self.at = now
        if self.level < 1:
            self.refused += 1
            return Ending("rate_limited", (1 - self.level) / gain)
        self.level -= 1
        reset = (self.limit - self.level) / gain
        return replace(OK, allowances=(Allowance("calls", self.limit, int(self.level), reset),))


@dataclass
class Crowd:
    """Callers that make `calls` one after another, by governors of several processes.

    From leave to begin until the endpoint sees the call, and back, pass up to
    `late_seconds` each, and timers end as late as that.
    """

    clock: Clock
    governors: list[QuickGovernor]
    endpoint: Endpoint
    late_seconds: float = 0.1
    waited: dict[str, float] = field(default_factory=dict)

    async def run(self, callers: int, calls: int = 1) -> float:
        """How many seconds it took until all were answered."""
        began = self.clock.now
        dice, numbers = random.Random(1), itertools.count()
        due: list[tuple[float, int, Callable[[], object]]] = []

        def later(seconds: float, then: Callable[[], object]) -> None:
            at = self.clock.now + seconds + dice.random() * self.late_seconds
            heapq.heappush(due, (at, next(numbers), then))

        async def ask(name: str, number: int, since: float) -> None:
            governor = self.governors[hash_of(name) % len(self.governors)]
            wanted = replace(call(f"{name}/{number}", tenant=name), caller=name)
            answer = await governor.ask(wanted)
            if not isinstance(answer, Permit):
                later(answer.seconds, lambda: ask(name, number, since))
                return
            self.waited[wanted.id] = self.clock.now - since
            later(answer.after_seconds, lambda: reach(governor, answer, name, number))

        async def reach(governor: QuickGovernor, permit: Permit, name: str, number: int) -> None:
            ending = self.endpoint.answer(self.clock.now)
            later(0, lambda: hear(governor, permit, ending, name, number))

        async def hear(
            governor: QuickGovernor, permit: Permit, ending: Ending, name: str, number: int
        ) -> None:
            await governor.settle(permit, ending)
            if ending.how == "ok":
                number += 1
            if number < calls:
                pause = ending.retry_after_seconds or 0.0
                later(pause, lambda: ask(name, number, self.clock.now))

        for caller in range(callers):
            name = f"s{caller}"
            later(0, lambda name=name: ask(name, 0, began))
        looks_at = self.clock.now
        while due:
            at, _, then = heapq.heappop(due)
            self.clock.now = max(self.clock.now, at)
            if self.clock.now >= looks_at:
                for governor in self.governors:
                    await governor.look()
                looks_at = self.clock.now + LOOK_SECONDS
            await then()  # type: ignore[misc]
        return self.clock.now - began


def hash_of(name: str) -> int:
    return int(name.removeprefix("s"))
