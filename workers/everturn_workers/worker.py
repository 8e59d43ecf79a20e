"""The worker: where gateways, tools and workflows meet."""

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from typing import Any

import uvloop
from temporalio.client import Client
from temporalio.worker import Worker

from everturn.errors import RuntimeUnavailable
from everturn_activities import prices, tokens
from everturn_activities.admission import Admission
from everturn_activities.call_hooks import CallHookActivities
from everturn_activities.candidates import Candidates
from everturn_activities.compaction import CompactionActivities
from everturn_activities.consolidation import ConsolidationActivities
from everturn_activities.end_hooks import EndHookActivities
from everturn_activities.executors import ExecutorActivities, Messenger
from everturn_activities.flights import CancelWatch
from everturn_activities.folders import FolderActivities
from everturn_activities.frames import Frames
from everturn_activities.gateways.choose import Gateways
from everturn_activities.gathering import Gatherer
from everturn_activities.hook_running import HookRunner
from everturn_activities.hooks import HookActivities
from everturn_activities.mcp.gather import GatherActivities
from everturn_activities.mcp.homes import Homes
from everturn_activities.model import GatewayChoice, ModelActivities
from everturn_activities.placement import Placements
from everturn_activities.request_log import RequestLog
from everturn_activities.sources import Sources
from everturn_activities.sources.documents import DocumentSources
from everturn_activities.sources.hooks import HookSources
from everturn_activities.sources.knowledge import knowledge_source
from everturn_activities.sources.memory import memory_source
from everturn_activities.sources.plain import PLAIN
from everturn_activities.sources.skills import SkillSources
from everturn_activities.step import StepActivities
from everturn_activities.tools import ToolActivities, Toolbox
from everturn_activities.turn import TurnActivities, Workspaces
from everturn_activities.vault import Vault
from everturn_activities.workspace import left_out_of_copies, protected_from_tools
from everturn_workers.discreet import Discreet, keep_out_of_logs, log_to_stderr
from everturn_workers.isolation import sandbox
from everturn_workers.locks import WorkerLock, is_alive
from everturn_workers.own_queue import OwnQueue
from everturn_workers.reconciler import Reconciler
from everturn_workers.runtime import (
    TOKENS_OF,
    Runtime,
    count_text,
    count_tokens,
    open_runtime,
)
from everturn_workers.settings import Settings
from everturn_workers.temporal import TemporalWaker, connect
from everturn_workflows.consolidation import Consolidation
from everturn_workflows.turn import Turn
from everturn_workflows.turn_end import TurnEnd

MODELS_MAX = 200
TOOLS_MAX = 64
INLINE_MAX = 200
WORKFLOWS_CACHED = 2_000
"""Above the number of live turns: a turn that falls out replays its whole history."""

# After a kill the next workflow task waits this long in the dead worker's own queue.
STICKY_TIMEOUT = timedelta(seconds=1)
HEARTBEAT_THROTTLE = timedelta(seconds=0.5)
GRACE = timedelta(seconds=5)
# Calls inside of workflow tasks are told of no shutdown, and could run for ever.
LEAVE_SECONDS = 7.0
CONNECT_SECONDS = 30.0

ENDED_BY_TOOL = 70

