"""A schedule as Temporal is told of it: moments at which it may fire, and which run to start."""

from datetime import UTC, datetime, timedelta

from temporalio.client import (
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleCalendarSpec,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
    ScheduleState,
)

from everturn.schedules import Definition
from everturn.session import ScheduleStart
from everturn_activities import cron
from everturn_activities.store.schedules import Told


def schedule(told: Told, now: float, task_queue: str, task_timeout: timedelta) -> Schedule:
    definition = told.definition
    assert definition is not None
    return Schedule(
        action=ScheduleActionStartWorkflow(
            "Scheduled",
            ScheduleStart(told.tenant, told.name),
            id=told.schedule_id,
            task_queue=task_queue,
            task_timeout=task_timeout,
        ),
        spec=_spec(definition, now),
        policy=SchedulePolicy(
            # Each run takes milliseconds: whether turns overlap is the store's to decide.
            overlap=ScheduleOverlapPolicy.ALLOW_ALL,
            catchup_window=timedelta(seconds=definition.catch_up_seconds),
        ),
        state=ScheduleState(paused=told.paused),
    )


def _spec(definition: Definition, now: float) -> ScheduleSpec:
    until = definition.until
    end_at = None if until is None else datetime.fromtimestamp(until, UTC)
    if definition.every_seconds is not None:
        every = definition.every_seconds
        phase = timedelta(seconds=int(definition.since) % every)
        interval = ScheduleIntervalSpec(every=timedelta(seconds=every), offset=phase)
        return ScheduleSpec(intervals=[interval], end_at=end_at)
    # In UTC, and more moments than times: what daylight saving does to a time, and how days of
    # month and week go together, Temporal sees otherwise than cron. It would lose times.
    by_minutes: dict[tuple[int, ...], list[int]] = {}
    for hour, minutes in cron.moments(definition, now).items():
        by_minutes.setdefault(tuple(sorted(minutes)), []).append(hour)
    calendars = [
        ScheduleCalendarSpec(hour=_ranges(sorted(hours)), minute=_ranges(minutes))
        for minutes, hours in by_minutes.items()
    ]
    return ScheduleSpec(calendars=calendars, end_at=end_at)


def _ranges(numbers: "list[int] | tuple[int, ...]") -> list[ScheduleRange]:
    found: list[ScheduleRange] = []
    for number in numbers:
        if found and found[-1].end == number - 1:
            found[-1] = ScheduleRange(found[-1].start, number)
        else:
            found.append(ScheduleRange(number, number))
    return found
