"""fire: a time of a schedule has come; its message is sent once, and its session woken."""

from typing import Protocol

from temporalio import activity

from everturn.session import FireSchedule
from everturn_activities.store import Wake
from everturn_activities.store.sql_schedules import SqlSchedules


class Waker(Protocol):
    async def wake(self, wake: Wake) -> None: ...
    async def forget_schedule(self, tenant: str, name: str) -> None:
        """Let Temporal fire the schedule no more."""
        ...


class ScheduleActivities:
    def __init__(self, schedules: SqlSchedules, waker: Waker) -> None:
        self._schedules = schedules
        self._waker = waker

    @activity.defn
    async def fire(self, request: FireSchedule) -> str:
        """Returns what became of the time, in a word."""
        fired = await self._schedules.fire(request.tenant, request.name, request.at)
        if fired.state == "unknown":
            # The store was put back, or a removal was not told: it would fire for ever.
            await self._waker.forget_schedule(request.tenant, request.name)
        for wake in fired.wakes:
            await self._waker.wake(wake)
        return fired.state