log = logging.getLogger(__name__)


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
) -> AsyncIterator[str]:
    """Work the queues of `settings.task_queue` within the block; yields the instance's id.

    `sources` are what contexts are composed from, in place of our own.
    """
    run_dir = settings.home / "run"
    machine = hashlib.sha256(f"{socket.gethostname()}{run_dir}".encode()).hexdigest()[:8]
    instance = f"{machine}-{secrets.token_hex(6)}"

    def lives(other: str) -> bool:
        # A worker of another machine is believed alive until its call's time is up.
        return is_alive(run_dir, other) if other.startswith(machine) else True

    waker = TemporalWaker(client, settings)
    known = _sources(runtime, settings) if sources is None else sources
    own_queue = OwnQueue(own_queue_of(settings, instance))
    work = _activities(
        *(runtime, settings, gateways, workspaces, toolbox, known, waker, instance, lives),
        own_queue.opened,
    )
    everywhere: dict[str, Any] = {
        "client": client,
        "interceptors": [Discreet()],
        # By default the SDK hashes every loaded module, half a second of each start.
        "build_id": f"everturn-{version('everturn')}",
        "graceful_shutdown_timeout": GRACE,
        "max_heartbeat_throttle_interval": HEARTBEAT_THROTTLE,
        "default_heartbeat_throttle_interval": HEARTBEAT_THROTTLE,
    }
    queue = settings.task_queue
    async with AsyncExitStack() as stack:
        stack.enter_context(WorkerLock(run_dir, instance))
        reconciler = Reconciler(runtime.store, runtime.memories, waker, client, run_dir, instance)
        await reconciler.look()
        await runtime.governor.look()
        governing = asyncio.create_task(runtime.governor.run())
        stack.push_async_callback(_ended, governing)
        workers: list[Worker] = []
        # Left once all are shut down, side by side.
        of_own = await stack.enter_async_context(AsyncExitStack())

        async def take_own_work() -> None:
            worker = Worker(
                task_queue=own_queue.name,
                activities=[work.tools.run_tools, work.gathering.gather_tools],
                max_concurrent_activities=TOOLS_MAX,
                **everywhere,
            )
            workers.append(await of_own.enter_async_context(worker))

        own_queue.open = take_own_work
        turn_worker = await stack.enter_async_context(
            Worker(
                task_queue=queue,
                workflows=[Turn, Consolidation, TurnEnd],
                activities=[
                    work.turns.begin_turn,
                    work.turns.check_inbox,
                    work.turns.finish_turn,
                    work.steps.begin_step,
                    work.tools.run_tools,
                    work.tools.check_approvals,
                    work.executors.check_executors,
                ],
                workflow_runner=sandbox,
                no_remote_activities=True,
                max_cached_workflows=workflows_cached,
                max_concurrent_local_activities=INLINE_MAX,
                sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
                **everywhere,
            )
        )
        model_worker = await stack.enter_async_context(
            Worker(
                task_queue=f"{queue}-models",
                activities=[
                    work.models.call_model,
                    work.compactions.compact,
                    work.consolidations.consolidate,
                ],
                max_concurrent_activities=MODELS_MAX,
                **everywhere,
            )
        )
        tool_worker = await stack.enter_async_context(
            Worker(
                task_queue=f"{queue}-tools",
                activities=[
                    work.tools.run_tools,
                    work.tools.ask_approvals,
                    work.hooks.run_hooks,
                    work.folders.prepare_folder,
                    work.call_hooks.before_calls,
                    work.call_hooks.after_calls,
                    work.end_hooks.end_hooks,
                    work.executors.begin_executors,
                ],
                max_concurrent_activities=TOOLS_MAX,
                **everywhere,
            )
        )
        workers += [turn_worker, model_worker, tool_worker]
        stack.push_async_callback(_shut_down, workers)
        reconciling = asyncio.create_task(reconciler.run())
        stack.push_async_callback(_ended, reconciling)
        yield instance


def own_queue_of(settings: Settings, instance: str) -> str:
    return f"{settings.task_queue}-tools@{instance}"


def _request_log(settings: Settings, vault: Vault) -> RequestLog | None:
    if settings.request_log is None:
        return None
    path = settings.request_log.expanduser().absolute()
    return RequestLog(path, vault.scrubber)


def _counts_exactly(model: str) -> bool:
    """Whether our count is the model's own: stored messages have one measure for all models."""
    return tokens.encoding_of(model) == tokens.encoding_of(TOKENS_OF)


def _sources(runtime: Runtime, settings: Settings) -> Sources:
    """All that layers may name as their source."""
    return {
        **PLAIN,
        "memory": memory_source(runtime.memories),
        "knowledge": knowledge_source(runtime.library),
        **SkillSources(runtime.skills, runtime.store.invocations).named(),
        **DocumentSources(settings.home).named(),
        **HookSources(runtime.store.hook_outputs).named(),
    }


@dataclass(frozen=True)
class _Activities:
    turns: TurnActivities
    steps: StepActivities
    models: ModelActivities
    compactions: CompactionActivities
    consolidations: ConsolidationActivities
    tools: ToolActivities
    hooks: HookActivities
    folders: FolderActivities
    call_hooks: CallHookActivities
    end_hooks: EndHookActivities
    executors: ExecutorActivities
    gathering: GatherActivities


