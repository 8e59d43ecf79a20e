"""end_hooks: what a person has set to be run after a turn's outcome was recorded."""

from collections.abc import Awaitable

from temporalio import activity

from everturn.session import EndHooks, SessionKey
from everturn_activities.flights import Flights
from everturn_activities.heartbeat import heartbeating
from everturn_activities.hook_running import HookRunner, Placed
from everturn_activities.hooks import HookRan
from everturn_activities.store import Store
from everturn_activities.store.hook_runs import at_end


class EndHookActivities:
    def __init__(self, store: Store, runner: HookRunner) -> None:
        self._store = store
        self._runner = runner
        self._flights = Flights()

    @activity.defn
    async def end_hooks(self, request: EndHooks) -> None:
        """Run the hooks of a turn's end, in order. They change nothing of it."""
        async with heartbeating():
            call = (request.tenant, request.session, request.turn)
            await self._flights.join(call, lambda: self._run_all(request))

    async def _run_all(self, request: EndHooks) -> None:
        key, turn = SessionKey(request.tenant, request.session), request.turn
        spec = await self._store.spec(key, turn)
        (ended,) = [one for one in await self._store.turns(key, turn) if one.turn == turn]
        given = {
            "event": "TurnEnd",
            "session": request.session,
            "turn": turn,
            "agent": spec.agent.name,
            "outcome": ended.outcome,
            "reason": ended.reason,
            "text": await self._store.final_text(key, turn),
            "steps": len(ended.steps),
        }
        for hook in spec.agent.hooks.turn_end:
            at = Placed(key, turn, None, hook, "TurnEnd", at_end(turn))
            await self._runner.end_of(at, spec, given, _waited_for)


async def _waited_for(running: Awaitable[HookRan]) -> HookRan:
    """The turn is over, so no cancel of it can be meant."""
    return await running
