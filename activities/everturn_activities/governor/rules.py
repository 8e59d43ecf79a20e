"""The governor's rules: plain functions over what is remembered of one provider key.

Whoever keeps the state gives it as a `Book` and holds it still meanwhile. `redis.lua` says
the same to Redis; both pass the same tests.

Who waits stands in a line by start-time fair queueing: each call of a tenant gets a tag one
above the tenant's last, and never below the tag that was served last. So a tenant of ten
calls is served in turn with one of two hundred. Each priority has a line of its own: a call
stands behind those of its tenant that are as urgent, and beside the others.

Where nobody has said what a provider allows, a crowd begins carefully: its pace rises with
every call, to the double in three seconds, until it is as fast as calls come or one is refused.
A limit is met by a few calls more than it allows then, and not by the whole crowd.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from everturn_activities.gateways.allowances import Allowance
from everturn_activities.governor import (
    FAILURES,
    Cause,
    EndedHow,
    Ending,
    KeyState,
    ModelCall,
    Wait,
)
from everturn_activities.governor.limits import ProviderLimits, Rate

LEASE_SECONDS = 30.0
"""How long a permit stands that nobody renews: its worker was killed."""
LEAD_SECONDS = 0.1
"""A place in line that is this near is taken at once: a timer would cost more than the wait."""
LINE_SECONDS_MAX = 20.0
"""Others may leave the line, and it may move faster: whoever waits asks now and then."""
GONE_SECONDS = 60.0
"""Who is late is passed by, and is the first again when it comes; later than this it has left."""

BREAKER_SECONDS_MAX = 120.0
PROBE_LOOK_SECONDS = 1.0
SPREAD_PER_SECOND = 20.0
"""Those who wait for the same moment come back one after another."""

BACKOFF_SECONDS = 1.0
BACKOFF_SECONDS_MAX = 60.0
PAUSE_SECONDS_MAX = 3600.0
FIRST_RATE = 5.0
RATE_MIN = 0.1
SLOWER = 0.7
DOUBLING_SECONDS = 30.0
FORGET_SECONDS = 120.0
"""A rate that was learnt from a refusal falls to 0.7 with each other one, grows by itself to
the double in half a minute, and is forgotten when nothing was refused for two."""

LEARNT_SECONDS = 0.25

CAREFUL_RATE = 5.0
CAREFUL_GROWTH = math.log(2) / 3
"""For every call that the pace holds up: the double in three seconds. Faster, more calls are
refused before anybody hears of the first."""
CALM_GROWTH = 0.03
"""For every call that it does not: so that a pace which suffices is asked for ever less."""
CALM_MAX = 2.5
"""A pace that nobody uses proves nothing: it rises to this much of what is used."""
PACE_SECONDS = 3600.0
"""How long a pace that went well is remembered after its last call."""
SEEN_SECONDS = 1.0
TOLD_SHARE = 0.9
"""How much of what a provider's bucket gains is counted with: others may share the key."""

CALL_SECONDS = 1.0
BUSY_SECONDS_MAX = 5.0


@dataclass
class KeyRow:
    """What is remembered of a provider key beside its lines and leases."""

    virtual: float = 0.0
    """The tag that was served last."""
    arrivals: int = 0
    last: dict[str, float] = field(default_factory=dict)
    """The last tag of each tenant's line, one a priority, that is ahead of `virtual`."""
    levels: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By bucket: what it held, and when."""
    paused_until: float = 0.0
    refused_at: float = 0.0
    refusals: int = 0
    """Refusals in a row."""
    rate: float | None = None
    """What was learnt at `refused_at`."""
    call_seconds: dict[str, float] = field(default_factory=dict)
    """How long a call takes, by model, where that matters."""
    pace: float = 0.0
    """How fast a crowd's calls may go, at `pace_at`."""
    pace_at: float = 0.0
    seen: float = 0.0
    """The crowd's calls within the second before `pace_at`."""
    told: dict[str, tuple[float, float, float, bool]] = field(default_factory=dict)
    """By what is counted, the provider's own bucket: how much it holds at most, what it gains
    a second, when it is full again, and whether it runs low."""

    def learnt(self, now: float) -> float | None:
        if self.rate is None or now - self.refused_at > FORGET_SECONDS:
            return None
        return self.rate * (1 + (now - self.refused_at) / DOUBLING_SECONDS)

    def known_pace(self, now: float) -> float | None:
        return self.pace if self.pace and now - self.pace_at <= PACE_SECONDS else None

    def lately(self, now: float) -> float:
        return self.seen * math.exp((self.pace_at - now) / SEEN_SECONDS)

    def told_rates(self, now: float, ample: bool) -> list[Rate]:
        """The provider's buckets that run low; all of which it told, where `ample`."""
        return [
            Rate(f"told_{counts}", "calls" if counts == "calls" else "tokens", most, gain)
            for counts, (most, gain, until, low) in self.told.items()
            if until > now and (low or ample)
        ]