def _activities(
    runtime: Runtime,
    settings: Settings,
    gateways: GatewayChoice,
    workspaces: Workspaces,
    toolbox: Toolbox,
    sources: Sources,
    waker: TemporalWaker,
    instance: str,
    lives: Callable[[str], bool],
    own_queue: Callable[[], Awaitable[str]],
) -> _Activities:
    placements = Placements(runtime.store, settings.placement)
    watch = CancelWatch(runtime.store, runtime.wakeups)
    messenger = Messenger(runtime.store, waker)
    turns = TurnActivities(runtime.store, workspaces, waker, messenger)
    executors = ExecutorActivities(runtime.store, workspaces, messenger)
    candidates = Candidates(prices, runtime.governor)
    admission = Admission(runtime.store, runtime.governor, candidates, gateways)
    gatherer = Gatherer(
        runtime.store,
        sources,
        tokens.count_text,
        left_out=gateways.left_out,
        clean=runtime.vault.scrubber.scrubbed,
    )
    homes = Homes(
        *(runtime.store, runtime.servers, instance, lives),
        lambda worker: own_queue_of(settings, worker),
        own_queue,
    )
    models = ModelActivities(
        runtime.store,
        runtime.events,
        gateways,
        prices.cost_usd,
        count_tokens,
        gatherer,
        candidates,
        placements,
        watch,
        admission,
        homes,
        instance,
        _request_log(settings, runtime.vault),
        toolbox.know,
    )
    frames = Frames(tokens.count_text, prices.window, _counts_exactly)
    compactions = CompactionActivities(
        runtime.store,
        gateways,
        prices.cost_usd,
        frames,
        gatherer,
        count_text,
        watch,
        admission,
        instance,
    )
    tools = ToolActivities(runtime.store, toolbox, placements, watch, instance, lives, homes)
    steps = StepActivities(
        *(runtime.store, candidates, placements, frames, gatherer, admission, models, tools),
        runtime.servers,
        own_queue,
    )
    consolidations = ConsolidationActivities(
        runtime.store,
        runtime.memories,
        gateways,
        prices.cost_usd,
        count_text,
        admission,
        instance,
    )
    hooks = HookActivities(runtime.store, toolbox.run_hook, watch, instance, lives)
    folders = FolderActivities(
        runtime.store,
        settings.home,
        watch,
        left_out_of_copies,
        protected_from_tools,
        runtime.checkpoints,
    )
    runner = HookRunner(runtime.store, toolbox.run_hook, instance, lives)
    call_hooks = CallHookActivities(runtime.store, runner, tools.refusal, watch)
    end_hooks = EndHookActivities(runtime.store, runner)
    gathering = GatherActivities(runtime.store, runtime.servers, homes, watch, instance)
    return _Activities(
        *(turns, steps, models, compactions, consolidations, tools, hooks, folders),
        *(call_hooks, end_hooks, executors, gathering),
    )


async def _shut_down(workers: Sequence[Worker]) -> None:
    # Side by side: each lets its calls go on for GRACE.
    await asyncio.gather(*(worker.shutdown() for worker in workers))


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def serve(settings: Settings) -> None:
    """Run a worker until SIGTERM or SIGINT; prints `ready` on stdout once it takes work."""
    log_to_stderr(settings.log_level)
    # A turn spends a tenth of the worker's CPU in asyncio's own loop.
    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(_serve(settings))
    except Exception:
        raise
    except BaseException as error:
        # Only a tool's own task can raise such a thing into the loop. What it left half done
        # would wait for ever, so the process ends; the next worker takes its calls over.
        log.error("a tool ended the worker with %s", type(error).__name__)
        os._exit(ENDED_BY_TOOL)
    loop.close()


async def _serve(settings: Settings) -> None:
    from everturn_activities.call_checkpoints import CallCheckpoints
    from everturn_activities.workspaces import Workspaces as Folders

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(open_runtime(settings))
        gateways = Gateways(os.environ, runtime.vault)
        stack.push_async_callback(gateways.close)
        keep_out_of_logs(runtime.vault.scrubber)
        client = await _connected(settings, stopping)
        if client is None:
            return
        folders = Folders(
            settings.unsafe_commands,
            runtime.services,
            settings.command_limits,
            CallCheckpoints(runtime.checkpoints),
        )
        instance = await stack.enter_async_context(
            running_worker(client, runtime, settings, gateways, folders, folders)
        )
        log.info("worker %s takes work from %s", instance, settings.temporal_address)
        print(f"ready {instance}", flush=True)
        await stopping.wait()
        loop.call_later(LEAVE_SECONDS, _leave)


def _leave() -> None:
    """End at once: what still runs is the next worker's, as after a kill."""
    log.warning("calls that did not end in time are left to the next worker")
    os._exit(0)


async def _connected(settings: Settings, stopping: asyncio.Event) -> Client | None:
    """A connected client; the server may need a moment to come up."""
    give_up = asyncio.get_running_loop().time() + CONNECT_SECONDS
    told = False
    while not stopping.is_set():
        try:
            return await connect(settings)
        except RuntimeUnavailable:
            if settings.temporal_address is None or asyncio.get_running_loop().time() > give_up:
                raise
            if not told:
                told = True
                log.info(
                    "waits up to %g s for the Temporal server at %s",
                    CONNECT_SECONDS,
                    settings.temporal_address,
                )
            await asyncio.sleep(0.2)
    return None
