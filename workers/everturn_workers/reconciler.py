"""Makes up for what crashes left, and begins what ended turns ask for."""

import asyncio
import logging
import time
from pathlib import Path

from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from everturn.session import Consolidate, SessionKey
from everturn_activities.executors import Messenger
from everturn_activities.store import Store
from everturn_activities.store.sql_memories import SqlMemories
from everturn_workers.locks import dead_workers, forget_worker
from everturn_workers.temporal import RPC_TIMEOUT, TemporalWaker

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
    """Runs in every worker; doing the same thing twice does no harm."""

    def __init__(
        self,
        store: Store,
        memories: SqlMemories,
        waker: TemporalWaker,
        client: Client,
        run_dir: Path,
        worker: str,
    ) -> None:
        self._store = store
        self._memories = memories
        self._waker = waker
        self._client = client
        self._run_dir = run_dir
        self._worker = worker
        self._messenger = Messenger(store, waker)
        self._looked_at: SessionKey | None = None
        self._asked: dict[SessionKey, float] = {}
        self._naps: dict[SessionKey, tuple[float, float]] = {}

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        parts = (self.bury, self.wake_sleepers, self.revive, self.deliver, self.consolidate)
        for part in (*parts, self.end_turns):
            try:
                await part()
            except Exception as error:
                # Servers come and go; whatever it was, the next look tries again.
                log.warning("reconciler: %s: %s", part.__name__, error)

    async def deliver(self) -> None:
        """Hand over the tasks that a crash left between a parent and its executors."""
        await self._messenger.deliver(await self._store.undelivered(ASLEEP_SECONDS))

    async def bury(self) -> None:
        """Fail the tasks of workers that were killed, so that others get them at once."""
        dead = set(dead_workers(self._run_dir)) - {self._worker}
        if not dead:
            return
        for call in await self._store.unfinished_calls():
            if call.worker in dead:
                await self._fail(call.task_token)
        for instance in dead:
            forget_worker(self._run_dir, instance)

    async def _fail(self, task_token: bytes) -> None:
        lost = ApplicationError("The worker that ran this call is gone.", type="WorkerLost")
        handle = self._client.get_async_activity_handle(task_token=task_token)
        try:
            await handle.fail(lost, rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            # Any other error leaves the dead on record, and the next look tries again.
            if error.status != RPCStatusCode.NOT_FOUND:
                raise

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
        for wake, run_id in found:
            # Also where the next lines fail: then the next look begins behind this one.
            self._looked_at = wake.key
            if self._asked.get(wake.key, 0.0) > now:
                continue
            self._asked[wake.key] = now + HOSTLESS_SECONDS
            workflow_id = wake.host_workflow_id or wake.key.workflow_id
            if await self._waker.open_run(workflow_id) != run_id:
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

    async def end_turns(self) -> None:
        """Begin the hooks of turns that have ended: nobody waits for them."""
        for due in await self._store.due_hooks(BATCH):
            await self._waker.end_hooks(due)
            await self._store.hooks_begun(due)
