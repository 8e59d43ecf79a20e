"""A real API on a real store and a real workspace, and turns that are worked by hand."""

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import uvicorn

from everturn.agents import Agent, AgentSpec
from everturn.errors import RuntimeUnavailable
from everturn.events import Draft
from everturn.messages import AssistantMessage, Text
from everturn.session import (
    BeginTurn,
    CheckInbox,
    ContextHead,
    FinishTurn,
    OutcomeKind,
    PrepareStep,
    SessionKey,
    StepHead,
    TurnHead,
)
from everturn_activities.event_log.sql import SqlEventLog
from everturn_activities.gateways import Usage
from everturn_activities.knowledge import Embedder
from everturn_activities.knowledge.library import Library
from everturn_activities.knowledge.sqlite import SqliteIndex
from everturn_activities.own_folders import own_path
from everturn_activities.starter import create
from everturn_activities.store import Caller, CallStarted, Wake
from everturn_activities.store.database import SqliteDatabase
from everturn_activities.store.knowledge_bases import SqlKnowledgeBases
from everturn_activities.store.schedules import Told
from everturn_activities.store.sql import SqlStore
from everturn_activities.store.sql_memories import SqlMemories
from everturn_activities.store.sql_schedules import SqlSchedules
from everturn_activities.store.sql_swarms import SqlSwarms
from everturn_activities.store.sql_tasks import SqlTasks
from everturn_activities.store.workers import SqlWorkers
from everturn_activities.wakeups import WakeUps
from everturn_workers.api import WaitsFor, check, create_app
from everturn_workers.doors.streams import Streams
from everturn_workers.front import Front
from everturn_workers.kept_schedules import KeptSchedules
from everturn_workers.settings import Settings

WORKER = Caller(worker="w", nonce="n")
SPEC = AgentSpec(agent=Agent(), workspace="/", working_dir="/")


@dataclass
class RecordingWaker:
    woken: list[Wake] = field(default_factory=list)
    schedules: dict[str, Told] = field(default_factory=dict)
    swarms: list[SessionKey] = field(default_factory=list)
    reachable: bool = True
    busy: asyncio.Event | None = None
    """Set it to let wake-ups through."""

    async def keep_schedule(self, told: Told) -> None:
        if not self.reachable:
            raise RuntimeUnavailable("Temporal is away.")
        self.schedules[told.schedule_id] = told

    async def schedule_ids(self) -> set[str]:
        return set(self.schedules)

    async def wake(self, wake: Wake) -> None:
        if not self.reachable:
            raise RuntimeUnavailable("Temporal is away.")
        if self.busy is not None:
            await self.busy.wait()
        self.woken.append(wake)

    async def wake_swarm(self, key: SessionKey) -> None:
        if not self.reachable:
            raise RuntimeUnavailable("Temporal is away.")
        self.swarms.append(key)