@dataclass
class Breaker:
    """Closed while `opens` is 0; open until `until`; then half-open, with one probe."""

    failures: int = 0
    opens: int = 0
    until: float = 0.0
    probe: str | None = None
    probe_until: float = 0.0
    failing: EndedHow = "failed"

    def blocks(self, call_id: str, now: float) -> float:
        """For how long `call_id` may not begin."""
        if self.opens == 0:
            return 0.0
        if now < self.until:
            return self.until - now
        if self.probe not in (None, call_id) and now < self.probe_until:
            return PROBE_LOOK_SECONDS
        return 0.0

    def state(self, now: float) -> Literal["closed", "open", "half_open"]:
        if self.opens == 0:
            return "closed"
        return "open" if now < self.until else "half_open"


@dataclass(frozen=True)
class Waiter:
    """A place in line; `due` is when it was told to ask again."""

    id: str
    model: str
    tag: float
    number: int
    since: float
    due: float = 0.0
    line: Cause = "rate"


class Book(Protocol):
    """The state of one provider key while a rule is applied to it."""

    key: KeyRow

    def breaker(self, model: str) -> Breaker: ...
    def keep_breaker(self, model: str, breaker: Breaker | None) -> None: ...

    def tidy(self, gone: float, now: float) -> None:
        """Forget waiters due before `gone`, and leases that ended before `now`."""
        ...

    def waiter(self, call_id: str) -> Waiter | None: ...
    def keep_waiter(self, waiter: Waiter) -> None: ...
    def drop_waiter(self, call_id: str) -> None: ...

    def ahead(self, waiter: Waiter, line: Cause, model: str | None, due_after: float) -> int:
        """How many stand before `waiter` in that line (of that model) and are due after.

        Who waits for a rate also waits for its model's slot.
        """
        ...

    def running(self, model: str, besides: str) -> int: ...
    def keep_lease(self, call_id: str, model: str, until: float) -> None: ...
    def drop_lease(self, call_id: str) -> None: ...


@dataclass(frozen=True)
class Granted:
    after_seconds: float
    leased: bool


def ask(book: Book, call: ModelCall, limits: ProviderLimits, now: float) -> Granted | Wait:
    """Let `call` begin, or give it a place in line."""
    book.tidy(now - GONE_SECONDS, now)
    model, key = call.route.model, book.key
    waiter = book.waiter(call.id) or _arrive(key, call, now)

    breaker = book.breaker(model)
    blocked = breaker.blocks(call.id, now)
    if blocked:
        ahead = book.ahead(waiter, "open", model, now)
        seconds = blocked + ahead / SPREAD_PER_SECOND
        return replace(_wait(book, waiter, "open", seconds, ahead, now), failing=breaker.failing)

    slots = limits.slots(model)
    if slots is not None:
        running = book.running(model, besides=call.id)
        ahead = book.ahead(waiter, "busy", model, now)
        if ahead >= slots - running:
            rounds = (ahead + running + 1 - slots) / slots
            seconds = min(rounds * key.call_seconds.get(model, CALL_SECONDS), BUSY_SECONDS_MAX)
            return _wait(book, waiter, "busy", seconds, ahead, now)

    rates = _rates(key, call, limits, now)
    ahead = book.ahead(waiter, "rate", None, now)
    paused = max(0.0, key.paused_until - now)
    seconds = 0.0
    cause: Cause = "rate"
    for rate in rates:
        needed = _seconds(key, rate, call, ahead, now)
        if needed > seconds:
            seconds, cause = needed, "careful" if rate.growth else "rate"
    if paused:
        slowest = min((r.per_second for r in rates if r.counts == "calls"), default=FIRST_RATE)
        seconds = max(seconds, paused + ahead / slowest)
    if seconds > LEAD_SECONDS:
        cause = "paused" if paused else cause
        seconds = max(paused, min(seconds, LINE_SECONDS_MAX))
        return _wait(book, waiter, cause, seconds, ahead, now)

    for rate in rates:
        units = call.tokens if rate.counts == "tokens" else 1
        level = _level(key, rate, now)
        key.levels[rate.name] = (level - units, now)
        if rate.growth or (call.crowded and rate.name == "told_calls"):
            _quicken(key, rate, level, now)
    key.virtual = max(key.virtual, waiter.tag)
    line = call.lines[-1]
    key.last[line] = max(key.last.get(line, 0.0), waiter.tag)
    key.last = {line: tag for line, tag in key.last.items() if tag > key.virtual}
    book.drop_waiter(call.id)
    probes = breaker.opens > 0
    if probes:
        breaker.probe, breaker.probe_until = call.id, now + LEASE_SECONDS
        book.keep_breaker(model, breaker)
    if slots is not None:
        book.keep_lease(call.id, model, now + LEASE_SECONDS)
    return Granted(seconds, probes or slots is not None)


