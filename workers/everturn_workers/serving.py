"""A worker's process: from its start until it leaves."""

import asyncio
import contextlib
import gc
import logging
import os
import time
from contextlib import AsyncExitStack
from functools import partial

import uvloop
from temporalio.client import Client

from everturn.errors import RuntimeUnavailable
from everturn_activities.gateways.choose import Gateways
from everturn_workers import stopping
from everturn_workers.discreet import keep_out_of_logs, log_to_stderr
from everturn_workers.draining import drain
from everturn_workers.health import Health, told
from everturn_workers.runtime import Runtime, open_runtime
from everturn_workers.settings import Settings
from everturn_workers.stopping import Stopping
from everturn_workers.temporal import TemporalWaker, connect
from everturn_workers.worker import noted_records, running_worker

PATIENCE_SECONDS = 120.0
"""How long what was paid for, or done, waits for a database that is away, to be recorded."""
CONNECT_SECONDS = 10.0
"""A server that takes us in and says nothing is waited for anew, and told of."""
RETRY_SECONDS = 0.2
TELL_SECONDS = 30.0
"""How often the log says what is waited for."""

GC_THRESHOLDS = (20_000, 20, 20)

ENDED_BY_TOOL = 70

log = logging.getLogger(__name__)


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
    told_to_end, works = Stopping(), asyncio.Event()
    told_to_end.listen()
    await stopping.run(_work(settings, told_to_end, works), told_to_end, works)


async def _work(settings: Settings, told_to_end: Stopping, works: asyncio.Event) -> None:
    from everturn_activities.call_checkpoints import CallCheckpoints
    from everturn_activities.workspaces import Workspaces as Folders

    health = Health()
    async with AsyncExitStack() as stack:
        if (url := await stack.enter_async_context(told(health, settings))) is not None:
            log.info("tells of its health at %s", url)
        runtime = await stack.enter_async_context(open_runtime(settings, PATIENCE_SECONDS))
        gateways = Gateways(os.environ, runtime.vault)
        stack.push_async_callback(gateways.close)
        keep_out_of_logs(runtime.vault.scrubber)
        health.stage = f"Waits for the Temporal server at {settings.temporal_address}."
        client = await _connected(settings)
        folders = Folders(
            settings.unsafe_commands,
            runtime.services,
            settings.command_limits,
            CallCheckpoints(runtime.checkpoints, noted_records(runtime, settings)),
        )
        health.looks = {
            "the store": partial(_store_waits, runtime),
            "the Temporal server": TemporalWaker(client, settings).waits_for,
            "its first look": partial(_first_look, works),
        }
        health.streams_wait = runtime.streams_wait
        health.stage = None
        running = await stack.enter_async_context(
            running_worker(client, runtime, settings, gateways, folders, folders)
        )
        works.set()
        log.info(
            "worker %s takes %s from %s",
            *(running.instance, settings.roles, settings.temporal_address),
        )
        _collect_seldom()
        print(f"ready {running.instance}", flush=True)
        await told_to_end.asked.wait()
        health.stage = "Ends, and takes no new work."
        running.drain()
        draining = asyncio.create_task(
            drain(running, settings.drain_seconds, runtime.servers.close)
        )
    draining.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await draining
    log.info("has ended")


def _collect_seldom() -> None:
    """Have the garbage collector leave out what is loaded by now, and look at the rest seldom.

    A worker keeps hundreds of thousands of objects for good, and each step makes thousands that
    end by their reference counts: with Python's own thresholds collecting took a tenth of the
    time of a swarm's items.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def _store_waits(runtime: Runtime) -> str | None:
    try:
        await runtime.workers.listed()
    except Exception as error:
        log.warning("the store does not answer: %s", type(error).__name__)
        return "the store"
    return None


async def _first_look(works: asyncio.Event) -> str | None:
    return None if works.is_set() else "its own first look at what others have left"


async def _connected(settings: Settings) -> Client:
    """A connected client: the server may come up later than we do, or restart meanwhile."""
    told = -TELL_SECONDS
    while True:
        try:
            return await asyncio.wait_for(connect(settings), CONNECT_SECONDS)
        except (RuntimeUnavailable, TimeoutError):
            if settings.temporal_address is None:
                raise
            now = time.monotonic()
            if now - told >= TELL_SECONDS:
                told = now
                log.info("waits for the Temporal server at %s", settings.temporal_address)
            await asyncio.sleep(RETRY_SECONDS)
