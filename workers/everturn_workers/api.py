"""The HTTP API: one application, one protocol a door."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI, Request, Response

import everturn_workers.doors.v1 as v1
from everturn_activities.event_log import EventLog
from everturn_activities.knowledge.library import Library
from everturn_activities.store import Store
from everturn_activities.store.sql_memories import SqlMemories
from everturn_workers.discreet import log_to_stderr
from everturn_workers.doors.guard import Guard, demand_key
from everturn_workers.doors.parts import Check, Checked, Parts, authorize
from everturn_workers.doors.problems import problem, tell_problems
from everturn_workers.doors.streams import Streams
from everturn_workers.front import Front
from everturn_workers.invocations import Invocations
from everturn_workers.listening import listening
from everturn_workers.runtime import Runtime, open_runtime
from everturn_workers.settings import Settings
from everturn_workers.temporal import TemporalWaker, connect

READY_SECONDS = 2.0

log = logging.getLogger(__name__)

WaitsFor = Callable[[], Awaitable[str | None]]
"""What the runtime waits for before it can work turns, in words, or None."""

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_app(
    store: Store,
    memories: SqlMemories,
    library: Library,
    events: EventLog,
    front: Front,
    settings: Settings,
    *,
    check: Check,
    waits_for: WaitsFor,
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
        """Store and Temporal answer; otherwise what is waited for."""
        missing = [
            what
            for what in await asyncio.gather(_store_waits(store, request), _within(waits_for()))
            if what
        ]
        if missing:
            return problem(503, f"Waits for {' and '.join(missing)}.")
        return Response(b'{"status":"ready"}', media_type="application/json")

    app.include_router(
        v1.router(
            Parts(
                store=store,
                memories=memories,
                library=library,
                events=events,
                front=front,
                settings=settings,
                check=check,
                streams=streams,
                invocations=Invocations(settings.home),
            )
        )
    )
    app.add_middleware(Guard, settings=settings)
    return app


async def _within(asked: Awaitable[str | None]) -> str | None:
    """What is waited for; an answer that does not come in time is something to wait for too."""
    try:
        return await asyncio.wait_for(asked, READY_SECONDS)
    except TimeoutError:
        return f"an answer within {READY_SECONDS:g} s"


async def _store_waits(store: Store, request: Request) -> str | None:
    try:
        await asyncio.wait_for(store.sessions(authorize(request), 1, None), READY_SECONDS)
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
    return Checked(loaded.working_dir, spec.agent.folder or loaded.settings.folders.kind)


def build(settings: Settings, runtime: Runtime, waker: TemporalWaker) -> FastAPI:
    """The application on what this process has opened."""
    return create_app(
        runtime.store,
        runtime.memories,
        runtime.library,
        runtime.events,
        Front(runtime.store, waker),
        settings,
        check=check,
        waits_for=waker.waits_for,
    )


def serve(settings: Settings) -> None:
    """Run the API until SIGTERM or SIGINT; `ready URL` on stdout once it accepts connections."""
    demand_key(settings)
    log_to_stderr(settings.log_level)
    asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    with listening(settings.host, settings.port) as listener:
        async with open_runtime(settings) as runtime:
            # Lazily: messages are accepted while the Temporal server is away.
            waker = TemporalWaker(await connect(settings, lazy=True), settings)
            await serve_app(build(settings, runtime, waker), settings, listener)


async def serve_app(app: FastAPI, settings: Settings, listener: socket.socket) -> None:
    config = uvicorn.Config(
        app,
        log_level="debug" if settings.log_level == "debug" else "warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
        timeout_keep_alive=30,
    )
    await _Server(config, app.state.streams, settings.host).serve(sockets=[listener])


class _Server(uvicorn.Server):
    """Says when it is ready, and ends its streams before it waits for open requests."""

    def __init__(self, config: uvicorn.Config, streams: Streams, host: str) -> None:
        super().__init__(config)
        self._streams = streams
        self._host = host
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started and sockets:
            shown = f"[{self._host}]" if ":" in self._host else self._host
            print(f"ready http://{shown}:{sockets[0].getsockname()[1]}", flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # A second Ctrl-C must not cut off what is being committed; SIGKILL always can.
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._streams.close)
