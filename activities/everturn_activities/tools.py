"""run_tools: the calls of one step, each run as its effect allows."""

import asyncio
import functools
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from temporalio import activity

from everturn.agents import AgentSpec, ToolSpec
from everturn.context.untrusted import as_data, neutral
from everturn.errors import OwnerAlive, TurnCancelled, UsageError
from everturn.hooks import Hook
from everturn.messages import ToolResult
from everturn.session import Approved, RunTools, SessionKey, ToolsDone
from everturn.tools import RESPONSE, Tool, ToolContext
from everturn_activities import outcomes
from everturn_activities.calling import caller
from everturn_activities.capped import READ_MORE, capped, with_way_on
from everturn_activities.flights import CancelWatch, Flights
from everturn_activities.heartbeat import heartbeating
from everturn_activities.hooks import HookRan
from everturn_activities.mcp.homes import Homes
from everturn_activities.placement import Placements
from everturn_activities.store import (
    CompletedTool,
    Question,
    Store,
    StoredCall,
    ToolInterrupted,
    ToolStarted,
)
from everturn_activities.tool_output import UNTIL_THEN, ToolOutput
from everturn_activities.toolbox import (
    ToolOutcome,
    is_left_running,
    unknown_tool,
    withheld_tool,
    wrong_arguments,
)

OWNER_GRACE_SECONDS = 10.0
"""How long past its time-out a call of a paused worker is waited for."""

ARGUMENTS_MAX = 2_000

UNKNOWN_OUTCOME = (
    "The outcome of this call is unknown: the process that ran it ended before it could"
    " report, so it may or may not have taken effect. It was not run again. Find out before"
    " you repeat it."
)
TOO_OFTEN = (
    "The call was begun {times} times and never ended: its worker was lost each time. It is"
    " not run again; it may be what ends the worker."
)
CANCELLED = "The call was cancelled with its turn."
LEFT_RUNNING = (
    "The call is no longer waited for, as its turn was cancelled; it could not be ended and"
    " may still take effect."
)


class Ran(Protocol):
    @property
    def text(self) -> str: ...
    @property
    def failed(self) -> bool: ...
    @property
    def whole(self) -> str | None: ...


class Toolbox(Protocol):
    """Finds a turn's tools and runs them; whatever a tool does wrong is a failed result."""

    def tool(self, spec: AgentSpec, name: str) -> Tool | None: ...
    def know(self, spec: AgentSpec) -> None:
        """Learn what may not be said in a turn that runs under `spec`."""
        ...

    def context(
        self, spec: AgentSpec, key: SessionKey, turn: int, step: int, index: int, attempt: int
    ) -> ToolContext: ...
    async def call(
        self,
        tool: Tool,
        spec: ToolSpec,
        arguments: dict[str, Any],
        malformed: str | None,
        context: ToolContext,
    ) -> Ran: ...
    async def verify(self, tool: Tool, spec: ToolSpec, context: ToolContext) -> Ran | None: ...
    async def preview(
        self, tool: Tool, spec: ToolSpec, arguments: dict[str, Any], context: ToolContext
    ) -> str | None:
        """What a call would do, as its tool tells; None where it does not."""
        ...

    async def run_hook(self, spec: AgentSpec, hook: Hook, stdin: bytes | None = None) -> HookRan:
        """What a hook said that was given `stdin` to read; ToolFailed where it does not end."""
        ...


