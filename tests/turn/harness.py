"""A session worked by real workers on a real server, with a scripted model in process."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowFailureError

from everturn.agents import Agent, AgentSpec, Candidate
from everturn.events import Event
from everturn.memory import USER
from everturn.messages import AssistantMessage, ToolMessage, UserMessage, user_text
from everturn.profile import Profile
from everturn.session import Mode, SessionKey
from everturn.views import AcceptedView
from everturn_activities.call_checkpoints import CallCheckpoints
from everturn_activities.gateways import ModelGateway
from everturn_activities.gateways.scripted import Script, ScriptedGateway
from everturn_activities.governor import Route
from everturn_activities.sources import Sources
from everturn_activities.store import Assignment, Inbound, SessionSettings
from everturn_activities.workspaces import Workspaces
from everturn_workers.front import Front
from everturn_workers.runtime import Runtime, open_runtime
from everturn_workers.settings import Settings
from everturn_workers.temporal import TemporalWaker, connect
from everturn_workers.worker import noted_records, running_worker

_numbers = itertools.count()
# Only what hangs takes as long: machines stall for seconds.
SECONDS = 90.0


@dataclass
class OneGateway:
    gateway: ModelGateway

    def for_context(self, context: object) -> ModelGateway:
        return self.gateway

    def left_out(self, agent: Agent) -> str | None:
        return None

    def route(self, candidate: Candidate) -> Route:
        return Route("the-key", "the-provider", candidate.model)


class Profiled(Workspaces):
    """Workspaces whose every agent has this profile."""

    def __init__(self, profile: Profile) -> None:
        super().__init__()
        self._profile = profile

    def spec(self, assignment: Assignment) -> AgentSpec:
        return super().spec(assignment).model_copy(update={"profile": self._profile})


@dataclass
class Bench:
    """One home with a store, a workspace and a task queue of its own."""

    settings: Settings
    runtime: Runtime
    client: Client
    workspace: Path
    front: Front
    waker: TemporalWaker
    tenant: str
    sent: int = 0
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def key(self, name: str = "s") -> SessionKey:
        """Of a session of this test's own tenant: tests share a server, and a run that one
        leaves open must not be taken for another's."""
        return SessionKey(self.tenant, name)

    async def session(self, name: str = "s", user: str = USER) -> SessionKey:
        key, folder = self.key(name), str(self.workspace)
        await self.runtime.store.create_session(key, SessionSettings(folder, folder, user=user))
        return key

    async def send(
        self, key: SessionKey, text: str, mode: Mode = "queue", message_id: str | None = None
    ) -> AcceptedView:
        self.sent += 1
        inbound = Inbound(message_id or f"m{self.sent}", "message", user_text(text), mode)
        return await self.front.accept(key, inbound)

    async def cancel(self, key: SessionKey, turn: int | None = None) -> AcceptedView:
        self.sent += 1
        return await self.front.accept(key, Inbound(f"c{self.sent}", "cancel", target=turn))

    @asynccontextmanager
    async def worker(
        self,
        gateway: ModelGateway,
        workflows_cached: int = 0,
        profile: Profile | None = None,
        sources: Sources | None = None,
        **settings: Any,
    ) -> AsyncIterator[str]:
        """A worker that by default caches no workflow, so that each of its tasks is a replay.

        With `profile` all of its agents are composed by that one.
        """
        async with running_worker(
            self.client,
            self.runtime,
            self.settings.model_copy(update=settings),
            OneGateway(gateway),
            Workspaces(services=self.runtime.services) if profile is None else Profiled(profile),
            Workspaces(
                services=self.runtime.services,
                checkpoints=CallCheckpoints(
                    self.runtime.checkpoints, noted_records(self.runtime, self.settings)
                ),
            ),
            workflows_cached=workflows_cached,
            sources=sources,
        ) as running:
            yield running.instance
        await gateway.close()

    async def until(self, key: SessionKey, kind: str, turn: int | None = None) -> list[Event]:
        """The session's events up to the first of type `kind` (in `turn`)."""
        seen: list[Event] = []
        async with asyncio.timeout(SECONDS):
            async for batch in self.runtime.events.watch(key, (1, 0)):
                for event in batch:
                    seen.append(event)
                    if event.type == kind and turn in (None, event.turn):
                        return seen
        raise AssertionError

    async def events(self, key: SessionKey) -> list[Event]:
        return await self.runtime.events.read(key, (1, 0), 10_000)

    async def transcript(
        self, key: SessionKey
    ) -> list[UserMessage | AssistantMessage | ToolMessage]:
        return [view.message for view in await self.runtime.store.messages(key, 0, 10_000)]

    async def closed(self, key: SessionKey) -> None:
        """Wait until no run of the session's workflow is open."""
        async with asyncio.timeout(SECONDS):
            while (run_id := await self.waker.open_run(key.workflow_id)) is not None:
                handle = self.client.get_workflow_handle(key.workflow_id, run_id=run_id)
                with suppress(WorkflowFailureError):
                    await handle.result(follow_runs=True)


@asynccontextmanager
async def bench(address: str, home: Path, workspace: Path, **settings: Any) -> AsyncIterator[Bench]:
    number = next(_numbers)
    made = Settings(
        home=home,
        temporal_address=address,
        task_queue=f"test-{home.name}-{number}",
        **settings,
    )
    async with open_runtime(made) as runtime:
        client = await connect(made)
        waker = TemporalWaker(client, made)
        front = Front(runtime.store, waker)
        yield Bench(made, runtime, client, workspace, front, waker, f"tenant-{number}")


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait until something outside of this process, which tells nobody, `holds`."""
    async with asyncio.timeout(SECONDS):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def scripted(
    *replies: dict[str, Any], by_last_user: dict[str, Any] | None = None
) -> ScriptedGateway:
    return ScriptedGateway(
        Script.model_validate({"replies": replies, "by_last_user": by_last_user or {}})
    )


def calls(*names: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments} for name in names]}


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"text": text, **more}
