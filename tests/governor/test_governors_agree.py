"""The rules are written twice, in Python and for Redis: any history has the same answers."""

import random
from contextlib import AsyncExitStack
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
from governed import Clock, call, in_memory, on_redis, on_sqlite
from redis import Redis
from redis_servers import RedisServer

from everturn_activities.gateways.allowances import Allowance
from everturn_activities.governor import Ending, Governor, GovernorState, ModelCall, Permit, rules

LIMITS: list[dict[str, Any]] = [
    {},
    {"requests_per_second": 2, "breaker_failures": 2},
    {"requests_per_minute": 300, "requests_per_second": 20, "tokens_per_minute": 600},
    {"concurrency": 2, "breaker_failures": 1, "breaker_seconds": 30.0},
    {"concurrency": {"model": 1, "*": 3}, "requests_per_second": 3, "breaker_seconds": 200.0},
    {"tokens_per_minute": 6000, "breaker_failures": 1, "breaker_seconds": 1.0},
]
STEPS = 250
PAUSES = (0.0, 0.01, 0.03, 0.1, 0.25, 1.0, 2.0, 10.0, 31.0, 61.0, 125.0, 4000.0)


class Crowd:
    """Calls that ask, end and vanish at random, the same for each governor that is told of it."""

    def __init__(self, seed: int, clock: Clock) -> None:
        self._dice = random.Random(seed)
        self._clock = clock
        self._number = 0
        self._asking: list[ModelCall] = []
        self._begun: list[str] = []
        # Some histories are of a rush, others of calls far apart.
        self._rush = self._dice.choice((1, 4, 12))
        self._crowded = self._dice.choice((0.0, 0.5, 1.0))

    def next(self) -> tuple[Any, ...]:
        dice = self._dice
        if dice.random() < 1 / self._rush:
            shortest = dice.random() < 0.8
            self._clock.now += dice.choice(PAUSES[:6] if shortest else PAUSES)
        chance = dice.random()
        if chance < 0.15 and self._begun:
            return ("renew", dice.choice(self._begun))
        if chance < 0.5 and self._begun:
            ended = self._begun.pop(dice.randrange(len(self._begun)))
            return ("settle", ended, self._ending())
        if chance < 0.8 and self._asking:
            return ("ask", dice.choice(self._asking))
        self._number += 1
        asked = call(
            f"c{self._number}",
            tenant=dice.choice("aab"),
            model=dice.choice(("model", "model", "other")),
            tokens=dice.choice((0, 10, 500, 5000)),
            key=dice.choice(("key", "key", "second")),
            crowded=dice.random() < self._crowded,
            priority=dice.choice((1, 2, 2, 5)),
        )
        self._asking.append(asked)
        return ("ask", asked)

    def _ending(self) -> Ending:
        dice = self._dice
        how = dice.choice(
            ("ok", "ok", "ok", "rate_limited", "overloaded", "unreachable", "failed", "abandoned")
        )
        asked = dice.choice((None, None, 0.0, 3.0, 40.0, 9000.0))
        return Ending(
            how,  # type: ignore[arg-type]
            asked if how in ("rate_limited", "overloaded") else None,
            dice.choice((None, 0, 10, 700)),
            dice.choice((None, 0.5, 30.0)) if how == "rate_limited" else None,
            tuple(
                Allowance(counts, most, int(most * dice.random()), dice.choice((0.5, 4.0, 60.0)))
                for counts, most in (("calls", 40), ("tokens", 9000))
                if dice.random() < 0.2
            ),
        )

    def answered(self, asked: ModelCall, answer: object) -> None:
        if isinstance(answer, Permit):
            # One that asks again gives its permit up; one whose worker died never ends.
            self._begun = [name for name in self._begun if name != asked.id] + [asked.id]
            if self._dice.random() < 0.9:
                self._asking.remove(asked)