class Runtime:
    """A store with its log, and a hand that works turns in place of a worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.waker = RecordingWaker()
        sockets = folder / "s"
        sockets.mkdir()
        self.wakeups = WakeUps(sockets)
        self.database = SqliteDatabase(folder / "everturn.db", self.wakeups.tell)
        self.store = SqlStore(self.database, lambda message: 1)
        self.memories = SqlMemories(self.database, lambda text: len(text.split()))
        self.tasks = SqlTasks(self.database, lambda message: 1)
        self.schedules = SqlSchedules(self.database, lambda message: 1, folder)
        self.swarms = SqlSwarms(self.database, lambda message: 1, partial(own_path, folder))
        self.library = Library(
            SqlKnowledgeBases(self.database),
            SqliteIndex(folder / "knowledge.db"),
            lambda tenant, workspace: self.embedder,
        )
        self.workers = SqlWorkers(self.database)
        self.embedder: Embedder | None = None
        self.log = SqlEventLog(self.database, self.wakeups)
        self.workspace = folder / "workspace"
        create(self.workspace)
        self.missing: str | None = None
        self.streams_wait: WaitsFor | None = None
        self._runs = 0

    def settings(self, **given: object) -> Settings:
        return Settings(home=self.folder, workspace=self.workspace, **given)  # type: ignore[arg-type]

    def app(self, **given: object):  # type: ignore[no-untyped-def]
        async def waits_for() -> str | None:
            return self.missing

        return create_app(
            self.store,
            self.memories,
            self.tasks,
            KeptSchedules(self.schedules, self.waker),
            self.swarms,
            self.library,
            self.workers,
            self.log,
            Front(self.store, self.waker),
            self.settings(**given),
            check=check,
            waits_for=waits_for,
            streams_wait=self.streams_wait,
        )

    async def begin(self, session: str, spec: AgentSpec = SPEC) -> TurnHead:
        key = SessionKey("default", session)
        self._runs += 1
        request = BeginTurn("default", session, key.workflow_id, f"run-{self._runs}", None)
        head = await self.store.begin_turn(request, spec)
        assert isinstance(head, TurnHead)
        return head

    async def prepared(self, head: TurnHead) -> ContextHead:
        request = PrepareStep("default", head.session, head.turn, head.step + 1, head.epoch)
        return await self.store.prepare_step(request, "queued")

    async def looked(self, head: TurnHead) -> None:
        """The turn looks into its inbox: whoever writes next has to wake it."""
        await self.store.check_inbox(CheckInbox("default", head.session, head.turn, 0))

    async def begin_step(self, head: TurnHead) -> tuple[ContextHead, int]:
        context = await self.prepared(head)
        return context, await self.begin_attempt(context)

    async def begin_attempt(self, context: ContextHead) -> int:
        # Each attempt is an execution of its own.
        caller = replace(WORKER, nonce=secrets.token_hex(4))
        started = await self.store.begin_model_call(context, "m", caller)
        assert isinstance(started, CallStarted)
        return started.attempt

    async def stream(self, context: ContextHead, attempt: int, *texts: str) -> None:
        key = SessionKey("default", context.session)
        for number, text in enumerate(texts):
            draft = Draft(
                id=f"{context.turn}/{context.step}/{attempt}/{number}",
                type="text_delta",
                turn=context.turn,
                step=context.step,
                attempt=attempt,
                body={"text": text},
            )
            await self.log.append_deltas(key, context.turn, context.step, attempt, [draft])

    async def finish(
        self,
        head: TurnHead,
        context: ContextHead,
        attempt: int,
        text: str,
        cost_usd: float | None = 0.5,
    ) -> None:
        await self.store.complete_model_call(
            context,
            attempt,
            AssistantMessage(parts=(Text(text=text),)),
            "end_turn",
            Usage(input_tokens=7, output_tokens=3),
            cost_usd,
            StepHead(context.step, "end_turn"),
            [],
        )
        await self.end(head, context.step, "completed", None)

    async def fail(self, session: str, reason: str) -> None:
        """A turn that fails before its first step."""
        await self.end(await self.begin(session), 0, "failed", reason)

    async def end(
        self, head: TurnHead, step: int, outcome: OutcomeKind, reason: str | None
    ) -> None:
        workflow_id = SessionKey("default", head.session).workflow_id
        await self.store.finish_turn(
            FinishTurn(
                "default",
                head.session,
                workflow_id,
                f"run-{self._runs}",
                head.turn,
                head.epoch,
                step,
                outcome,
                reason,
            )
        )

    async def work(self, session: str, *texts: str, cost_usd: float | None = 0.5) -> TurnHead:
        """A whole turn of one step that streams `texts`."""
        head = await self.begin(session)
        context, attempt = await self.begin_step(head)
        await self.stream(context, attempt, *texts)
        await self.finish(head, context, attempt, "".join(texts), cost_usd)
        return head

    @asynccontextmanager
    async def served(self, app=None, port: int = 0) -> AsyncIterator["Served"]:  # type: ignore[no-untyped-def]
        """The API on a free port."""
        app = app or self.app()
        listener = socket.create_server(("127.0.0.1", port))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        server.capture_signals = _no_signals  # type: ignore[method-assign]
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            yield Served(url, app.state.streams)
        finally:
            app.state.streams.close()
            server.should_exit = True
            await serving


@dataclass
class Served:
    url: str
    streams: Streams


class _no_signals:  # noqa: N801
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...
