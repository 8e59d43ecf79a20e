"""The worker: where gateways, tools and workflows meet."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from everturn.session import SessionKey
from everturn_activities.model import GatewayChoice
from everturn_activities.session_homes import RecordHomes
from everturn_activities.sources import Sources
from everturn_activities.tools import Toolbox
from everturn_activities.turn import Workspaces
from everturn_activities.webhooks import Courier
from everturn_activities.workspace import secret_of
from everturn_workers.assembly import Assembly
from everturn_workers.burial import Burial
from everturn_workers.discreet import Discreet
from everturn_workers.home import home_id
from everturn_workers.leases import Leases, member, slots
from everturn_workers.locks import WorkerLock
from everturn_workers.own_queue import OwnQueue
from everturn_workers.queues import Queue, own, queues
from everturn_workers.reconciler import Reconciler
from everturn_workers.runtime import Runtime
from everturn_workers.settings import Settings
from everturn_workers.temporal import TemporalWaker
from everturn_workers.under_way import UnderWay

WORKFLOWS_CACHED = 2_000
"""Above the number of live turns: a turn that falls out replays its whole history."""

HEARTBEAT_THROTTLE = timedelta(seconds=0.5)


@dataclass(frozen=True)
class Running:
    """A worker that takes work: its id, what it has under way, how it gives that away, and how it
    says on the list of those that live that it drains, and leaves it."""

    instance: str
    under_way: UnderWay
    hand_over: Callable[[], Awaitable[None]]
    drain: Callable[[], None]
    leave: Callable[[], Awaitable[None]]


@asynccontextmanager
async def running_worker(
    client: Client,
    runtime: Runtime,
    settings: Settings,
    gateways: GatewayChoice,
    workspaces: Workspaces,
    toolbox: Toolbox,
    workflows_cached: int = WORKFLOWS_CACHED,
    sources: Sources | None = None,
) -> AsyncIterator[Running]:
    """Work the queues of the roles of `settings` within the block; leaving it takes no new work and
    lets what is under way go on for `settings.drain_seconds`.

    `sources` are what contexts are composed from, in place of our own.
    """
    run_dir = settings.home / "run"
    home = home_id(settings.home)
    instance = f"{home}-{secrets.token_hex(6)}"
    under_way = UnderWay()
    us = member(settings, instance)
    leases = Leases(runtime.workers, us, run_dir, slots(settings), under_way.running)
    waker = TemporalWaker(client, settings)
    own_queue = OwnQueue(settings.own_queue(instance))
    work = Assembly(
        *(runtime, settings, gateways, workspaces, toolbox, sources, waker, instance, leases.lives),
        own_queue.opened if "tools" in settings.works else partial(_named, settings.tools_queue),
        home,
    )
    opened = partial(_worker, client, settings, under_way)
    burial = Burial(runtime.store, runtime.workers, client, run_dir, instance)
    async with AsyncExitStack() as stack:
        stack.enter_context(WorkerLock(run_dir, instance))
        await leases.begin()
        stack.push_async_callback(leases.leave)
        # To the end: what is under way then is still ours.
        stack.push_async_callback(_ended, asyncio.create_task(leases.run(burial)))
        reconciler = Reconciler(
            *(runtime.store, runtime.memories, runtime.swarms, runtime.tasks, runtime.schedules),
            *(waker, burial),
        )
        duties = _duties(reconciler, runtime, settings)
        await duties.look()
        await runtime.governor.look()
        governing = asyncio.create_task(runtime.governor.run())
        stack.push_async_callback(_ended, governing)
        workers: list[Worker] = []
        # Left once all are shut down, side by side.
        of_own = await stack.enter_async_context(AsyncExitStack())

        async def take_own_work() -> None:
            worker = opened(own(work, settings, own_queue.name))
            workers.append(await of_own.enter_async_context(worker))

        own_queue.open = take_own_work
        for queue in queues(work, settings, home, workflows_cached):
            workers.append(await stack.enter_async_context(opened(queue)))
        stack.push_async_callback(_shut_down, workers)
        for duty in duties.run:
            stack.push_async_callback(_ended, asyncio.create_task(duty))
        yield Running(instance, under_way, burial.hand_over, leases.drain, leases.leave)


@dataclass(frozen=True)
class _Duties:
    """What a worker sees to beside its queues: `look` once before it takes work, `run` then."""

    look: Callable[[], Awaitable[None]]
    run: Sequence[Coroutine[Any, Any, None]]


def _duties(reconciler: Reconciler, runtime: Runtime, settings: Settings) -> _Duties:
    """Every worker buries the dead. What wakes turns, and tells of them, is done where turns are,
    by each such worker: two that do the same do no harm."""
    if "turns" not in settings.works:
        return _Duties(reconciler.look_for_dead, [reconciler.run(reconciler.look_for_dead)])
    courier = Courier(runtime.tasks, secret_of(runtime.vault), settings.webhook_reach)
    return _Duties(reconciler.look, [reconciler.run(reconciler.look), courier.run()])


def _worker(client: Client, settings: Settings, under_way: UnderWay, queue: Queue) -> Worker:
    return Worker(
        client,
        task_queue=queue.name,
        activities=queue.activities,
        workflows=queue.workflows,
        interceptors=[under_way, Discreet()],
        # By default the SDK hashes every loaded module, half a second of each start.
        build_id=f"everturn-{version('everturn')}",
        graceful_shutdown_timeout=timedelta(seconds=settings.drain_seconds),
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        **queue.slots,
    )


def noted_records(
    runtime: Runtime, settings: Settings
) -> Callable[[SessionKey, int], Awaitable[None]] | None:
    """Who is told of turns whose file checkpoints our home keeps, where there are others."""
    if not settings.has_homes:
        return None
    return RecordHomes(runtime.store, home_id(settings.home)).note


async def _named(queue: str) -> str:
    return queue


async def _shut_down(workers: Sequence[Worker]) -> None:
    # Side by side: each lets its calls go on for as long as is promised.
    await asyncio.gather(*(worker.shutdown() for worker in workers))


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