class Told:
    """A governor, the permits that it gave, and what it answers as numbers."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._permits: dict[str, Permit] = {}

    async def does(self, what: tuple[Any, ...]) -> Any:
        match what:
            case ("ask", asked):
                answer = await self._governor.ask(asked)
                if isinstance(answer, Permit):
                    self._permits[asked.id] = answer
                return answer
            case ("renew", name):
                await self._governor.renew([self._permits[name]])
            case ("settle", name, ending):
                await self._governor.settle(self._permits.pop(name), ending)
        return None

    async def state(self) -> GovernorState:
        return await self._governor.state()


def close(answer: object) -> object:
    """An answer that others equal but for what is lost in the last digits of a float."""
    if isinstance(answer, GovernorState):
        rows = [sorted(astuple(row) for row in rows) for rows in (answer.keys, answer.breakers)]
        return [[tuple(map(_near, row)) for row in some] for some in rows]
    if isinstance(answer, Permit):
        return (answer.call.id, answer.leased, _near(answer.after_seconds))
    return answer if answer is None else tuple(map(_near, astuple(answer)))  # type: ignore[call-overload]


def _near(value: object) -> object:
    return pytest.approx(value, rel=1e-6, abs=1e-5) if isinstance(value, float) else value


@pytest.fixture(params=["sqlite", "redis"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    clock = Clock()
    if request.param == "sqlite":
        return clock, on_sqlite(tmp_path, clock)
    return clock, on_redis(request.getfixturevalue("redis"), clock)


@pytest.mark.parametrize("given", LIMITS, ids=str)
@pytest.mark.parametrize("seed", range(3))
async def test_whatever_keeps_the_state_the_answers_are_the_same(
    shared: Any, given: dict[str, Any], seed: int
) -> None:
    clock, opened = shared
    async with AsyncExitStack() as stack:
        plain = Told(await stack.enter_async_context(in_memory(clock)(given)))
        other = Told(await stack.enter_async_context(opened(given)))
        crowd = Crowd(seed, clock)
        for number in range(STEPS):
            what = crowd.next()
            answer = await plain.does(what)
            assert close(await other.does(what)) == close(answer), (number, what)
            if what[0] == "ask":
                crowd.answered(what[1], answer)
            if number % 10 == 0:
                assert close(await other.state()) == close(await plain.state()), number


def kept(redis: RedisServer, prefix: str) -> dict[str, int]:
    """Every key that the script keeps, and for how many seconds."""
    client = Redis.from_url(redis.url, decode_responses=True)
    left = {name: client.ttl(name) for name in client.scan_iter(f"{prefix}*")}
    client.close()
    return left


async def test_what_nobody_touches_leaves_redis_after_the_longest_pause(
    redis: RedisServer,
) -> None:
    """Waiters, leases, breakers, what was learnt: every key that the script writes has its end."""
    given = {"concurrency": 1, "requests_per_second": 1, "breaker_failures": 1}
    async with on_redis(redis, Clock(), "expiring:")(given) as opened:
        governor = Told(opened)
        for name in ("a", "b", "c"):
            await governor.does(("ask", call(name)))
        await governor.does(("settle", "a", Ending("overloaded", retry_after_seconds=1)))
        await governor.does(("ask", call("d")))
    left = kept(redis, "expiring:")
    assert len(left) >= 10
    longest = 2 * rules.PAUSE_SECONDS_MAX
    wrong = {name: ttl for name, ttl in left.items() if not longest - 60 < ttl <= longest}
    assert wrong == {}


async def test_who_has_begun_or_is_gone_stands_in_no_line(redis: RedisServer) -> None:
    clock = Clock()
    given = {"concurrency": 1, "requests_per_second": 1, "breaker_failures": 1}
    async with on_redis(redis, clock, "lines:")(given) as opened:
        governor = Told(opened)
        for name in ("a", "b", "gone"):
            await governor.does(("ask", call(name)))
        await governor.does(("settle", "a", Ending("ok")))
        clock.now += 2
        assert isinstance(await governor.does(("ask", call("b"))), Permit)
        await governor.does(("settle", "b", Ending("ok")))
        clock.now += 200
        assert isinstance(await governor.does(("ask", call("last"))), Permit)
    names = {name.removeprefix("lines:").partition("\1")[0] for name in kept(redis, "lines:")}
    assert names == {"key", "keys", "leases", "models"}


async def test_what_has_expired_is_looked_for_no_more(redis: RedisServer) -> None:
    given = {"breaker_failures": 1}
    client = Redis.from_url(redis.url, decode_responses=True)
    async with on_redis(redis, Clock(), "expired:")(given) as opened:
        governor = Told(opened)
        for key in ("one", "two"):
            await governor.does(("ask", call(key, model=key, key=key)))
            await governor.does(("settle", key, Ending("failed")))
        for name in client.scan_iter("expired:*two"):
            client.delete(name)
        state = await governor.state()
    kept_of = {name: client.smembers(f"expired:{name}") for name in ("keys", "breakers")}
    client.close()
    assert [breaker.model for breaker in state.breakers] == ["one"]
    assert kept_of["keys"] == {"one"}
    assert len(kept_of["breakers"]) == 1