class ToolActivities:
    def __init__(
        self,
        store: Store,
        toolbox: Toolbox,
        placements: Placements,
        watch: CancelWatch,
        worker: str,
        is_alive: Callable[[str], Awaitable[bool]],
        homes: Homes | None = None,
        is_elsewhere: Callable[[str], bool] = bool,
    ) -> None:
        """`is_elsewhere` says whether a home is not this worker's."""
        self._is_elsewhere = is_elsewhere
        self._store = store
        self._homes = homes
        self._toolbox = toolbox
        self._placements = placements
        self._watch = watch
        self._worker = worker
        self._is_alive = is_alive
        self._flights = Flights()

    @activity.defn
    async def run_tools(self, request: RunTools) -> ToolsDone:
        """The calls of a step, as an activity of their own."""
        if activity.info().is_local and self._is_elsewhere(request.home):
            return ToolsDone(0, 0, elsewhere=True)
        async with heartbeating():
            return await self.run(request)

    @activity.defn
    async def ask_approvals(self, request: RunTools) -> Approved:
        """Ask a person about the calls of a step that need leave; where all stand then."""
        async with heartbeating():
            key = SessionKey(request.tenant, request.session)
            spec = await self._store.spec(key, request.turn)
            stored = await self._store.tool_calls(key, request.turn, request.step)
            questions, passed = [], []
            for call in stored:
                if call.result is not None or not call.asks:
                    continue
                if self.refusal(spec, call) is not None:
                    passed.append(call.index)
                else:
                    described = spec.tool(call.name)
                    if described is not None and described.is_question:
                        questions.append(Question(call, None, "question"))
                        continue
                    preview = await self._preview(request, key, spec, call)
                    questions.append(Question(call, preview))
            return await self._store.ask_approvals(request, questions, passed)

    @activity.defn
    async def check_approvals(self, request: RunTools) -> Approved:
        return await self._store.check_approvals(request)

    async def _preview(
        self, request: RunTools, key: SessionKey, spec: AgentSpec, call: StoredCall
    ) -> str | None:
        tool, described = self._found(spec, call), spec.tool(call.name)
        assert described is not None
        assert not isinstance(tool, str)
        context = self._toolbox.context(spec, key, request.turn, request.step, call.index, 1)
        return await self._toolbox.preview(tool, described, call.arguments, context)

    async def run(self, request: RunTools) -> ToolsDone:
        """Run the calls that are not done yet, together, and journal their results."""
        call = (
            request.tenant,
            request.session,
            request.turn,
            request.step,
            tuple(request.indexes),
        )
        return await self._flights.join(call, lambda: self._run(request))

    async def _run(self, request: RunTools) -> ToolsDone:
        key = SessionKey(request.tenant, request.session)
        spec = await self._store.spec(key, request.turn)
        # Each of many queued calls reads its own row alone.
        ends = (min(request.indexes), max(request.indexes))
        stored = await self._store.tool_calls(key, request.turn, request.step, *ends)
        calls = [call for call in stored if call.index in request.indexes]
        results = [call.result for call in calls if call.result is not None]
        # One that waits for leave or its hooks does not run, whoever asks for it.
        waiting = [call for call in calls if call.result is None and not call.waits]
        inline = activity.info().is_local
        plain = [call for call in waiting if inline and self._may_repeat(spec, call)]
        journaled = [call for call in waiting if call not in plain]
        results += await self._run_plain(request, key, spec, plain) if plain else []
        results += await asyncio.gather(
            *(self._run_journaled(request, key, spec, call) for call in journaled)
        )
        responded = any(result.name == RESPONSE and not result.failed for result in results)
        return ToolsDone(len(results), sum(result.failed for result in results), responded)

    def _may_repeat(self, spec: AgentSpec, call: StoredCall) -> bool:
        """Whether a call can do without an intent row: running it again does no harm."""
        tool = spec.tool(call.name)
        return call.attempt == 0 and (tool is None or tool.effect != "once")

    async def _run_plain(
        self, request: RunTools, key: SessionKey, spec: AgentSpec, calls: Sequence[StoredCall]
    ) -> list[ToolResult]:
        """Inline calls without an intent row, journaled in one transaction."""
        done = await asyncio.gather(
            *(self._execute(request, key, spec, call, attempt=0) for call in calls)
        )
        await self._store.complete_tools(key, request.turn, request.step, request.epoch, done)
        return [completed.result for completed in done]

    async def _run_journaled(
        self, request: RunTools, key: SessionKey, spec: AgentSpec, call: StoredCall
    ) -> ToolResult:
        if call.attempt == 0 and (refusal := self.refusal(spec, call)) is not None:
            # It cannot run, so there is no effect that an intent would have to tell of.
            completed = CompletedTool(call.index, 0, _result(call, refusal, True), 0.0)
            await self._store.complete_tools(
                key, request.turn, request.step, request.epoch, [completed]
            )
            return completed.result
        tool = spec.tool(call.name)
        if self._homes is not None and tool is not None:
            # Before the intent: what another worker must run does not begin here.
            await self._homes.settle(key, spec, tool)
        once = tool is not None and tool.effect == "once"
        begun = await self._store.begin_tool(
            key,
            request.turn,
            request.step,
            call.index,
            request.epoch,
            caller(self._worker),
            once,
        )
        if isinstance(begun, ToolResult):
            return begun
        if isinstance(begun, ToolStarted):
            completed = await self._execute(request, key, spec, call, begun.attempt)
        else:
            completed = await self._resolve(request, key, spec, begun)
        await self._store.complete_tools(
            key, request.turn, request.step, request.epoch, [completed]
        )
        return completed.result

    async def _execute(
        self, request: RunTools, key: SessionKey, spec: AgentSpec, call: StoredCall, attempt: int
    ) -> CompletedTool:
        started = time.monotonic()
        ran = await self._outcome(request, key, spec, call, attempt)
        seconds = time.monotonic() - started
        self._placements.record("tool", call.name, seconds)
        text = ran.text
        if ran.whole is not None and READ_MORE in spec.runs:
            place = f"{request.turn}.{request.step}.{call.index}"
            text = with_way_on(text, place)
        text = await self._framed(request, key, spec, call, text)
        result = _result(call, text, ran.failed)
        return CompletedTool(call.index, attempt, result, seconds, ran.whole)

    async def _framed(
        self, request: RunTools, key: SessionKey, spec: AgentSpec, call: StoredCall, text: str
    ) -> str:
        """What a tool has said, as data where strangers write that."""
        tool = spec.tool(call.name)
        if tool is None or not tool.untrusted:
            return text
        boundary = await self._store.boundary(key, request.turn)
        return as_data(text, call.name, boundary)

    async def _outcome(
        self, request: RunTools, key: SessionKey, spec: AgentSpec, call: StoredCall, attempt: int
    ) -> Ran:
        tool = self._found(spec, call)
        if isinstance(tool, str):
            return ToolOutcome(tool, failed=True)
        described = spec.tool(call.name)
        assert described is not None
        context = self._toolbox.context(spec, key, request.turn, request.step, call.index, attempt)
        if described.quick:
            return await self._toolbox.call(
                tool, described, call.arguments, call.malformed, context
            )
        tell = functools.partial(
            self._store.tell_output, key, request.turn, request.step, call.index, attempt
        )
        # A call without an intent row has not been told of yet.
        output = ToolOutput(tell if attempt else None, context.scrubber)
        context = replace(context, progress=output.add)
        running = self._toolbox.call(tool, described, call.arguments, call.malformed, context)
        try:
            return await self._watch.guard(key, request.turn, running)
        except TurnCancelled:
            said = output.text()
            until_then = f" {UNTIL_THEN}\n{said}" if said else ""
            why = LEFT_RUNNING if is_left_running(tool) else CANCELLED
            return ToolOutcome(why + until_then, failed=True)
        finally:
            await output.stop()

    def refusal(self, spec: AgentSpec, call: StoredCall) -> str | None:
        """Why a call cannot run at all, or None."""
        tool = self._found(spec, call)
        if isinstance(tool, str):
            return tool
        described = spec.tool(call.name)
        assert described is not None
        return wrong_arguments(described, call.arguments, call.malformed)

    def _found(self, spec: AgentSpec, call: StoredCall) -> Tool | str:
        """The tool that a call names, or why there is none."""
        if spec.tool(call.name) is None:
            if call.name in spec.withheld:
                return withheld_tool(call.name, spec.agent)
            return unknown_tool(call.name)
        try:
            found = self._toolbox.tool(spec, call.name)
        except UsageError as error:
            return f"Tool {call.name} cannot run: {error}"
        if found is None:
            return f"Tool {call.name} is no longer in the workspace {spec.workspace}."
        return found

    async def _asks(self, request: RunTools, call: StoredCall) -> bool:
        """Whether the call waits for a person's answer in its midst, when its time stands still."""
        at = ("question", request.turn, request.step, call.name)
        return any(
            (one.kind, one.turn, one.step, one.tool) == at
            for one in await self._store.approvals(request.tenant, request.session)
        )

    async def _resolve(
        self, request: RunTools, key: SessionKey, spec: AgentSpec, begun: ToolInterrupted
    ) -> CompletedTool:
        """What became of a call that began, left no result and does not start again.

        That is a `once` call, or one that was cut off too often. While its owner lives it
        may still report, so it is waited for; raises OwnerAlive.
        """
        call = begun.call
        described = spec.tool(call.name)
        assert described is not None
        # By one clock for all: each worker has its own.
        elapsed = begun.seconds
        if (
            call.worker is not None
            and call.worker != self._worker
            and await self._is_alive(call.worker)
            and (
                elapsed < described.timeout_seconds + OWNER_GRACE_SECONDS
                or await self._asks(request, call)
            )
        ):
            raise OwnerAlive(f"Call {call.index} is under way in worker {call.worker}.")
        if described.effect != "once":
            text = TOO_OFTEN.format(times=begun.attempt)
            return CompletedTool(call.index, begun.attempt, _result(call, text, True), elapsed)
        tool = self._found(spec, call)
        if not isinstance(tool, str) and tool.verify is not None:
            context = self._toolbox.context(
                spec, key, request.turn, request.step, call.index, begun.attempt
            )
            found = await self._toolbox.verify(tool, described, context)
            if found is not None:
                text = await self._framed(request, key, spec, call, found.text)
                result = _result(call, text, found.failed)
                return CompletedTool(call.index, begun.attempt, result, elapsed)
        if spec.agent.approvals.on_unknown == "ask":
            said = await outcomes.outcome_of(self._store, request, key, spec, begun)
            if said == outcomes.AGAIN:
                return await self._run_again(request, key, spec, begun)
            if said == outcomes.HAPPENED:
                result = _result(call, outcomes.TOOK_EFFECT, False)
                return CompletedTool(call.index, begun.attempt, result, elapsed)
        return CompletedTool(
            call.index, begun.attempt, _result(call, UNKNOWN_OUTCOME, True), elapsed
        )

    async def _run_again(
        self, request: RunTools, key: SessionKey, spec: AgentSpec, before: ToolInterrupted
    ) -> CompletedTool:
        """Begin a `once` call anew, as a person says, unless somebody else was quicker."""
        at = (request.turn, request.step, before.call.index, request.epoch, caller(self._worker))
        begun = await self._store.begin_tool(key, *at, True, before.attempt)
        if not isinstance(begun, ToolStarted):
            raise OwnerAlive(f"Call {before.call.index} was begun again meanwhile.")
        return await self._execute(request, key, spec, before.call, begun.attempt)


def _result(call: StoredCall, text: str, failed: bool) -> ToolResult:
    if call.edited:
        arguments = capped(json.dumps(call.arguments, ensure_ascii=False), ARGUMENTS_MAX)
        text = f"A person changed the arguments of this call to {arguments}.\n{text}"
    return ToolResult(call_id=call.call_id, name=call.name, text=neutral(text), failed=failed)
