"""Our side of the Temporal client: connecting, waking turns, asking which run is open."""

import logging
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NoReturn

from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Client,
    Schedule,
    ScheduleAlreadyRunningError,
    ScheduleUpdate,
    ScheduleUpdateInput,
    WorkflowExecutionStatus,
)
from temporalio.common import Priority, WorkflowIDConflictPolicy
from temporalio.converter import DataConverter, DefaultPayloadConverter
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from everturn.errors import RuntimeUnavailable, UsageError
from everturn.session import Consolidate, EndHooks, SessionKey, TurnStart
from everturn.swarms import SwarmStart
from everturn.tasks import PERSONS
from everturn_activities.store import Wake
from everturn_activities.store.schedules import Told, schedule_id
from everturn_workers import temporal_schedules
from everturn_workers.settings import Settings

PAYLOAD_BYTES_MAX = 256 * 1024
"""Nothing larger enters a workflow's history: a larger one can end the workflow."""

# A worker that was killed in the middle of a workflow task costs this long.
TASK_TIMEOUT = timedelta(seconds=2)
RPC_TIMEOUT = timedelta(seconds=5)

log = logging.getLogger(__name__)


class CappedPayloadConverter(DefaultPayloadConverter):
    """Refuses values that are too large for Temporal before they are sent."""

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        payloads = super().to_payloads(values)
        for value, payload in zip(values, payloads, strict=True):
            if len(payload.data) > PAYLOAD_BYTES_MAX:
                raise ApplicationError(
                    f"A {type(value).__name__} of {len(payload.data)} bytes is over the limit of"
                    f" {PAYLOAD_BYTES_MAX} bytes for what a workflow may carry.",
                    type="TooLarge",
                    non_retryable=True,
                )
        return payloads


async def connect(settings: Settings, lazy: bool = False) -> Client:
    """A client of the Temporal server; a `lazy` one connects with its first call.

    Raises RuntimeUnavailable where the server cannot be reached.
    """
    address = settings.temporal_address
    if address is None:
        raise RuntimeUnavailable(
            "No Temporal server is named: set EVERTURN_TEMPORAL_ADDRESS, or use `everturn up`."
        )
    try:
        return await Client.connect(
            address,
            namespace=settings.temporal_namespace,
            data_converter=DataConverter(payload_converter_class=CappedPayloadConverter),
            lazy=lazy,
        )
    except RuntimeError as error:
        # Its text is a dump of the transport's insides, nothing for a person.
        log.debug("connecting to %s failed: %s", address, error)
        raise RuntimeUnavailable(
            f"The Temporal server at {address} cannot be reached; start it, or set"
            " EVERTURN_TEMPORAL_ADDRESS."
        ) from None


class TemporalWaker:
    """Wakes turns by signal-with-start, and tells which run of a workflow is open."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        self._settings = settings

    async def wake(self, wake: Wake) -> None:
        """Signal whoever hosts the session, or its `Turn`, which is started where none runs.
        Durable once it returns."""
        host = wake.host_workflow_id
        if host and host != wake.key.workflow_id and await self._is_told(host, wake.key):
            return
        await self._client.start_workflow(
            "Turn",
            TurnStart(
                tenant=wake.key.tenant,
                session=wake.key.session,
                history_events_max=self._settings.history_events_max,
            ),
            id=wake.key.workflow_id,
            task_queue=self._settings.task_queue,
            task_timeout=TASK_TIMEOUT,
            start_signal="wake",
            priority=Priority(priority_key=wake.priority or PERSONS, fairness_key=wake.key.tenant),
            rpc_timeout=RPC_TIMEOUT,
        )

    async def _is_told(self, shard: str, key: SessionKey) -> bool:
        """Tell the shard of a swarm; False where it has ended."""
        handle = self._client.get_workflow_handle(shard)
        try:
            await handle.signal("wake", key.session, rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise
        return True

    async def wake_swarm(self, key: SessionKey) -> None:
        """Signal the swarm's workflow, starting it where none runs."""
        start = SwarmStart(key.tenant, key.session, self._settings.history_events_max)
        await self._client.start_workflow(
            "Swarm",
            start,
            id=start.workflow_id,
            task_queue=self._settings.task_queue,
            task_timeout=TASK_TIMEOUT,
            start_signal="wake",
            rpc_timeout=RPC_TIMEOUT,
        )

    async def consolidate(self, request: Consolidate) -> None:
        """Have a memory made smaller; one that is under way already is left to it."""
        await self._begin("Consolidation", request)

    async def end_hooks(self, request: EndHooks) -> None:
        """Have the hooks of a turn's end run; those that are under way are left to it."""
        await self._begin("TurnEnd", request)

    async def _begin(self, workflow: str, request: Consolidate | EndHooks) -> None:
        await self._client.start_workflow(
            workflow,
            request,
            id=request.workflow_id,
            task_queue=self._settings.task_queue,
            task_timeout=TASK_TIMEOUT,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            rpc_timeout=RPC_TIMEOUT,
        )

    async def keep_schedule(self, told: Told) -> None:
        """Have the server hold the schedule as it is told; UsageError where it will not."""
        if told.definition is None:
            await self.forget_schedule(told.tenant, told.name)
            return
        queue = self._settings.task_queue
        wanted = temporal_schedules.schedule(told, time.time(), queue, TASK_TIMEOUT)
        try:
            await self._client.create_schedule(
                told.schedule_id,
                wanted,
                rpc_timeout=RPC_TIMEOUT,
            )
        except ScheduleAlreadyRunningError:
            await self._update_schedule(told, wanted)
        except RPCError as error:
            _raise_refusal(error)

    async def _update_schedule(self, told: Told, wanted: Schedule) -> None:
        def update(_: ScheduleUpdateInput) -> ScheduleUpdate:
            return ScheduleUpdate(wanted)

        try:
            await self._client.get_schedule_handle(told.schedule_id).update(
                update, rpc_timeout=RPC_TIMEOUT
            )
        except RPCError as error:
            _raise_refusal(error)

    async def forget_schedule(self, tenant: str, name: str) -> None:
        """Have the server fire the schedule no more."""
        handle = self._client.get_schedule_handle(schedule_id(tenant, name))
        try:
            await handle.delete(rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise

    async def schedule_ids(self) -> set[str]:
        """The schedules that the server has, of whomever."""
        listed = await self._client.list_schedules(page_size=1000, rpc_timeout=RPC_TIMEOUT)
        return {one.id async for one in listed}

    async def open_run(self, workflow_id: str) -> str | None:
        try:
            found = await self._client.get_workflow_handle(workflow_id).describe(
                rpc_timeout=RPC_TIMEOUT
            )
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return None
            raise
        return found.run_id if found.status == WorkflowExecutionStatus.RUNNING else None

    async def waits_for(self) -> str | None:
        """What keeps the server from answering, in words, or None."""
        try:
            if await self._client.service_client.check_health(timeout=RPC_TIMEOUT):
                return None
        except (RPCError, RuntimeError):
            pass
        return f"the Temporal server at {self._settings.temporal_address}"


def _raise_refusal(error: RPCError) -> NoReturn:
    """Say what the server will not have; any other error may be gone by the next attempt."""
    if error.status == RPCStatusCode.INVALID_ARGUMENT:
        raise UsageError(f"The Temporal server refuses it: {error.message}") from None
    raise error