def settle(
    book: Book,
    call: ModelCall,
    ending: Ending,
    limits: ProviderLimits,
    held_seconds: float,
    now: float,
) -> None:
    """Take a call's end into account; it began `held_seconds` ago."""
    key, model = book.key, call.route.model
    began = now - held_seconds
    book.drop_lease(call.id)
    if limits.slots(model) is not None:
        known = key.call_seconds.get(model, held_seconds)
        key.call_seconds[model] = known + 0.2 * (held_seconds - known)
    if ending.tokens is not None:
        for rate in (*limits.rates, *key.told_rates(now, ample=True)):
            if rate.counts == "tokens":
                level = _level(key, rate, now) + call.tokens - ending.tokens
                key.levels[rate.name] = (level, now)
    if ending.how == "ok" and began > key.refused_at:
        key.refusals = 0
    for allowance in ending.allowances:
        _hear(key, allowance, now)
    if ending.how == "rate_limited" or ending.retry_after_seconds:
        _refuse(key, ending, limits, began, now)
    _judge(book, call, ending, limits, now)


def renew(book: Book, call: ModelCall, limits: ProviderLimits, now: float) -> None:
    """Keep the lease of `call`, also one that has run out unnoticed."""
    breaker = book.breaker(call.route.model)
    if breaker.probe == call.id:
        breaker.probe_until = now + LEASE_SECONDS
        book.keep_breaker(call.route.model, breaker)
    if limits.slots(call.route.model) is not None:
        book.keep_lease(call.id, call.route.model, now + LEASE_SECONDS)


def _arrive(key: KeyRow, call: ModelCall, now: float) -> Waiter:
    key.arrivals += 1
    tag = max(key.virtual, *(key.last.get(line, 0.0) for line in call.lines)) + 1
    key.last[call.lines[-1]] = tag
    return Waiter(call.id, call.route.model, tag, key.arrivals, now)


def _wait(book: Book, waiter: Waiter, cause: Cause, seconds: float, ahead: int, now: float) -> Wait:
    seconds = max(seconds, LEAD_SECONDS)
    line: Cause = cause if cause in ("busy", "open") else "rate"
    # Patience with a model that fails is counted from when its breaker was met.
    since = waiter.since if (line == "open") == (waiter.line == "open") else now
    book.keep_waiter(replace(waiter, due=now + seconds, line=line, since=since))
    return Wait(seconds, cause, ahead, now - since)


def _rates(key: KeyRow, call: ModelCall, limits: ProviderLimits, now: float) -> list[Rate]:
    rates = [*limits.rates, *key.told_rates(now, call.crowded)]
    learnt = key.learnt(now)
    if learnt is not None:
        # What was learnt is no exact bound, and a small bucket loses what comes while all are late.
        rates.append(Rate("learnt", "calls", max(2.0, LEARNT_SECONDS * learnt), learnt))
        # A crowd that is there when it is forgotten goes on at the same pace.
        key.pace, key.pace_at, key.seen = learnt, now, key.lately(now)
    elif call.crowded and not any(rate.counts == "calls" for rate in rates):
        pace = key.known_pace(now) or CAREFUL_RATE
        capacity = max(2.0, LEARNT_SECONDS * pace)
        rates.append(Rate("careful", "calls", capacity, pace, CAREFUL_GROWTH))
    return rates


def _quicken(key: KeyRow, rate: Rate, level: float, now: float) -> None:
    """Let a crowd go faster, of which one call more begins."""
    lately = key.lately(now) + 1
    pace = key.known_pace(now) or CAREFUL_RATE
    if rate.growth and level < 2:
        pace += CAREFUL_GROWTH
    elif pace < CALM_MAX * lately:
        pace += CALM_GROWTH if rate.growth else CAREFUL_GROWTH
    key.pace, key.pace_at, key.seen = pace, now, lately


