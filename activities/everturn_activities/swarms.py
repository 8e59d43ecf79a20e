"""What works swarms: items are taken, begun as turns of their own sessions, and stopped."""

from temporalio import activity

from everturn import limits
from everturn.agents import AgentSpec
from everturn.session import BeginTurn, FinishTurn, PrepareStep, SessionKey, TurnHead
from everturn.swarms import (
    BeginItem,
    BegunItem,
    GiveUpItem,
    SwarmHead,
    SwarmStart,
    TakeItems,
    Taken,
)
from everturn_activities.bounded import Bounded
from everturn_activities.executors import Waker
from everturn_activities.heartbeat import heartbeating
from everturn_activities.step import StepActivities
from everturn_activities.store import Inbound, Store
from everturn_activities.store.sql_swarms import SqlSwarms
from everturn_activities.turn import TurnActivities

SPECS_KEPT = 50


class SwarmActivities:
    def __init__(
        self,
        store: Store,
        swarms: SqlSwarms,
        turns: TurnActivities,
        steps: StepActivities,
        waker: Waker,
    ) -> None:
        self._store = store
        self._swarms = swarms
        self._turns = turns
        self._steps = steps
        self._waker = waker
        self._specs: Bounded[str, AgentSpec] = Bounded(SPECS_KEPT, 0)

    @activity.defn
    async def begin_swarm(self, request: SwarmStart) -> SwarmHead:
        return await self._swarms.begin(SessionKey(request.tenant, request.swarm))

    @activity.defn
    async def check_swarm(self, request: SwarmStart) -> SwarmHead:
        return await self._swarms.check(SessionKey(request.tenant, request.swarm))

    @activity.defn
    async def take_items(self, request: TakeItems) -> Taken:
        return await self._swarms.take(request)

    @activity.defn
    async def stop_items(self, request: SwarmStart) -> int:
        """Cancel the sessions that work a swarm's items; how many there were."""
        async with heartbeating():
            found = await self._swarms.working(SessionKey(request.tenant, request.swarm))
            for key, turn in found:
                # One for each turn, under an id that no person can send: what they had said
                # meanwhile may have opened another.
                cancel = Inbound(id=f"swarm/stopped/{turn}", kind="cancel")
                accepted = await self._store.accept(key, cancel)
                if accepted.wake is not None:
                    await self._waker.wake(accepted.wake)
            return len(found)

    @activity.defn
    async def begin_item(self, request: BeginItem) -> BegunItem:
        """Open the item's session and begin its turn, with the first step; finish it where that
        was all. Each is a row that the first writer wins."""
        spec = None
        if request.k == 0:
            opened = await self._swarms.open_item(request)
            if not opened.works:
                return BegunItem()
            if not opened.apart:
                spec = await self._spec(request, opened.pinned)
        begin = BeginTurn(
            tenant=request.tenant,
            session=request.item.session,
            workflow_id=request.workflow_id,
            run_id=request.run_id,
            previous_run_id=request.previous_run_id,
            k=request.k,
        )
        turn = await self._turns.begin(begin, spec)
        if turn is None:
            return BegunItem()
        if turn.folder_due or turn.hooks_seconds or limits.ended(turn) is not None:
            return BegunItem(turn)
        step = await self._steps.begin_step(
            PrepareStep(
                *(turn.tenant, turn.session, turn.turn, turn.step + 1, turn.epoch),
                home=turn.home,
            )
        )
        if step.elsewhere or step.reply is None or step.reply.calls or step.context.cancelled:
            return BegunItem(turn, step)
        after = turn.after(step.reply)
        if limits.ended(after) is None:
            return BegunItem(turn, step)
        return BegunItem(more=await self._finish(request, after))

    @activity.defn
    async def give_up_item(self, request: GiveUpItem) -> bool:
        """Settle an item whose session could not be opened; whether it was so."""
        return await self._swarms.give_up(request)

    async def _spec(self, request: BeginItem, pinned: str | None) -> AgentSpec | None:
        """What all items of the swarm are worked under, from its first on; None where each has
        to find out for itself."""
        key = SessionKey(request.tenant, request.swarm)
        if pinned is None:
            session = SessionKey(request.tenant, request.item.session)
            assignment = await self._store.assignment(session)
            if assignment is None or assignment.pinned is not None:
                return None
            spec = self._turns.spec(assignment)
            if spec.settings_error is not None:
                # A person may mend it while others work.
                return None
            pinned = await self._swarms.pin(key, request.item.level > 0, spec)
            self._specs.put(spec.hash, spec)
        known = self._specs.get(pinned)
        if known is None:
            known = await self._swarms.pinned(pinned)
            self._specs.put(pinned, known)
        # What servers offer is pinned by each session.
        return None if known.servers else known

    async def _finish(self, request: BeginItem, turn: TurnHead) -> bool:
        ended = limits.ended(turn)
        assert ended is not None
        finished = await self._turns.finish_turn(
            FinishTurn(
                tenant=turn.tenant,
                session=turn.session,
                workflow_id=request.workflow_id,
                run_id=request.run_id,
                turn=turn.turn,
                epoch=turn.epoch,
                step=turn.step,
                outcome=ended.outcome,
                reason=ended.reason,
            )
        )
        return finished.more
