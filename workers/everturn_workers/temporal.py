"""Our side of the Temporal client: connecting, waking turns, asking which run is open."""

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.converter import DataConverter, DefaultPayloadConverter
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from everturn.errors import RuntimeUnavailable
from everturn.session import Consolidate, EndHooks, TurnStart
from everturn_activities.store import Wake
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
        """Signal the session's `Turn`, starting it where none runs. Durable once it returns."""
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
