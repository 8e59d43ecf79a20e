"""before_calls, after_calls: the hooks beside a step's tool calls, one after the other."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from temporalio import activity

from everturn.agents import AgentSpec
from everturn.context.untrusted import neutral
from everturn.errors import TurnCancelled
from everturn.hooks import HookMoment, ToolHook
from everturn.session import Gated, RunTools, SessionKey
from everturn_activities.flights import CancelWatch, Flights
from everturn_activities.heartbeat import heartbeating
from everturn_activities.hook_running import HookRunner, Placed
from everturn_activities.hooks import HookRan
from everturn_activities.store import HookEnd, Store, StoredCall
from everturn_activities.store.hook_runs import beside

BLOCKED = "The call did not run: a hook of the operator's refused it: {reason}"
NO_REASON = "it gave no reason."

Refusal = Callable[[AgentSpec, StoredCall], str | None]
"""Why a call cannot run at all, or None."""


class CallHookActivities:
    def __init__(
        self, store: Store, runner: HookRunner, refusal: Refusal, watch: CancelWatch
    ) -> None:
        self._store = store
        self._runner = runner
        self._refusal = refusal
        self._watch = watch
        self._flights = Flights()

    @activity.defn
    async def before_calls(self, request: RunTools) -> Gated:
        """Ask the hooks about the calls of a step, in order; which of all are answered then."""
        async with heartbeating():
            call = (request.tenant, request.session, request.turn, request.step, "before")
            with suppress(TurnCancelled):
                return await self._flights.join(call, lambda: self._before(request))
            return Gated()

    async def _before(self, request: RunTools) -> Gated:
        key = SessionKey(request.tenant, request.session)
        spec = await self._store.spec(key, request.turn)
        passed, blocked = [], {}
        for call in await self._store.tool_calls(key, request.turn, request.step):
            if call.result is not None or not call.gated:
                continue
            reason = None
            if self._refusal(spec, call) is None:
                reason = await self._blocked(request, spec, call)
            if reason is None:
                passed.append(call.index)
            else:
                blocked[call.index] = BLOCKED.format(reason=reason)
        return await self._store.settle_gates(request, passed, blocked)

    async def _blocked(self, request: RunTools, spec: AgentSpec, call: StoredCall) -> str | None:
        """Why the call may not run, as the first hook says that refuses it."""
        described = spec.tool(call.name)
        assert described is not None
        for hook in spec.hooks_before(described):
            at = _beside(request, call, hook, "PreToolUse")
            end = await self._end_of(at, request, spec, call)
            if at.refused_by(end):
                return neutral(end.output.strip()) or NO_REASON
        return None

    @activity.defn
    async def after_calls(self, request: RunTools) -> None:
        """Tell the hooks what came of the calls of a step, and keep what they say to it."""
        async with heartbeating():
            call = (request.tenant, request.session, request.turn, request.step, "after")
            with suppress(TurnCancelled):
                await self._flights.join(call, lambda: self._after(request))

    async def _after(self, request: RunTools) -> None:
        key = SessionKey(request.tenant, request.session)
        spec = await self._store.spec(key, request.turn)
        notes: dict[int, str] = {}
        for call in await self._store.tool_calls(key, request.turn, request.step):
            if call.result is None or not call.followed:
                continue
            said = []
            described = spec.tool(call.name)
            if described is not None and self._refusal(spec, call) is None:
                for hook in spec.hooks_after(described):
                    at = _beside(request, call, hook, "PostToolUse")
                    end = await self._end_of(at, request, spec, call)
                    said.append(end.output.strip() if end.exit_code == 0 else "")
            notes[call.index] = neutral("\n".join(text for text in said if text))
        await self._store.note_results(request, notes)

    async def _end_of(
        self, at: Placed, request: RunTools, spec: AgentSpec, call: StoredCall
    ) -> HookEnd:
        def guard(running: Awaitable[HookRan]) -> Awaitable[HookRan]:
            return self._watch.guard(at.key, at.turn, running)

        return await self._runner.end_of(at, spec, _given(request, spec, call, at.moment), guard)


def _beside(request: RunTools, call: StoredCall, hook: ToolHook, moment: HookMoment) -> Placed:
    return Placed(
        key=SessionKey(request.tenant, request.session),
        turn=request.turn,
        epoch=request.epoch,
        hook=hook,
        moment=moment,
        place=beside(request.turn, request.step, call.index, moment, call.edited),
        step=request.step,
        about={"call_id": call.call_id, "index": call.index, "name": call.name},
    )


def _given(
    request: RunTools, spec: AgentSpec, call: StoredCall, moment: HookMoment
) -> dict[str, Any]:
    """What a hook beside a call reads on its stdin, as one JSON object."""
    described = spec.tool(call.name)
    given: dict[str, Any] = {
        "event": moment,
        "session": request.session,
        "turn": request.turn,
        "step": request.step,
        "index": call.index,
        "call_id": call.call_id,
        "agent": spec.agent.name,
        "tool": call.name,
        "runs": call.name if described is None else described.runs or call.name,
        "arguments": call.arguments,
        "edited": call.edited,
    }
    if call.result is not None:
        given["result"] = {"text": call.result.text, "failed": call.result.failed}
    return given
