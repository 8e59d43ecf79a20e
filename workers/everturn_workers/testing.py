"""Agents under test: real turns in the test's own process, before a model that the test wrote.

Everything is the real thing but the model: store, tools, workflow, and a Temporal server.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from pydantic import BaseModel

from everturn.agents import Agent, Candidate
from everturn.context.compose import Context
from everturn.events import Event
from everturn.messages import AssistantMessage, ToolMessage, UserMessage, user_text
from everturn.session import OutcomeKind, SessionKey
from everturn_activities.call_checkpoints import CallCheckpoints
from everturn_activities.gateways.scripted import ScriptedGateway, ScriptedReply, calls, says
from everturn_activities.governor import Route
from everturn_activities.store import Inbound, SessionSettings
from everturn_activities.workspace import load
from everturn_activities.workspaces import Workspaces
from everturn_workers import fetch
from everturn_workers.front import Front
from everturn_workers.home import prepare
from everturn_workers.runtime import Runtime, open_runtime
from everturn_workers.server import start_server
from everturn_workers.settings import Settings
from everturn_workers.temporal import TemporalWaker, connect
from everturn_workers.worker import running_worker

__all__ = ["Result", "Workbench", "calls", "says", "server", "workbench"]

SECONDS = 60.0

Answer = TypeVar("Answer", bound=BaseModel)


@dataclass(frozen=True)
class Result:
    """What became of a turn: its outcome, what it said at last, all that was said in its session
    so far, and the turn's events."""

    outcome: OutcomeKind
    reason: str | None
    text: str
    messages: tuple[UserMessage | AssistantMessage | ToolMessage, ...]
    events: tuple[Event, ...]

    def answer(self, kind: type[Answer]) -> Answer:
        """The answer of an agent with `output`; raises pydantic's ValidationError."""
        return kind.model_validate_json(self.text)

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools that were called, in order."""
        return tuple(
            call.name
            for message in self.messages
            if isinstance(message, AssistantMessage)
            for call in message.tool_calls
        )


class Workbench:
    """A worker of one workspace. `model` answers its turns, and `model.requests` is what it
    was asked."""

    def __init__(self, runtime: Runtime, front: Front, workspace: Path, model: ScriptedGateway):
        self.model = model
        self._runtime = runtime
        self._front = front
        self._workspace = workspace
        # On a shared server, sessions of one name must not be taken for each other's.
        self._tenant = f"test-{uuid4().hex}"

    async def run(
        self,
        text: str,
        *,
        session: str | None = None,
        agent: str | None = None,
        seconds: float = SECONDS,
    ) -> Result:
        """Send a message and work its turn to the end, in a new session where none is named.

        Raises TimeoutError where that takes longer than `seconds`.
        """
        key = SessionKey(self._tenant, session or uuid4().hex)
        folder = load(self._workspace)
        await self._runtime.store.create_session(
            key, SessionSettings(str(folder.path), str(folder.working_dir))
        )
        message = Inbound(uuid4().hex, "message", user_text(text), agent=agent)
        try:
            async with asyncio.timeout(seconds):
                accepted = await self._front.accept(key, message)
                epoch, seq = (int(part) for part in accepted.cursor.split("."))
                events = await self._worked(key, message.id, (epoch, seq))
        except TimeoutError:
            raise TimeoutError(
                f"The turn of session {key.session} did not end within {seconds:g} s."
            ) from None
        told = await self._runtime.store.messages(key, 0, 1_000_000)
        end = events[-1].body
        return Result(
            end["outcome"],
            end["reason"],
            end["text"],
            tuple(view.message for view in told),
            tuple(events),
        )

    async def _worked(self, key: SessionKey, message: str, after: tuple[int, int]) -> list[Event]:
        """The events of the turn that works `message`."""
        seen: list[Event] = []
        turn = None
        async for batch in self._runtime.events.watch(key, after):
            for event in batch:
                seen.append(event)
                if event.type == "message_admitted" and event.body["message_id"] == message:
                    turn = event.turn
                if event.type == "turn_finished" and event.turn == turn:
                    return [one for one in seen if one.turn == turn]
        raise AssertionError("a session's events have no end")


@asynccontextmanager
async def server() -> AsyncIterator[str]:
    """A Temporal server of its own; yields its address. Several workbenches can share it."""
    with tempfile.TemporaryDirectory(prefix="everturn-server-") as folder:
        binary = fetch.fetch(lambda line: print(line, file=sys.stderr))
        started = await start_server(binary, prepare(Path(folder)))
        try:
            yield started.address
        finally:
            await started.stop()


@asynccontextmanager
async def workbench(
    workspace: Path | str, *replies: ScriptedReply, address: str | None = None
) -> AsyncIterator[Workbench]:
    """Work the turns of the folder `workspace` with a model that gives `replies`, in order and
    from the first again with each message.

    Starts a Temporal server for the block where `address` names none.
    """
    model = ScriptedGateway(*replies)
    async with AsyncExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="everturn-test-"))
        address = address or await stack.enter_async_context(server())
        settings = Settings(
            home=Path(home), temporal_address=address, task_queue=f"test-{uuid4().hex}"
        )
        runtime = await stack.enter_async_context(open_runtime(settings))
        client = await connect(settings)
        checkpoints = CallCheckpoints(runtime.checkpoints)
        folders = Workspaces(services=runtime.services, checkpoints=checkpoints)
        gateways = _OneModel(model)
        await stack.enter_async_context(
            running_worker(client, runtime, settings, gateways, folders, folders)
        )
        front = Front(runtime.store, TemporalWaker(client, settings))
        yield Workbench(runtime, front, Path(workspace), model)


@dataclass(frozen=True)
class _OneModel:
    model: ScriptedGateway

    def for_context(self, context: Context) -> ScriptedGateway:
        return self.model

    def left_out(self, agent: Agent) -> str | None:
        return None

    def route(self, candidate: Candidate) -> Route:
        return Route("scripted", "scripted", candidate.model)
