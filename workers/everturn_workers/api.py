"""The HTTP API: one application, one protocol a door."""

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request, Response

import everturn_workers.doors.v1 as v1
from everturn.errors import StoreAway
from everturn_activities.event_log import EventLog
from everturn_activities.knowledge.library import Library
from everturn_activities.store import Store
from everturn_activities.store.sql_memories import SqlMemories
from everturn_activities.store.sql_swarms import SqlSwarms
from everturn_activities.store.sql_tasks import SqlTasks
from everturn_activities.store.workers import SqlWorkers
from everturn_workers import stopping
from everturn_workers.discreet import log_to_stderr
from everturn_workers.doors.guard import Guard, demand_key
from everturn_workers.doors.parts import Check, Checked, Parts, authorize
from everturn_workers.doors.problems import problem, tell_problems
from everturn_workers.doors.streams import Streams
from everturn_workers.front import Front
from everturn_workers.invocations import Invocations
from everturn_workers.kept_schedules import KeptSchedules
from everturn_workers.listening import listening
from everturn_workers.runtime import Runtime, open_runtime
from everturn_workers.settings import Settings
from everturn_workers.stopping import Stopping
from everturn_workers.temporal import TemporalWaker, connect

READY_SECONDS = 2.0

log = logging.getLogger(__name__)

WaitsFor = Callable[[], Awaitable[str | None]]
"""What the runtime waits for before it can work turns, in words, or None."""

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_app(
    store: Store,
    memories: SqlMemories,
    tasks: SqlTasks,
    keeper: KeptSchedules,
    swarms: SqlSwarms,
    library: Library,
    workers: SqlWorkers,
    events: EventLog,
    front: Front,
    settings: Settings,
    *,
    check: Check,
    waits_for: WaitsFor,
    streams_wait: WaitsFor | None = None,
    lifespan: Lifespan | None = None,
) -> FastAPI:
    """The application. `app.state.streams` are its open streams, to be closed on shutdown.

    Raises UsageError where it would listen to a network without a key.
    """
    demand_key(settings)
    app = FastAPI(
        title="Everturn",
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        lifespan=lifespan,
        redirect_slashes=False,
    )
    streams = Streams(events)
    app.state.streams = streams
    tell_problems(app)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """This process is alive."""
        return {"status": "alive"}

    @app.get("/readyz")
    async def readyz(request: Request) -> Response:
        """Store and Temporal answer; otherwise what is waited for. Without Redis all is taken and
        worked, so that it makes nobody unready."""
        missing = [
            what
            for what in await asyncio.gather(
                _store_waits(store, request), _within(waits_for(), "the Temporal server")
            )
            if what
        ]
        if missing:
            return problem(503, f"Waits for {' and '.join(missing)}.")
        told = {"status": "ready"}
        if streams_wait is not None and (what := await _within(streams_wait(), "Redis")):
            told["degraded"] = f"Streams wait for {what}."
        return Response(json.dumps(told, separators=(",", ":")), media_type="application/json")

    app.include_router(
        v1.router(
            Parts(
                store=store,
                memories=memories,
                tasks=tasks,
                keeper=keeper,
                swarms=swarms,
                library=library,
                workers=workers,
                events=events,
                front=front,
                settings=settings,
                check=check,
                streams=streams,
                invocations=Invocations(settings.home, store),
            )
        )
    )
    app.add_middleware(Guard, settings=settings)
    return app


async def _within(asked: Awaitable[str | None], who: str) -> str | None:
    """What is waited for; an answer that does not come in time is something to wait for too."""
    try:
        return await asyncio.wait_for(asked, READY_SECONDS)
    except TimeoutError:
        return f"an answer of {who} within {READY_SECONDS:g} s"


async def _store_waits(store: Store, request: Request) -> str | None:
    try:
        await asyncio.wait_for(store.sessions(authorize(request), 1, None), READY_SECONDS)
    except StoreAway:
        return "the store"  # The log has it once.
    except TimeoutError:
        return f"an answer of the store within {READY_SECONDS:g} s"
    except Exception as error:
        # Whatever keeps the store from answering: the log has it, the answer does not.
        log.warning("the store does not answer: %s", error)
        return "the store"
    return None


def check(workspace: Path, agent: str | None, model: str | None) -> Checked:
    """Whether turns can be worked so, by the files of the workspace; see `Check`."""
    from everturn_activities.gateways.choose import check_model
    from everturn_activities.workspace import load

    loaded = load(workspace)
    spec = loaded.spec(agent, model)
    if spec.agent.base_url is None:
        check_model(spec.agent.model)
    return Checked(
        loaded.working_dir,
        spec.agent.folder or loaded.settings.folders.kind,
        tuple(loaded.settings.secrets),
    )


def build(settings: Settings, runtime: Runtime, waker: TemporalWaker) -> FastAPI:
    """The application on what this process has opened."""
    return create_app(
        runtime.store,
        runtime.memories,
        runtime.tasks,
        KeptSchedules(runtime.schedules, waker),
        runtime.swarms,
        runtime.library,
        runtime.workers,
        runtime.events,
        Front(runtime.store, waker),
        settings,
        check=check,
        waits_for=waker.waits_for,
        streams_wait=runtime.streams_wait,
    )


def serve(settings: Settings) -> None:
    """Run the API until SIGTERM or SIGINT; `ready URL` on stdout once it accepts connections."""
    demand_key(settings)
    log_to_stderr(settings.log_level)
    asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    told_to_end, works = Stopping(), asyncio.Event()
    told_to_end.listen()
    await stopping.run(_work(settings, told_to_end, works), told_to_end, works)


async def _work(settings: Settings, told_to_end: Stopping, works: asyncio.Event) -> None:
    with listening(settings.host, settings.port) as listener:
        async with open_runtime(settings) as runtime:
            # Lazily: messages are accepted while the Temporal server is away.
            waker = TemporalWaker(await connect(settings, lazy=True), settings)
            works.set()
            await serve_app(build(settings, runtime, waker), settings, listener, told_to_end)


async def serve_app(
    app: FastAPI, settings: Settings, listener: socket.socket, told_to_end: Stopping
) -> None:
    config = uvicorn.Config(
        app,
        log_level="debug" if settings.log_level == "debug" else "warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
        timeout_keep_alive=30,
    )
    server = _Server(config, settings.host)

    async def end() -> None:
        await told_to_end.asked.wait()
        server.should_exit = True
        # Before it waits for open requests.
        app.state.streams.close()

    ending = asyncio.create_task(end())
    await server.serve(sockets=[listener])
    ending.cancel()


class _Server(uvicorn.Server):
    """Says when it is ready, and leaves signals to `Stopping`."""

    def __init__(self, config: uvicorn.Config, host: str) -> None:
        super().__init__(config)
        self._host = host

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            shown = f"[{self._host}]" if ":" in self._host else self._host
            print(f"ready http://{shown}:{sockets[0].getsockname()[1]}", flush=True)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
