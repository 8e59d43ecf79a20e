"""A session's life told in short steps, straight against a store."""

import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from everturn.agents import Agent, AgentSpec
from everturn.events import Draft, Event
from everturn.messages import AssistantMessage, Text, ToolCall, ToolResult, user_text
from everturn.session import (
    BeginTurn,
    CheckInbox,
    ContextHead,
    Finished,
    FinishTurn,
    InboxHead,
    Mode,
    OutcomeKind,
    PrepareStep,
    SessionKey,
    StepHead,
    Stop,
    ToolHead,
    TurnHead,
)
from everturn_activities.event_log import EventLog
from everturn_activities.gateways import Usage
from everturn_activities.store import (
    Accepted,
    Caller,
    CallStarted,
    CompletedTool,
    Idle,
    Inbound,
    SpecNeeded,
    Store,
    TakeoverNeeded,
    ToolInterrupted,
    ToolStarted,
)

SPEC = AgentSpec(
    agent=Agent(model="openai/test", steps_max=5), workspace="/workspace", working_dir="/workspace"
)
ME = Caller("worker-1", "nonce-1", b"token-1")
_NONCES = itertools.count(2)


def count(message: object) -> int:
    return 7


def price(model: str, usage: Usage) -> float | None:
    """A dollar a thousand tokens."""
    return None if model == "openai/unpriced" else (usage.input_tokens + usage.output_tokens) / 1e3


def anew() -> Caller:
    """Another execution in the same worker."""
    return replace(ME, nonce=f"nonce-{next(_NONCES)}")


@dataclass
class Clock:
    """Seconds since 1970 that pass only when a test says so."""

    now: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Story:
    """One session of `store`."""

    store: Store
    events: EventLog
    clock: Clock
    key: SessionKey
    _ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    async def send(
        self, text: str = "hello", id_: str | None = None, mode: Mode = "queue", **more: str
    ) -> Accepted:
        name = id_ or f"m{next(self._ids)}"
        inbound = Inbound(name, "message", user_text(text), mode, **more)  # type: ignore[arg-type]
        return await self.store.accept(self.key, inbound)

    async def cancel(self, target: int | None = None, id_: str | None = None) -> Accepted:
        inbound = Inbound(id_ or f"c{next(self._ids)}", "cancel", target=target)
        return await self.store.accept(self.key, inbound)

    async def begin(
        self,
        run: str = "run-1",
        previous: str | None = None,
        closed: TakeoverNeeded | None = None,
        spec: AgentSpec | None = SPEC,
    ) -> TurnHead | TakeoverNeeded | Idle | SpecNeeded:
        request = BeginTurn(*self.key, self.key.workflow_id, run, previous)
        return await self.store.begin_turn(request, spec, closed)

    async def begun(self, run: str = "run-1", **more: object) -> TurnHead:
        head = await self.begin(run, **more)  # type: ignore[arg-type]
        assert isinstance(head, TurnHead), head
        return head

    async def check(self, turn: int, cursor: int = 0) -> InboxHead:
        return await self.store.check_inbox(CheckInbox(*self.key, turn, cursor))

    async def prepare(self, turn: TurnHead, step: int = 1) -> ContextHead:
        request = PrepareStep(*self.key, turn.turn, step, turn.epoch)
        return await self.store.prepare_step(request, "inline", SPEC.agent.model)

    async def start(self, context: ContextHead, caller: Caller | None = None) -> int:
        begun = await self.store.begin_model_call(context, SPEC.agent.model, caller or anew())
        assert isinstance(begun, CallStarted), begun
        return begun.attempt

    async def reply(
        self,
        context: ContextHead,
        attempt: int,
        text: str = "hi",
        calls: Sequence[str | ToolCall] = (),
        runs_max: int = 128,
        deltas: Sequence[Draft] = (),
        stop: Stop | None = None,
        cost_usd: float | None = 0.5,
        changing: frozenset[str] = frozenset(),
    ) -> StepHead:
        asked = [
            call if isinstance(call, ToolCall) else ToolCall(id=f"call-{index}", name=call)
            for index, call in enumerate(calls)
        ]
        message = AssistantMessage(parts=(*((Text(text=text),) if text else ()), *asked))
        heads = [ToolHead(i, one.name, "queued", 5.0) for i, one in enumerate(asked[:runs_max])]
        stop = stop or ("tool_use" if calls else "end_turn")
        return await self.store.complete_model_call(
            context,
            attempt,
            message,
            stop,
            Usage(input_tokens=3, output_tokens=2),
            cost_usd,
            StepHead(context.step, stop, heads),
            deltas,
            changing,
        )

    async def step(
        self, turn: TurnHead, step: int = 1, calls: Sequence[str | ToolCall] = ()
    ) -> ContextHead:
        """A whole model call."""
        context = await self.prepare(turn, step)
        await self.reply(context, await self.start(context), f"text of step {step}", calls)
        return context

    async def begin_tool(
        self, turn: TurnHead, index: int = 0, caller: Caller = ME, once: bool = False
    ) -> ToolStarted | ToolInterrupted | ToolResult:
        return await self.store.begin_tool(self.key, turn.turn, 1, index, turn.epoch, caller, once)

    async def end_tool(
        self,
        turn: TurnHead,
        index: int = 0,
        attempt: int = 1,
        text: str = "ok",
        step: int = 1,
        whole: str | None = None,
    ) -> None:
        result = ToolResult(call_id=f"call-{index}", name="tool", text=text)
        done = CompletedTool(index, attempt, result, 0.1, whole)
        await self.store.complete_tools(self.key, turn.turn, step, turn.epoch, [done])

    async def finish(
        self,
        turn: TurnHead,
        run: str = "run-1",
        outcome: OutcomeKind = "completed",
        step: int = 1,
        reason: str | None = None,
    ) -> Finished:
        request = FinishTurn(
            *self.key, self.key.workflow_id, run, turn.turn, turn.epoch, step, outcome, reason
        )
        return (await self.store.finish_turn(request)).finished

    async def told(self, *kinds: str) -> list[Event]:
        """The session's events, of `kinds` where given."""
        events = await self.events.read(self.key, (1, 0), 10_000)
        return [event for event in events if not kinds or event.type in kinds]

    async def transcript(self) -> list[str]:
        """Each message as `role: text`, tool results joined."""
        lines = []
        for view in await self.store.messages(self.key, 0, 10_000):
            message = view.message
            if message.role == "tool":
                text = ", ".join(f"{r.call_id}={r.text}" for r in message.results)
            else:
                text = "".join(part.text for part in message.parts if isinstance(part, Text))
            lines.append(f"{message.role}: {text}")
        return lines


def delta(text: str, number: int, attempt: int = 1, step: int = 1, turn: int = 1) -> Draft:
    return Draft(
        id=f"delta/{turn}/{step}/{attempt}/{number}",
        type="text_delta",
        turn=turn,
        step=step,
        attempt=attempt,
        body={"text": text},
    )


Open = Callable[[Path], AbstractAsyncContextManager[Story]]
"""Opens one more process's worth of store and log on a folder."""
