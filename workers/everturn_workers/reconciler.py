"""Makes up for what crashes left, and begins what ended turns ask for."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from everturn.session import Consolidate, SessionKey
from everturn.swarms import SwarmStart
from everturn_activities.executors import Messenger
from everturn_activities.store import Store
from everturn_activities.store.sql_memories import SqlMemories
from everturn_activities.store.sql_schedules import SqlSchedules
from everturn_activities.store.sql_swarms import SqlSwarms
from everturn_activities.store.sql_tasks import SqlTasks
from everturn_workers.burial import Burial
from everturn_workers.kept_schedules import KeptSchedules
from everturn_workers.temporal import TemporalWaker

LOOK_SECONDS = 0.5
ASLEEP_SECONDS = 2.0
"""A sender that committed and did not signal within this time has crashed."""
NAP_SECONDS_MAX = 60.0
"""A session that is woken in vain is woken ever less often: a run takes 10,000 signals."""
HOSTLESS_SECONDS = 10.0
"""An open turn that changed nothing for this long may have lost its workflow."""
BATCH = 100

log = logging.getLogger(__name__)


class Reconciler:
    """Runs in many workers; doing the same thing twice does no harm."""

    def __init__(
        self,
        store: Store,
        memories: SqlMemories,
        swarms: SqlSwarms,
        tasks: SqlTasks,
        schedules: SqlSchedules,
        waker: TemporalWaker,
        burial: Burial,
    ) -> None:
        self._store = store
        self._memories = memories
        self._swarms = swarms
        self._tasks = tasks
        self._waker = waker
        self._burial = burial
        self._messenger = Messenger(store, waker)
        self._schedules = KeptSchedules(schedules, waker)
        self._looked_at: SessionKey | None = None
        self._asked: dict[SessionKey, float] = {}
        self._swarms_asked_at = -HOSTLESS_SECONDS
        self._swarm_looked_at = 0
        self._naps: dict[SessionKey, tuple[float, float]] = {}

    async def run(self, look: Callable[[], Awaitable[None]]) -> None:
        """Do `look`, one of ours, again and again."""
        while True:
            await look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        parts = (self._burial.bury, self.wake_sleepers, self.revive, self.deliver, self.consolidate)
        others = (self.end_turns, self.tend_swarms, self.begin_tasks, self.keep_schedules)
        await self._look_at(*parts, *others)

    async def look_for_dead(self) -> None:
        """All that a worker without turns sees to: there may be no other of its home."""
        await self._look_at(self._burial.bury)

    async def _look_at(self, *parts: Callable[[], Coroutine[Any, Any, None]]) -> None:
        for part in parts:
            try:
                await part()
            except Exception as error:
                # Servers come and go; whatever it was, the next look tries again.
                log.warning("reconciler: %s: %s", part.__name__, error)

    async def deliver(self) -> None:
        """Hand over the tasks that a crash left between a parent and its executors."""
        await self._messenger.deliver(await self._store.undelivered(ASLEEP_SECONDS))

    async def wake_sleepers(self) -> None:
        """Wake sessions whose sender crashed between commit and signal."""
        now = time.monotonic()
        for wake in await self._store.left_asleep(ASLEEP_SECONDS, BATCH):
            until, nap = self._naps.get(wake.key, (0.0, ASLEEP_SECONDS))
            if until > now:
                continue
            self._naps[wake.key] = (now + nap, min(2 * nap, NAP_SECONDS_MAX))
            await self._waker.wake(wake)
        # One that needed no wake-up for a while starts anew.
        self._naps = {
            key: (until, nap) for key, (until, nap) in self._naps.items() if until + 2 * nap > now
        }

    async def revive(self) -> None:
        """Wake open turns whose workflow is gone; the new run adopts them from the store.

        Each look goes on where the last one ended, so that those which wait for long keep
        no other from being looked at.
        """
        now = time.monotonic()
        found = await self._store.open_hosts(HOSTLESS_SECONDS, self._looked_at, BATCH)
        open_runs: dict[str, str | None] = {}
        for wake, run_id in found:
            # Also where the next lines fail: then the next look begins behind this one.
            self._looked_at = wake.key
            if self._asked.get(wake.key, 0.0) > now:
                continue
            self._asked[wake.key] = now + HOSTLESS_SECONDS
            workflow_id = wake.host_workflow_id or wake.key.workflow_id
            # A shard hosts many.
            if workflow_id not in open_runs:
                open_runs[workflow_id] = await self._waker.open_run(workflow_id)
            if open_runs[workflow_id] != run_id:
                await self._waker.wake(wake)
        if len(found) < BATCH:
            self._looked_at = None
        self._asked = {key: at for key, at in self._asked.items() if at > now}

    async def consolidate(self) -> None:
        """Begin the consolidations that ended turns asked for: nobody waits for them."""
        for due in await self._memories.due(BATCH):
            await self._waker.consolidate(Consolidate(due.tenant, due.id))
            # One that is begun and lost is begun again once its time has come.
            await self._memories.begun(due.id)

    async def begin_tasks(self) -> None:
        """Begin the attempts whose time has come, and end what has no more of it."""
        wakes = await self._tasks.come_due(BATCH)
        # Side by side: the server answers many as soon as one.
        await asyncio.gather(*(self._waker.wake(wake) for wake in wakes))

    async def keep_schedules(self) -> None:
        """Tell Temporal of the schedules that it has not heard of, or has lost."""
        await self._schedules.look(time.monotonic())

    async def end_turns(self) -> None:
        """Begin the hooks of turns that have ended: nobody waits for them."""
        for due in await self._store.due_hooks(BATCH):
            await self._waker.end_hooks(due)
            await self._store.hooks_begun(due)

    async def tend_swarms(self) -> None:
        """Wake swarms whose sender crashed between commit and signal, and those whose workflow
        is gone."""
        for key in await self._swarms.asleep(ASLEEP_SECONDS, BATCH):
            await self._waker.wake_swarm(key)
        now = time.monotonic()
        if now - self._swarms_asked_at < HOSTLESS_SECONDS:
            return
        self._swarms_asked_at = now
        found = await self._swarms.unended(self._swarm_looked_at, BATCH)
        for number, key in found:
            # Also where the next lines fail: then the next look begins behind this one.
            self._swarm_looked_at = number
            start = SwarmStart(key.tenant, key.session)
            if await self._waker.open_run(start.workflow_id) is None:
                await self._waker.wake_swarm(key)
        if len(found) < BATCH:
            self._swarm_looked_at = 0
