"""A turn on whichever workflow hosts its session: worked, and finished."""

from collections.abc import Callable

from temporalio import workflow
from temporalio.exceptions import FailureError

from everturn_workflows import calls
from everturn_workflows.loop import TurnLoop

with workflow.unsafe.imports_passed_through():
    from everturn import limits
    from everturn.session import Finished, FinishTurn


async def work(loop: TurnLoop, too_long: Callable[[], bool]) -> Finished | None:
    """Work a turn to its end; None where the history has grown too long and the next run must
    go on with it. A failure that `calls.is_stale` means that another run hosts the session."""
    try:
        ended = await loop.run(too_long)
    except FailureError as error:
        if not calls.is_fault(error):
            raise
        ended = limits.fault(calls.said(error))
    if ended is None:
        return None
    turn, info = loop.turn, workflow.info()
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
            passing=ended.passing,
        )
    )


def too_long(history_events_max: int) -> bool:
    """Whether the run's history has grown so long that it must continue as new; 0 leaves that
    to the server."""
    info = workflow.info()
    if history_events_max:
        return info.get_current_history_length() > history_events_max
    return info.is_continue_as_new_suggested()
