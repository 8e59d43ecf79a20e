"""Turn: one run, one turn. It begins, works and finishes it, and goes on while work waits."""

from typing import Any

from temporalio import workflow
from temporalio.exceptions import FailureError

from everturn_workflows import calls
from everturn_workflows.loop import TurnLoop

with workflow.unsafe.imports_passed_through():
    from everturn import limits
    from everturn.limits import Ended
    from everturn.session import BeginTurn, Finished, FinishTurn, TurnHead, TurnStart


@workflow.defn(name="Turn")
class Turn:
    def __init__(self) -> None:
        self._loop: TurnLoop | None = None

    @workflow.signal
    def wake(self) -> None:
        """Something was committed to the session's inbox. Carries nothing: the store tells what."""
        if self._loop is not None:
            self._loop.woken = True

    @workflow.query
    def state(self) -> dict[str, Any]:
        """Where the turn stands: `turn`, the last finished `step`, `cancelled`."""
        if self._loop is None:
            return {"turn": None}
        turn = self._loop.turn
        return {"turn": turn.turn, "step": turn.step, "cancelled": turn.cancelled}

    @workflow.run
    async def run(self, start: TurnStart) -> None:
        info = workflow.info()
        turn = await calls.begin_turn(
            BeginTurn(
                tenant=start.tenant,
                session=start.session,
                workflow_id=info.workflow_id,
                run_id=info.run_id,
                previous_run_id=info.continued_run_id,
            )
        )
        if turn is None:
            return
        self._loop = TurnLoop(turn)
        try:
            ended = await self._work(self._loop, start)
            if ended is not None and not (await self._finish(self._loop.turn, ended)).more:
                return
        except FailureError as error:
            if calls.is_stale(error):
                # Another run hosts the session now; what this one knew is in the store.
                return
            raise
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new(start)

    async def _work(self, loop: TurnLoop, start: TurnStart) -> Ended | None:
        try:
            return await loop.run(lambda: _too_long(start.history_events_max))
        except FailureError as error:
            if not calls.is_fault(error):
                raise
            return limits.fault(calls.said(error))

    async def _finish(self, turn: TurnHead, ended: Ended) -> Finished:
        info = workflow.info()
        return await calls.finish_turn(
            FinishTurn(
                tenant=turn.tenant,
                session=turn.session,
                workflow_id=info.workflow_id,
                run_id=info.run_id,
                turn=turn.turn,
                epoch=turn.epoch,
                step=turn.step,
                outcome=ended.outcome,
                reason=ended.reason,
            )
        )


def _too_long(history_events_max: int) -> bool:
    info = workflow.info()
    if history_events_max:
        return info.get_current_history_length() > history_events_max
    return info.is_continue_as_new_suggested()