def _hear(key: KeyRow, allowance: Allowance, now: float) -> None:
    """Count against what the provider says is left.

    `reset_seconds` is when its bucket will be full again, so it tells how fast it fills. What
    we count ourselves is less where calls are under way that it has not seen.
    """
    name = f"told_{allowance.counts}"
    used, seconds = allowance.limit - allowance.remaining, allowance.reset_seconds
    if used <= 0 or seconds <= 0:
        return
    level = allowance.remaining
    for rate in key.told_rates(now, ample=True):
        if rate.name == name:
            level = min(level, _level(key, rate, now))
    gain, low = TOLD_SHARE * used / seconds, not allowance.is_ample
    key.told[allowance.counts] = (allowance.limit, gain, now + seconds, low)
    key.levels[name] = (level, now)


def _level(key: KeyRow, rate: Rate, now: float) -> float:
    # A bucket that nobody remembers may have just been emptied: it holds one call.
    full = rate.capacity if rate.counts == "tokens" else 1.0
    level, at = key.levels.get(rate.name, (full, now))
    return min(rate.capacity, level + max(0.0, now - at) * rate.per_second)


def _seconds(key: KeyRow, rate: Rate, call: ModelCall, ahead: int, now: float) -> float:
    """How long until `rate` has enough for those ahead and for `call`.

    A call that takes more than the bucket can hold begins when it is full, and leaves a debt.
    """
    units = call.tokens if rate.counts == "tokens" else 1
    missing = min(units, rate.capacity) + ahead * units - _level(key, rate, now)
    if rate.growth:
        return math.log1p(rate.growth * max(0.0, missing) / rate.per_second) / rate.growth
    return max(0.0, missing / rate.per_second)


def _refuse(key: KeyRow, ending: Ending, limits: ProviderLimits, began: float, now: float) -> None:
    """Pause the key, and go slower afterwards.

    Refusals of calls that were under way already at the last one say nothing new.
    """
    asked = ending.retry_after_seconds
    if ending.how == "rate_limited" and began > key.refused_at:
        declared = [rate.per_second for rate in limits.rates if rate.counts == "calls"]
        known = [*declared, *filter(None, [key.learnt(now)])]
        # Where nothing is known, the pace at which calls went that were refused just now.
        seen = max(ending.seen_per_second or 0.0, key.lately(now))
        pace = min(known, default=max(FIRST_RATE, seen))
        key.rate = max(RATE_MIN, SLOWER * pace)
        key.refused_at = now
        key.refusals += 1
        if asked is None:
            asked = min(BACKOFF_SECONDS * 2.0 ** (key.refusals - 1), BACKOFF_SECONDS_MAX)
    until = now + min(asked or 0.0, PAUSE_SECONDS_MAX)
    key.paused_until = max(key.paused_until, until)


def _judge(book: Book, call: ModelCall, ending: Ending, limits: ProviderLimits, now: float) -> None:
    """Open, keep open or close the model's breaker."""
    model = call.route.model
    breaker = book.breaker(model)
    probed = breaker.opens > 0 and breaker.probe == call.id
    if breaker.opens > 0 and not probed:
        return  # It began before the breaker opened.
    if ending.how in FAILURES:
        breaker.failures += 1
        breaker.failing = ending.how
        if probed or breaker.failures >= limits.breaker_failures:
            seconds = limits.breaker_seconds * 2.0**breaker.opens
            breaker.opens += 1
            breaker.until = now + min(seconds, max(BREAKER_SECONDS_MAX, limits.breaker_seconds))
            breaker.probe = None
        book.keep_breaker(model, breaker)
    elif ending.how == "ok":
        if breaker.failures:
            book.keep_breaker(model, None)
    elif probed:
        breaker.probe = None
        book.keep_breaker(model, breaker)


def state(
    name: str, provider: str, key: KeyRow, waiting: int, running: int, now: float
) -> KeyState | None:
    """What stands on a key's record; None where there is nothing to know."""
    paused = max(0.0, key.paused_until - now)
    rate, pace = key.learnt(now), key.known_pace(now)
    told = bool(key.told_rates(now, ample=False))
    if not (paused or waiting or running or key.refusals or told or rate or pace):
        return None
    return KeyState(name, provider, paused, rate, waiting, running, pace, told)
