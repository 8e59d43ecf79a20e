"""When schedules fire: cron expressions and intervals, as clocks in a time zone tell them.

Where daylight saving moves a clock, expressions mean what they mean to Debian's cron: a time
that a clock leaves out comes right after the gap, one that it shows twice comes once, and what
runs each hour or more often goes by elapsed time.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from itertools import islice, pairwise
from math import floor
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from everturn.errors import UsageError
from everturn.schedules import ScheduleView, Timing, shown_seconds

LOOKED_AT = 100
"""So many of a schedule's next times are looked at to tell how often it fires."""
OFFSETS_DAYS = 400
"""In so many days a time zone has shown each of its offsets."""


def check(timing: Timing, now: float, seconds_min: float) -> None:
    """Raise UsageError where the timing means nothing, or fires too often."""
    _zone(timing.time_zone)
    for expression in timing.cron:
        _parsed(expression)
    if timing.every_seconds is not None and timing.every_seconds < seconds_min:
        raise UsageError(
            f"A schedule each {shown_seconds(timing.every_seconds)} fires more often than is"
            f" allowed, which is once in {shown_seconds(seconds_min)}; choose a longer interval."
        )
    # No two times of cron are less than a minute apart.
    looked_at = LOOKED_AT if timing.cron and seconds_min > 60 else 1
    coming = times(timing, now, looked_at, now)
    if not coming:
        raise UsageError(
            "The schedule never fires: no time that it names is to come; change its times, or the"
            " time until which it fires."
        )
    for first, second in pairwise(coming):
        if second - first < seconds_min:
            raise UsageError(
                f"The schedule fires {shown_seconds(second - first)} after another time, and the"
                f" shortest interval is {shown_seconds(seconds_min)}; choose fewer times."
            )


def times(timing: Timing, after: float, count: int, since: float = 0.0) -> list[float]:
    """The next so many times after `after`; fewer where it ends before."""
    if timing.every_seconds is not None:
        coming = _intervals(timing.every_seconds, after, since)
    else:
        coming = _merged(timing, after)
    until = timing.until
    return [at for at in islice(coming, count) if until is None or at <= until]


def is_time(timing: Timing, at: float, since: float = 0.0) -> bool:
    """Whether it fires just then."""
    return times(timing, at - 1, 1, since) == [at]


def moments(timing: Timing, now: float) -> dict[int, set[int]]:
    """The minutes of each hour, in UTC, at which a cron timing may fire on some day: more than
    those at which it does, which `is_time` tells."""
    zone = _zone(timing.time_zone)
    found: dict[int, set[int]] = {}
    offsets = _offsets(timing.time_zone, floor(now // 86_400))
    for expression in timing.cron:
        parsed = _parsed(expression)
        for offset in offsets:
            for hour in parsed.hours:
                for minute in parsed.minutes:
                    wall = (hour * 60 + minute - offset) % 1440
                    found.setdefault(wall // 60, set()).add(wall % 60)
    if zone is not UTC:
        # What a clock leaves out comes in the first minute after the gap.
        for gap in _gaps(timing.time_zone, floor(now // 86_400)):
            found.setdefault(gap // 60, set()).add(gap % 60)
    return found


def shown(at: float, time_zone: str) -> str:
    """A time as clocks of the zone tell it, such as 2026-11-23 09:00 CET."""
    moment = datetime.fromtimestamp(at, _zone(time_zone))
    return f"{moment:%Y-%m-%d %H:%M}{f':{moment:%S}' if moment.second else ''} {moment:%Z}"


def coming(view: ScheduleView) -> str:
    """A schedule's next times, in words."""
    if view.status == "paused":
        return "It is paused."
    if not view.next:
        return "It has ended: no time of it is to come."
    first, *others = (shown(at, view.time_zone) for at in view.next[:3])
    return f"Next: {first}, then {', '.join(others)}." if others else f"Next: {first}."


def from_text(text: str, time_zone: str) -> float:
    """The time that an ISO date, or a date and time, names; UsageError for anything else."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"The time {text[:40]!a} is not possible; write one such as 2026-12-31 or"
            " 2026-12-31T18:00."
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=_zone(time_zone))).timestamp()


def name_of(at: float) -> str:
    """A time as part of an id, such as 20261123T090000Z."""
    return f"{datetime.fromtimestamp(at, UTC):%Y%m%dT%H%M%SZ}"


def _merged(timing: Timing, after: float) -> Iterator[float]:
    """The times of all expressions, each once."""
    # From the next whole second on: the parser leaves out the moment that it is given.
    start = datetime.fromtimestamp(floor(after), _zone(timing.time_zone))
    coming = [_ticks(expression, start) for expression in timing.cron]
    heads = [next(ticks, None) for ticks in coming]
    while (soonest := min((head for head in heads if head is not None), default=None)) is not None:
        for place, head in enumerate(heads):
            if head == soonest:
                heads[place] = next(coming[place], None)
        if soonest > after:
            yield soonest


def _ticks(expression: str, start: datetime) -> Iterator[float]:
    return (moment.timestamp() for moment in CronSim(expression, start))


def _intervals(every: int, after: float, since: float) -> Iterator[float]:
    begun = floor(since)
    n = max(floor((after - begun) / every) + 1, 1)
    while True:
        yield begun + n * every
        n += 1


def _parsed(expression: str) -> CronSim:
    fields = expression.split()
    if len(fields) != 5:
        raise UsageError(
            f"The cron expression {expression[:60]!a} has {len(fields)} fields and must have 5:"
            " minute, hour, day of month, month, day of week."
        )
    try:
        return CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise UsageError(
            f"The cron expression {expression[:60]!a} is not possible ({str(error).lower()});"
            " write one such as '0 9 * * MON-FRI'."
        ) from None


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo | timezone:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(
            f"The time zone {name[:60]!a} is not known; write one such as Europe/Berlin or UTC."
        ) from None


@lru_cache(maxsize=256)
def _offsets(name: str, day: int) -> frozenset[int]:
    """The zone's distances from UTC, in minutes, within the year that begins at `day`."""
    zone = _zone(name)
    return frozenset(_offset(zone, (day + number) * 86_400) for number in range(-1, OFFSETS_DAYS))


@lru_cache(maxsize=256)
def _gaps(name: str, day: int) -> frozenset[int]:
    """The minutes of a UTC day at which clocks of the zone leap ahead within that year."""
    zone, found = _zone(name), set()
    for number in range(-1, OFFSETS_DAYS):
        start = (day + number) * 86_400
        if _offset(zone, start) < _offset(zone, start + 86_400):
            before = _offset(zone, start)
            leap = next(
                minute for minute in range(1441) if _offset(zone, start + 60 * minute) > before
            )
            found.add(leap % 1440)
    return frozenset(found)


def _offset(zone: ZoneInfo | timezone, at: float) -> int:
    offset = datetime.fromtimestamp(at, zone).utcoffset()
    return floor((offset or timedelta()).total_seconds() // 60)
