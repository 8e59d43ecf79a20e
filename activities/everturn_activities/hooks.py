"""run_hooks: what a person has set to be run when an agent begins to work in a session."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from temporalio import activity

from everturn.agents import AgentSpec
from everturn.errors import OwnerAlive, ToolFailed, TurnCancelled
from everturn.events import Draft
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


class HookRan(NamedTuple):
    """A hook's exit code, and what it wrote; `errors` is its stderr where that is kept apart."""

    code: int
    output: str
    errors: str = ""


class Command(Protocol):
    """Runs a hook for an agent. Raises ToolFailed where it cannot."""

    def __call__(
        self, spec: AgentSpec, hook: Hook, stdin: bytes | None = None, /
    ) -> Awaitable[HookRan]: ...


class HookActivities:
    def __init__(
        self,
        store: Store,
        command: Command,
        watch: CancelWatch,
        worker: str,
        is_alive: Callable[[str], Awaitable[bool]],
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
        key, turn = SessionKey(request.tenant, request.session), request.turn
        spec = await self._store.spec(key, turn)
        for hook in spec.agent.hooks.agent_spawn:
            begun = await self._store.begin_hook(
                key, turn, request.epoch, hook, caller(self._worker)
            )
            if isinstance(begun, HookEnd):
                continue
            if isinstance(begun, HookInterrupted):
                await demand_over(hook, begun, self._worker, self._is_alive)
                end = HookEnd(None, "", CUT_OFF.format(hook=hook.shown))
            else:
                end = await self._end_of(key, turn, spec, hook)
            await self._store.complete_hook(key, turn, hook, end, told=_told(turn, hook, end))

    async def _end_of(self, key: SessionKey, turn: int, spec: AgentSpec, hook: Hook) -> HookEnd:
        try:
            ran = await self._watch.guard(key, turn, self._command(spec, hook))
        except ToolFailed as error:
            return HookEnd(None, "", not_run(hook, error))
        except TurnCancelled:
            return HookEnd(None, "", CANCELLED.format(hook=hook.shown))
        if ran.code != 0:
            return HookEnd(ran.code, ran.output, FAILED.format(hook=hook.shown, code=ran.code))
        return HookEnd(ran.code, ran.output)


async def demand_over(
    hook: Hook, begun: HookInterrupted, worker: str, is_alive: Callable[[str], Awaitable[bool]]
) -> None:
    """Raise OwnerAlive while the execution that began the hook may still report."""
    if (
        begun.worker != worker
        and begun.seconds < hook.timeout_seconds + OWNER_GRACE_SECONDS
        and await is_alive(begun.worker)
    ):
        raise OwnerAlive(f"A hook is under way in worker {begun.worker}.")


def not_run(hook: Hook, error: ToolFailed) -> str:
    """Why a hook did not come to its end, without what it printed."""
    reason = str(error).partition(f" {UNTIL_THEN}")[0]
    return NOT_RUN.format(hook=hook.shown, reason=reason)


def _told(turn: int, hook: Hook, end: HookEnd) -> Draft | None:
    if end.problem is None:
        return None
    name = f"turn/{turn}/hook/{hook.digest[:16]}"
    return Draft(id=name, type="status", turn=turn, body={"text": end.problem})
