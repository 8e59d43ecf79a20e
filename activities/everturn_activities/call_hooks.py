"""before_calls, after_calls: the hooks beside a step's tool calls, one after the other.

A hook that was cut off with its worker is run again: what it does must bear that.
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from everturn.agents import AgentSpec
from everturn.context.untrusted import neutral
from everturn.errors import OwnerAlive, ToolFailed, TurnCancelled
from everturn.events import Draft
from everturn.hooks import BLOCKS, HookMoment, ToolHook
from everturn.session import Gated, RunTools, SessionKey
from everturn_activities.calling import caller
from everturn_activities.flights import CancelWatch, Flights
from everturn_activities.heartbeat import heartbeating
from everturn_activities.hooks import Command, HookRan, demand_over, not_run
from everturn_activities.store import HookEnd, HookInterrupted, Store, StoredCall
from everturn_activities.store.hook_runs import beside

ATTEMPTS_MAX = 5
"""Beginnings of a hook that left no end: it may be what ends the workers."""

TEXT_CHARACTERS = 500
"""Of what a hook said that watchers are told."""

BLOCKED = "The call did not run: a hook of the operator's refused it: {reason}"
NO_REASON = "it gave no reason."
FAILED = "The hook {hook} ended with exit code {code}, which is neither 0 nor 2."
TOO_OFTEN = "The hook {hook} was begun {times} times, and its worker was lost each time."

Refusal = Callable[[AgentSpec, StoredCall], str | None]
"""Why a call cannot run at all, or None."""


class CallHookActivities:
    def __init__(
        self,
        store: Store,
        command: Command,
        refusal: Refusal,
        watch: CancelWatch,
        worker: str,
        is_alive: Callable[[str], bool],
    ) -> None:
        self._store = store
        self._command = command
        self._refusal = refusal
        self._watch = watch
        self._worker = worker
        self._is_alive = is_alive
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
                reason = await self._blocked(request, key, spec, call)
            if reason is None:
                passed.append(call.index)
            else:
                blocked[call.index] = BLOCKED.format(reason=reason)
        return await self._store.settle_gates(request, passed, blocked)

    async def _blocked(
        self, request: RunTools, key: SessionKey, spec: AgentSpec, call: StoredCall
    ) -> str | None:
        """Why the call may not run, as the first hook says that refuses it."""
        described = spec.tool(call.name)
        assert described is not None
        for hook in spec.hooks_before(described):
            end = await self._end_of(request, key, spec, call, hook, "PreToolUse")
            if refuses(hook, end):
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
                    end = await self._end_of(request, key, spec, call, hook, "PostToolUse")
                    said.append(end.output.strip() if end.exit_code == 0 else "")
            notes[call.index] = neutral("\n".join(text for text in said if text))
        await self._store.note_results(request, notes)

    async def _end_of(
        self,
        request: RunTools,
        key: SessionKey,
        spec: AgentSpec,
        call: StoredCall,
        hook: ToolHook,
        moment: HookMoment,
    ) -> HookEnd:
        """How the hook has ended beside the call, whoever ran it."""
        at = _Beside(key, request, call, hook, moment)
        begun = await self._begun(at)
        if begun is not None:
            return begun
        stdin = json.dumps(_given(request, spec, call, moment), ensure_ascii=False)
        started = time.monotonic()
        running = self._command(spec, hook, stdin.encode("utf-8", "replace"))
        try:
            ran = await self._watch.guard(key, request.turn, running)
        except ToolFailed as error:
            end = HookEnd(None, not_run(hook, error))
        else:
            end = _judged(hook, ran, moment)
        return await self._complete(at, end, time.monotonic() - started)

    async def _begun(self, at: "_Beside") -> HookEnd | None:
        """Write the intent of a hook; how it has ended where it is not to be run."""
        ours = caller(self._worker)
        begun = await self._store.begin_hook(at.key, at.turn, at.epoch, at.hook, ours, at.place)
        if isinstance(begun, HookInterrupted):
            demand_over(at.hook, begun, self._worker, self._is_alive)
            if begun.attempt >= ATTEMPTS_MAX:
                text = TOO_OFTEN.format(hook=at.hook.shown, times=begun.attempt)
                return await self._complete(at, HookEnd(None, text), 0.0)
            begun = await self._store.begin_hook(
                at.key, at.turn, at.epoch, at.hook, ours, at.place, begun.attempt
            )
        if isinstance(begun, HookInterrupted):
            raise OwnerAlive(f"A hook was begun by worker {begun.worker} meanwhile.")
        return begun if isinstance(begun, HookEnd) else None

    async def _complete(self, at: "_Beside", end: HookEnd, seconds: float) -> HookEnd:
        return await self._store.complete_hook(
            at.key, at.turn, at.hook, end, at.place, at.told(end, seconds)
        )


@dataclass(frozen=True)
class _Beside:
    """A hook at its place beside a call."""

    key: SessionKey
    request: RunTools
    call: StoredCall
    hook: ToolHook
    moment: HookMoment

    @property
    def turn(self) -> int:
        return self.request.turn

    @property
    def epoch(self) -> int:
        return self.request.epoch

    @property
    def place(self) -> str:
        return beside(self.turn, self.request.step, self.call.index, self.moment, self.call.edited)

    def told(self, end: HookEnd, seconds: float) -> Draft:
        """What watchers are told of it."""
        said = end.output.strip()
        return Draft(
            id=f"hook/{self.place}/{self.hook.digest[:16]}",
            type="hook_finished",
            turn=self.turn,
            step=self.request.step,
            body={
                "moment": self.moment,
                "hook": self.hook.shown,
                "call_id": self.call.call_id,
                "index": self.call.index,
                "name": self.call.name,
                "exit_code": end.exit_code,
                "blocked": self.moment == "PreToolUse" and refuses(self.hook, end),
                "text": said if len(said) <= TEXT_CHARACTERS else f"{said[: TEXT_CHARACTERS - 1]}…",
                "duration_seconds": round(seconds, 4),
            },
        )


def refuses(hook: ToolHook, end: HookEnd) -> bool:
    """Whether a hook before a call, which ended so, keeps it from running."""
    return end.exit_code == BLOCKS or (end.exit_code != 0 and hook.on_error == "block")


def _judged(hook: ToolHook, ran: HookRan, moment: HookMoment) -> HookEnd:
    """How a hook has ended: with what counts of its words."""
    if ran.code == 0:
        return HookEnd(0, ran.output)
    if ran.code == BLOCKS and moment == "PreToolUse":
        return HookEnd(BLOCKS, ran.errors.strip() or ran.output)
    return HookEnd(ran.code, FAILED.format(hook=hook.shown, code=ran.code))


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
