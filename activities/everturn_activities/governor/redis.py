"""The governor of a fleet: its state stands in Redis, and time is the Redis server's.

While Redis is away each process governs itself, with a quarter of what is declared: calls go
on, more slowly. A Redis that was restarted without its data knows of no pause and no breaker,
and lets one call of each bucket through at once.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any, cast

import orjson
from redis.exceptions import RedisError

from everturn_activities.governor import (
    BreakerState,
    Cause,
    EndedHow,
    Ending,
    GovernorState,
    KeyState,
    ModelCall,
    Permit,
    Wait,
    rules,
)
from everturn_activities.governor.limits import Limits
from everturn_activities.governor.memory import MemoryGovernor
from everturn_activities.redis_link import Trouble, connect

PREFIX = "everturn:{governor}:"
"""The braces keep all keys on one node of a cluster."""
ANSWER_SECONDS = 1.0
AWAY_SECONDS = 1.0
"""How long a Redis that did not answer is not asked again."""
ALONE_SHARE = 0.25

_SCRIPT = files("everturn_activities.governor").joinpath("redis.lua").read_text()
_NUMBERS = {name: one for name, one in vars(rules).items() if isinstance(one, float)}
_RULES = orjson.dumps(_NUMBERS).decode()


class RedisGovernor:
    """`clock` replaces the server's time in tests, and the process's own."""

    def __init__(
        self,
        url: str,
        limits: Limits,
        clock: Callable[[], float] | None = None,
        prefix: str = PREFIX,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._limits = limits
        self._given = clock
        self._clock = clock or time.monotonic
        self._prefix = prefix
        # To ask twice would take two places.
        self._client = connect(url, answer_seconds)
        self._script = self._client.register_script(_SCRIPT)
        meanwhile = f"each process keeps to {ALONE_SHARE:.0%} of the limits by itself"
        self._trouble = Trouble(self._client, meanwhile)
        self._alone = MemoryGovernor(limits.shared(ALONE_SHARE), self._clock)
        self._away_until = 0.0

    async def ask(self, call: ModelCall) -> Permit | Wait:
        answer = await self._run("ask", {"call": _call(call), "limits": self._limits_of(call)})
        if answer is None:
            alone = await self._alone.ask(call)
            return replace(alone, alone=True) if isinstance(alone, Permit) else alone
        if answer[0] == "granted":
            return Permit(call, self._clock(), answer[2] == "1", float(answer[1]))
        _, seconds, cause, ahead, waited, failing = answer
        return Wait(
            float(seconds),
            cast(Cause, cause),
            int(ahead),
            float(waited),
            cast(EndedHow, failing),
        )

    async def settle(self, permit: Permit, ending: Ending) -> None:
        call = permit.call
        if permit.alone:
            # Redis took nothing for it, and has nothing to give back.
            await self._alone.settle(permit, ending)
            return
        told = {
            **vars(ending),
            "allowances": [{**vars(one), "is_ample": one.is_ample} for one in ending.allowances],
            "held_seconds": self._clock() - permit.began,
        }
        limits = self._limits_of(call)
        answer = await self._run("settle", {"call": _call(call), "ending": told, "limits": limits})
        if answer is None:
            await self._alone.settle(permit, ending)

    async def renew(self, permits: Sequence[Permit]) -> None:
        for permit in permits:
            if permit.alone:
                await self._alone.renew([permit])
                continue
            leased = self._limits.of(permit.call.route.provider).slots(permit.call.route.model)
            told = {"call": _call(permit.call), "leased": leased is not None}
            if await self._run("renew", told) is None:
                await self._alone.renew([permit])

    async def state(self) -> GovernorState:
        answer = await self._run("state", {})
        if answer is None:
            alone = await self._alone.state()
            return GovernorState(
                *(alone.keys, alone.breakers),
                f"Redis {self._trouble.what}: each process governs itself.",
            )
        keys, breakers = answer
        return GovernorState(
            [
                KeyState(
                    key,
                    provider,
                    float(paused),
                    float(rate) if rate else None,
                    int(waiting),
                    int(running),
                    float(pace) if pace else None,
                    bool(told),
                )
                for key, provider, paused, rate, waiting, running, pace, told in keys
            ],
            [
                BreakerState(provider, model, state, int(failures), float(seconds))
                for provider, model, state, failures, seconds in breakers
            ],
        )

    async def answers(self) -> bool:
        """Whether Redis does, for who asks to tell a person: nothing is logged."""
        try:
            await self._client.ping()
        except (TimeoutError, RedisError, OSError):
            return False
        return True

    def now(self) -> float:
        return self._clock()

    async def close(self) -> None:
        await self._client.aclose()

    async def _run(self, does: str, given: dict[str, Any]) -> Any:
        """What the script answers; None while Redis is away."""
        if self._clock() < self._away_until:
            return None
        now = "" if self._given is None else f"{self._given():.17g}"
        arguments = [does, now, _RULES, orjson.dumps(given).decode()]
        try:
            answer = await self._script(keys=[self._prefix], args=arguments)
        except (TimeoutError, RedisError, OSError) as error:
            self._trouble.lost(error)
            self._away_until = self._clock() + AWAY_SECONDS
            return None
        self._trouble.answered()
        return answer

    def _limits_of(self, call: ModelCall) -> dict[str, Any]:
        limits = self._limits.of(call.route.provider)
        return {
            "slots": limits.slots(call.route.model),
            "rates": [vars(rate) for rate in limits.rates],
            "breaker_failures": limits.breaker_failures,
            "breaker_seconds": limits.breaker_seconds,
        }


def _call(call: ModelCall) -> dict[str, Any]:
    told = {"id": call.id, "lines": call.lines, "tokens": call.tokens, "crowded": call.crowded}
    return {**told, **vars(call.route)}
