"""Gives the calls of workers that are gone to those that live, at once."""

import asyncio
import logging
from collections.abc import Collection
from pathlib import Path

from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from everturn_activities.store import Store
from everturn_activities.store.workers import SqlWorkers
from everturn_workers.locks import dead_workers, forget_worker
from everturn_workers.temporal import RPC_TIMEOUT

AT_ONCE = 50

log = logging.getLogger(__name__)


class Burial:
    """`run_dir` is the home's `run` folder, and `worker` who buries."""

    def __init__(
        self, store: Store, workers: SqlWorkers, client: Client, run_dir: Path, worker: str
    ) -> None:
        self._store = store
        self._workers = workers
        self._client = client
        self._run_dir = run_dir
        self._worker = worker

    async def bury(self) -> None:
        """Fail the tasks of workers that were killed, so that others get them at once."""
        dead = set(dead_workers(self._run_dir)) - {self._worker}
        if not dead:
            return
        await self.bury_lapsed(dead)

    async def bury_lapsed(self, dead: Collection[str]) -> None:
        """Fail the tasks of workers that are known to be gone."""
        log.warning("workers that are gone: %s; others take their calls over", ", ".join(dead))
        await self._give_away(dead)
        await self._workers.leave(dead)
        for instance in dead:
            forget_worker(self._run_dir, instance)

    async def hand_over(self) -> None:
        """Fail our own tasks: we end before they do."""
        await self._give_away({self._worker})

    async def _give_away(self, gone: Collection[str]) -> None:
        calls = [call for call in await self._store.unfinished_calls() if call.worker in gone]
        for first in range(0, len(calls), AT_ONCE):
            beside = calls[first : first + AT_ONCE]
            await asyncio.gather(*(self._fail(call.task_token) for call in beside))

    async def _fail(self, task_token: bytes) -> None:
        lost = ApplicationError("The worker that ran this call is gone.", type="WorkerLost")
        handle = self._client.get_async_activity_handle(task_token=task_token)
        try:
            await handle.fail(lost, rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            # Any other error leaves the dead on record, and the next look tries again.
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
