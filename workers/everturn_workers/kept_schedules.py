"""Keeps Temporal's schedules equal to the store's: at once where somebody changes one, and again
after a crash, or after Temporal lost them."""

import asyncio
import logging
from typing import Protocol

from everturn.errors import UsageError
from everturn_activities.store import Wake
from everturn_activities.store.schedules import Missed, Told
from everturn_activities.store.sql_schedules import SqlSchedules

LOST_SECONDS = 15.0
"""How often Temporal is asked which schedules it has."""
TELL_SECONDS = 2.0
"""How long who changes a schedule waits for Temporal to hear of it; it goes on after that."""
LATE_SECONDS = 5.0
"""A time about which nobody has decided for so long was missed: Temporal loses those that pass
while it is down if it had not begun with a schedule, or lost it."""
BATCH = 20

log = logging.getLogger(__name__)


class Temporal(Protocol):
    async def keep_schedule(self, told: Told) -> None:
        """Raises UsageError where it will not have it."""
        ...

    async def schedule_ids(self) -> set[str]: ...
    async def wake(self, wake: Wake) -> None: ...


class KeptSchedules:
    """Whatever it does may be done twice, and by two at once."""

    def __init__(self, schedules: SqlSchedules, temporal: Temporal) -> None:
        self.schedules = schedules
        self._temporal = temporal
        self._asked: float | None = None
        self._telling: set[asyncio.Task[str | None]] = set()

    async def look(self, now: float) -> None:
        """Tell Temporal of all that it has not heard of, or has lost, and fire what it missed."""
        if self._asked is None or now - self._asked >= LOST_SECONDS:
            await self._find_lost()
            self._asked = now
        for told in await self.schedules.due(BATCH):
            await self._told(told)
        for missed in await self.schedules.missed(LATE_SECONDS):
            try:
                await self._make_up_for(missed)
            except Exception as error:
                # One of them keeps no other waiting; the next look tries it again.
                log.warning("schedule %s: %s", missed.name, type(error).__name__)

    async def _make_up_for(self, missed: Missed) -> None:
        for at in missed.times:
            fired = await self.schedules.fire(missed.tenant, missed.name, at)
            for wake in fired.wakes:
                await self._temporal.wake(wake)
        await self.schedules.settled(missed)

    async def tell_soon(self, told: Told) -> str | None:
        """Tell Temporal of what is committed, and return why it refuses, if it does.

        Where it is away the reconciler makes up for it.
        """
        telling = asyncio.create_task(self._told(told))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)
        done, _ = await asyncio.wait({telling}, timeout=TELL_SECONDS)
        return telling.result() if done else None

    async def _told(self, told: Told) -> str | None:
        try:
            return await self._tell(told)
        except Exception as error:
            log.warning("schedule %s waits for Temporal to hear of it: %s", told.name, error)
            return None

    async def _tell(self, told: Told) -> str | None:
        try:
            await self._temporal.keep_schedule(told)
        except UsageError as error:
            await self.schedules.refused(told, str(error))
            return str(error)
        await self.schedules.told(told)
        return None

    async def _find_lost(self) -> None:
        known = await self.schedules.known()
        if not known:
            return
        there = await self._temporal.schedule_ids()
        for told in known:
            if told.schedule_id not in there:
                await self.schedules.lost(told)
