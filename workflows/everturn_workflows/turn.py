"""Turn: one run, one turn. It begins, works and finishes it, and goes on while work waits."""

from typing import Any

from temporalio import workflow
from temporalio.exceptions import FailureError

from everturn_workflows import calls, hosting
from everturn_workflows.loop import TurnLoop

with workflow.unsafe.imports_passed_through():
    from everturn.session import BeginTurn, TurnStart


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
            finished = await hosting.work(
                self._loop, lambda: hosting.too_long(start.history_events_max)
            )
        except FailureError as error:
            if calls.is_stale(error):
                # Another run hosts the session now; what this one knew is in the store.
                return
            raise
        if finished is not None and not finished.more:
            return
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new(start)
