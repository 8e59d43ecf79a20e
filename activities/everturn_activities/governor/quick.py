"""The governor as calls meet it: answers from memory where nothing holds a call back.

What the fleet knows is looked at about once a second. While nothing is declared for a
provider, no pause is in force and the model's breaker is closed, to ask costs microseconds
and a success is told to nobody. Only a crowd whose calls come faster than what is known to go
well asks the fleet, which lets it begin carefully.
"""

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from everturn_activities.governor import (
    FAILURES,
    BreakerState,
    Ending,
    Governor,
    GovernorState,
    ModelCall,
    Permit,
    Route,
    Wait,
)
from everturn_activities.governor.limits import Limits
from everturn_activities.governor.rules import LEASE_SECONDS

LOOK_SECONDS = 1.0
RENEW_SECONDS = LEASE_SECONDS / 3
SEEN_SECONDS = 1.0
"""Over how long the pace of calls that nobody counts is measured."""
CALLERS_KEPT = 100
FEW = 10
"""So many callers of a process are no crowd, however fast they call."""
CALLER_SECONDS = 5.0
UNHURRIED = 5.0
"""Calls a second that a crowd may make of any provider."""
PROVEN_SHARE = 0.8
"""What a process takes of the fleet's pace without asking."""

log = logging.getLogger(__name__)


class QuickGovernor:
    """Stands before `shared`. `run` looks, and renews the leases of this process's calls."""

    def __init__(self, shared: Governor, limits: Limits) -> None:
        self._shared = shared
        self._limits = limits
        self._held: dict[str, Permit] = {}
        self._seen: dict[str, tuple[float, float]] = {}
        self._callers: dict[str, OrderedDict[str, float]] = {}
        self._unhurried: dict[str, float] = {}
        self._known = False
        self._restrained: frozenset[str] = frozenset()
        self._breakers: dict[tuple[str, str], BreakerState] = {}
        self._looked_at = 0.0

    def counts_tokens(self, route: Route) -> bool:
        """Whether a call must say how many tokens it takes."""
        declared = self._limits.of(route.provider).tokens_per_minute
        return declared is not None or route.key in self._restrained

    def is_free(self, call: ModelCall) -> bool:
        """Whether a call may begin without anybody else being asked."""
        return self._is_unbound(call.route) and not self._is_crowded(call)

    def _is_unbound(self, route: Route) -> bool:
        """Whether nothing is known that holds a call back."""
        if not self._known or route.key in self._restrained:
            return False
        breaker = self._breakers.get((route.provider, route.model))
        if breaker is not None and breaker.state != "closed":
            return False
        return not self._limits.of(route.provider).governs(route.model)

    def is_open(self, model: str) -> bool:
        """Whether a breaker of the model was open at the last look, and nobody may try it yet.

        One that is half-open is not: whoever asks becomes the probe, or is told to wait.
        """
        if not self._breakers:
            return False
        passed = self._shared.now() - self._looked_at
        return any(
            one.model == model and one.state == "open" and one.seconds > passed
            for one in self._breakers.values()
        )

    async def ask(self, call: ModelCall) -> Permit | Wait:
        key, now = call.route.key, self._shared.now()
        crowded = self._is_crowded(call)
        self._note_caller(call, now)
        if not crowded and self._is_unbound(call.route):
            self._count(key, now)
            return Permit(call, now)
        answer = await self._shared.ask(replace(call, crowded=crowded))
        if isinstance(answer, Wait):
            # Who stands in line is not overtaken by who comes just now.
            self._unhurried[key] = 0.0
        else:
            self._count(key, now)
            if answer.leased:
                self._held[call.id] = answer
        return answer

    async def settle(self, permit: Permit, ending: Ending) -> None:
        """Never raises: a call's reply matters more than what is told of it."""
        self._held.pop(permit.call.id, None)
        route = permit.call.route
        if not permit.leased and not self._tells(permit.call, ending):
            return
        if ending.how == "rate_limited" and self._is_unbound(route):
            seen = self._lately(route.key, self._shared.now())
            ending = replace(ending, seen_per_second=seen)
        try:
            await self._shared.settle(permit, ending)
        except Exception as error:
            log.warning("governor: what came of a call is lost: %s", type(error).__name__)
            return
        failing = (route.provider, route.model) in self._breakers
        low = any(not one.is_ample for one in ending.allowances)
        if failing or low or ending.how == "rate_limited" or ending.how in FAILURES:
            await self.look()

    async def renew(self, permits: Sequence[Permit]) -> None:
        await self._shared.renew(permits)

    async def state(self) -> GovernorState:
        return await self._shared.state()

    def now(self) -> float:
        return self._shared.now()

    async def close(self) -> None:
        await self._shared.close()

    async def run(self) -> None:
        """Look and renew until cancelled."""
        renewed_at = self._shared.now()
        while True:
            await self.look()
            now = self._shared.now()
            if self._held and now - renewed_at >= RENEW_SECONDS:
                renewed_at = now
                try:
                    await self.renew(list(self._held.values()))
                except Exception as error:
                    log.warning("governor: leases: %s", type(error).__name__)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Learn what holds calls back now; where that fails, what was known stands."""
        try:
            state = await self._shared.state()
        except Exception as error:
            log.warning("governor: %s", type(error).__name__)
            return
        self._restrained = frozenset(
            key.key
            for key in state.keys
            if key.paused_seconds > 0 or key.rate is not None or key.told
        )
        self._unhurried = {
            key.key: 0.0 if key.waiting else max(UNHURRIED, PROVEN_SHARE * key.pace)
            for key in state.keys
            if key.pace is not None
        }
        self._breakers = {(one.provider, one.model): one for one in state.breakers}
        self._looked_at = self._shared.now()
        self._known = True

    def _tells(self, call: ModelCall, ending: Ending) -> bool:
        """Whether the end of a call that holds no lease changes what the fleet knows."""
        route = call.route
        if ending.how == "abandoned":
            return False
        if ending.how != "ok" or any(not one.is_ample for one in ending.allowances):
            return True
        if ending.allowances and self._is_crowded(call):
            return True
        return (
            route.key in self._restrained
            or (route.provider, route.model) in self._breakers
            or self.counts_tokens(route)
        )

    def _is_crowded(self, call: ModelCall) -> bool:
        """Whether so many call so fast that the provider may not like it."""
        key, limits = call.route.key, self._limits.of(call.route.provider)
        callers = self._callers.get(key)
        if callers is None or len(callers) < FEW or not limits.careful:
            return False
        now = self._shared.now()
        while callers and next(iter(callers.values())) < now - CALLER_SECONDS:
            callers.popitem(last=False)
        if len(callers) + (call.caller not in callers) <= FEW:
            return False
        return self._lately(key, now) >= self._unhurried.get(key, UNHURRIED)

    def _note_caller(self, call: ModelCall, now: float) -> None:
        callers = self._callers.setdefault(call.route.key, OrderedDict())
        callers[call.caller] = now
        callers.move_to_end(call.caller)
        if len(callers) > CALLERS_KEPT:
            callers.popitem(last=False)

    def _count(self, key: str, now: float) -> None:
        self._seen[key] = (self._lately(key, now) + 1, now)

    def _lately(self, key: str, now: float) -> float:
        """The calls of the last second."""
        level, at = self._seen.get(key, (0.0, now))
        return level * math.exp((at - now) / SEEN_SECONDS)
