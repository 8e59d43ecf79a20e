"""Whether the Temporal server can be worked with, and whether anybody works."""

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeTaskQueueRequest,
    GetSystemInfoRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from everturn.errors import UsageError
from everturn_workers import fetch
from everturn_workers.check import REACH_SECONDS, Check, in_time
from everturn_workers.roles import ROLES
from everturn_workers.settings import Settings
from everturn_workers.up_record import running

VERSION = (1, 29)
"""From which on the server keeps tenants from starving each other, by the order of their turns."""
RPC_TIMEOUT = timedelta(seconds=REACH_SECONDS)
ALIVE_SECONDS = 120.0
"""A worker asks for work once a minute at least."""

_MEND = "Start it, or unset EVERTURN_TEMPORAL_ADDRESS to use the embedded one."


async def check_temporal(settings: Settings) -> list[Check]:
    up = running(settings.home)
    address = settings.temporal_address or (up.temporal_address if up else None)
    if address is None:
        return [await asyncio.to_thread(_embedded)]
    namespace = settings.temporal_namespace
    sentence = f"No Temporal server answers at {address} for the namespace {namespace!r}."
    nobody = Check("temporal", False, sentence, _MEND)
    return await in_time(_asked(address, settings, nobody), nobody)


async def _asked(address: str, settings: Settings, nobody: Check) -> list[Check]:
    namespace = settings.temporal_namespace
    try:
        client = await Client.connect(address, namespace=namespace)
        service = client.workflow_service
        system = await service.get_system_info(GetSystemInfoRequest(), timeout=RPC_TIMEOUT)
        asked = DescribeNamespaceRequest(namespace=namespace)
        await service.describe_namespace(asked, timeout=RPC_TIMEOUT)
    except RuntimeError:
        return [nobody]
    except RPCError as error:
        return [_refused(address, namespace, error) or nobody]
    version = system.server_version
    mend = None
    if _numbers(version) < VERSION:
        mend = "Upgrade it to 1.29: an older one does not keep tenants from starving each other."
    found = Check("temporal", True, f"Temporal {version} answers at {address}.", mend)
    return [found, await _workers(client, settings)]


def _refused(address: str, namespace: str, error: RPCError) -> Check | None:
    if error.status == RPCStatusCode.NOT_FOUND:
        return Check(
            "temporal",
            False,
            f"The Temporal server at {address} has no namespace {namespace!r}.",
            f"Make it: temporal operator namespace create -n {namespace} --address {address}; or"
            " set EVERTURN_TEMPORAL_NAMESPACE.",
        )
    if error.status in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED):
        return Check(
            "temporal",
            False,
            f"The Temporal server at {address} does not let us into the namespace {namespace!r}.",
            "Allow it there; this version shows no key and no certificate.",
        )
    return None


async def _workers(client: Client, settings: Settings) -> Check:
    """Whether each class of work has a worker that has asked for some lately."""
    queue = settings.task_queue
    names = {"turns": queue, "models": f"{queue}-models", "tools": settings.tools_queue}
    seen: dict[str, set[str]] = {}
    for role in ROLES:
        kind = (
            TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
            if role == "turns"
            else TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
        )
        asked = DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=names[role]),
            task_queue_type=kind,
        )
        answer = await client.workflow_service.describe_task_queue(asked, timeout=RPC_TIMEOUT)
        alive = [poller for poller in answer.pollers if _is_alive(poller.last_access_time)]
        seen[role] = {poller.identity for poller in alive}
    idle = [role for role in ROLES if not seen[role]]
    if idle:
        mend = "everturn worker" + (f" --roles {','.join(idle)}" if len(idle) < len(ROLES) else "")
        return Check(
            "workers",
            False,
            f"No worker takes {_listed(idle)} from the queues {queue!r}.",
            f"Start one: {mend}.",
        )
    counts = {role: len(seen[role]) for role in ROLES}
    if len(set(counts.values())) == 1:
        workers = "1 worker takes" if counts["turns"] == 1 else f"{counts['turns']} workers take"
        return Check("workers", True, f"{workers} work from the queues {queue!r}.")
    told = ", ".join(f"{count} {role}" for role, count in counts.items())
    return Check("workers", True, f"Workers on the queues {queue!r}, by what they take: {told}.")


def _is_alive(asked_at: Timestamp) -> bool:
    return time.time() - asked_at.seconds < ALIVE_SECONDS


def _listed(words: Sequence[str]) -> str:
    return " and ".join(", ".join(words).rsplit(", ", 1))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _embedded() -> Check:
    try:
        binary = fetch.find()
    except UsageError as error:
        return Check("temporal", False, str(error), "Set EVERTURN_TEMPORAL_BINARY anew.")
    if binary is None:
        return Check(
            "temporal",
            False,
            "No Temporal server is on this machine yet.",
            "`everturn up` obtains one, which can take minutes; or put `temporal` on PATH.",
        )
    return Check("temporal", True, f"The Temporal server is {binary} ({fetch.version(binary)}).")
