"""run_hooks: what a person has set to be run when an agent begins to work in a session."""

import time
from collections.abc import Awaitable, Callable

from temporalio import activity

from everturn.agents import AgentSpec
from everturn.errors import OwnerAlive, ToolFailed, TurnCancelled
from everturn.hooks import Hook
from everturn.session import RunHooks, SessionKey
from everturn_activities.calling import caller
from everturn_activities.flights import CancelWatch, Flights
from everturn_activities.heartbeat import heartbeating
from everturn_activities.store import HookEnd, HookInterrupted, Store
from everturn_activities.tool_output import UNTIL_THEN

OWNER_GRACE_SECONDS = 10.0
"""How long past its time-out the hook of a paused worker is waited for."""

FAILED = "The hook {hook} ended with exit code {code}, so what it printed is left out."
NOT_RUN = "The hook {hook} did not come to its end: {reason}"
CUT_OFF = (
    "The hook {hook} was cut off with its worker: whether it took effect is not known. It is not"
    " run again in this session."
)
CANCELLED = "The hook {hook} was ended with its turn. It is not run again in this session."

Command = Callable[[AgentSpec, Hook], Awaitable[tuple[int, str]]]
"""Runs a hook for an agent: its exit code and output. Raises ToolFailed where it cannot."""


class HookActivities:
    def __init__(
        self,
        store: Store,
        command: Command,
        watch: CancelWatch,
        worker: str,
        is_alive: Callable[[str], bool],
    ) -> None:
        self._store = store
        self._command = command
        self._watch = watch
        self._worker = worker
        self._is_alive = is_alive
        self._flights = Flights()

    @activity.defn
    async def run_hooks(self, request: RunHooks) -> None:
        """Run the hooks of the turn's agent that the session has not run yet, in their order."""
        async with heartbeating():
            call = (request.tenant, request.session, request.turn)
            await self._flights.join(call, lambda: self._run_all(request))

    async def _run_all(self, request: RunHooks) -> None:
        key = SessionKey(request.tenant, request.session)
        spec = await self._store.spec(key, request.turn)
        for hook in spec.agent.hooks.agent_spawn:
            begun = await self._store.begin_hook(
                key, request.turn, request.epoch, hook, caller(self._worker)
            )
            if begun is None:
                continue
            if isinstance(begun, HookInterrupted):
                end = self._resolved(hook, begun)
            else:
                end = await self._end_of(key, request.turn, spec, hook)
            await self._store.complete_hook(key, request.turn, hook, end)

    async def _end_of(self, key: SessionKey, turn: int, spec: AgentSpec, hook: Hook) -> HookEnd:
        try:
            running = self._command(spec, hook)
            code, output = await self._watch.guard(key, turn, running)
        except ToolFailed as error:
            reason = str(error).partition(f" {UNTIL_THEN}")[0]
            return HookEnd(None, "", NOT_RUN.format(hook=hook.shown, reason=reason))
        except TurnCancelled:
            return HookEnd(None, "", CANCELLED.format(hook=hook.shown))
        if code != 0:
            return HookEnd(code, output, FAILED.format(hook=hook.shown, code=code))
        return HookEnd(code, output)

    def _resolved(self, hook: Hook, begun: HookInterrupted) -> HookEnd:
        """What is known of a hook that another execution began and did not end."""
        elapsed = time.time() - begun.started_at
        if (
            begun.worker != self._worker
            and elapsed < hook.timeout_seconds + OWNER_GRACE_SECONDS
            and self._is_alive(begun.worker)
        ):
            raise OwnerAlive(f"A hook is under way in worker {begun.worker}.")
        return HookEnd(None, "", CUT_OFF.format(hook=hook.shown))
