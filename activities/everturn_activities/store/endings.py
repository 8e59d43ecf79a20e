"""A turn's end: its outcome, recorded and told once."""

import json

import sqlalchemy as sa

from everturn.agents import AgentSpec
from everturn.errors import UNUSABLE_FOLDER, StaleHost
from everturn.events import Draft
from everturn.executors import ExecutorReport
from everturn.messages import message_from_json
from everturn.session import Finished, FinishTurn, SessionKey
from everturn.tools import RESPONSE
from everturn_activities.store import (
    FollowUp,
    approvals,
    asks,
    executors,
    folders,
    hook_runs,
    inbox,
    ledger,
    memories,
    replays,
    schema,
    side_journal,
    stops,
    swarm_items,
    tasks,
)
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.metering import Terms
from everturn_activities.store.statement import Statement
from everturn_activities.store.steps import LAST_STEP, STEP, STOP, append_results
from everturn_activities.store.turns import ADOPTIONS_MAX, SPEC, TURN, UNUSABLE_SETTINGS

_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_turn: sa.BindParameter[int] = sa.bindparam("of_turn")
_step: sa.BindParameter[int] = sa.bindparam("of_step")
_turns, _steps, _calls = schema.turns, schema.steps, schema.tool_calls
_USAGE = Statement(
    sa.select(
        sa.func.coalesce(sa.func.sum(_steps.c.input_tokens), 0),
        sa.func.coalesce(sa.func.sum(_steps.c.output_tokens), 0),
        sa.func.sum(_steps.c.cost_usd),
        sa.func.count(_steps.c.ended_at),
        sa.func.count(_steps.c.cost_usd),
        sa.func.max(sa.case((_steps.c.state == "started", _steps.c.step))),
    ).where(_steps.c.sid == _sid, _steps.c.turn == _turn)
)
_END = Statement(
    sa.update(_turns)
    .where(_turns.c.sid == _sid, _turns.c.turn == _turn)
    .values(
        ended_at=sa.bindparam("ended_at"),
        outcome=sa.bindparam("outcome"),
        reason=sa.bindparam("reason"),
    )
)
_ERROR = Statement(
    sa.select(_steps.c.error)
    .where(_steps.c.sid == _sid, _steps.c.turn == _turn)
    .order_by(_steps.c.step.desc())
    .limit(1)
)
_REFUSED = Statement(
    sa.select(_steps.c.refused)
    .where(_steps.c.sid == _sid, _steps.c.turn == _turn)
    .order_by(_steps.c.step.desc())
    .limit(1)
)
_SAID = Statement(
    sa.select(schema.messages.c.step, schema.messages.c.body)
    .where(
        schema.messages.c.sid == _sid,
        schema.messages.c.turn == _turn,
        schema.messages.c.step <= _step,
        schema.messages.c.role == "assistant",
    )
    .order_by(schema.messages.c.position.desc())
    .limit(1)
)
_RESPONDED = Statement(
    sa.select(_calls.c.result)
    .where(
        _calls.c.sid == _sid,
        _calls.c.turn == _turn,
        _calls.c.step == _step,
        _calls.c.name == RESPONSE,
        _calls.c.state == "done",
        _calls.c.failed == 0,
    )
    .order_by(_calls.c.idx.desc())
    .limit(1)
)

_FINISHED = Statement(
    sa.select(schema.events.c.body).where(
        schema.events.c.sid == _sid, schema.events.c.event_id == sa.bindparam("of_event")
    )
)


def finish(tx: Tx, request: FinishTurn, terms: Terms) -> FollowUp:
    """Record the outcome once; decide anew, at each execution, whether the run goes on."""
    session = LockedSession(tx, SessionKey(request.tenant, request.session))
    turn = TURN.one(tx.connection, {"of_sid": session.sid, "of_turn": request.turn})
    outcome = turn.outcome
    wake = report = None
    if outcome is None:
        session.demand_host(request.turn, request.epoch)
        report = _record_outcome(session, request, turn.spec_hash, terms)
        outcome = report.outcome
        if session.parent_sid is not None:
            wake = executors.reported(session, request.turn, report, terms.meter)
        if session.task is not None:
            passing = _is_passing(session, request, turn.adoptions)
            tasks.reported(session, request.turn, report, passing)
    elif session.host_epoch > request.epoch and session.open_turn is not None:
        raise StaleHost(f"Session {request.session} went on to turn {session.open_turn}.")
    left = executors.left(session, request.turn, outcome)
    begun = executors.begin_next(session)
    if session.parent_sid is not None:
        begun += executors.begin_next(session.parent)
    more = inbox.let_go(session, request.workflow_id, request.run_id)
    if session.swarm_sid is not None:
        # What a person said meanwhile to an item's session belongs to its work.
        beside = (
            swarm_items.left_beside(session)
            if report is None
            else swarm_items.settle(session, report, last=not more)
        )
        left += [] if beside is None else [beside]
    session.save()
    return FollowUp(Finished(more=more), begun, left, wake)


def _record_outcome(
    session: LockedSession, request: FinishTurn, spec_hash: str, terms: Terms
) -> ExecutorReport:
    """Returns what a parent is told of it."""
    connection = session.tx.connection
    at = {"of_sid": session.sid, "of_turn": request.turn}
    # A turn that ends where it was resumed leaves the calls of its last step unanswered.
    append_results(session, request.turn, LAST_STEP.scalar(connection, at) or 0)
    outcome, reason = stops.outcome_of(session, request)
    if session.task is not None and outcome == "cancelled":
        reason = tasks.why_stopped(session, request.turn) or reason
    reason = reason or _ERROR.scalar(connection, at)
    if reason == UNUSABLE_SETTINGS:
        spec = AgentSpec.model_validate_json(SPEC.scalar(connection, {"of_hash": spec_hash}))
        reason = spec.settings_error
    if reason == UNUSABLE_FOLDER:
        reason = folders.problem(connection, session.sid)
    if outcome == "ended_by_denial":
        reason = approvals.why_ended(connection, session.sid, request.turn)
    if reason is None and outcome == "model_failed":
        reason = "The model call was cut off too often: its workers ended while it ran."
    _END.run(
        connection,
        {
            "of_sid": session.sid,
            "of_turn": request.turn,
            "ended_at": session.tx.now,
            "outcome": outcome,
            "reason": reason,
        },
    )
    text = _final_text(session, request.turn, request.step)
    if outcome == "rolled_back":
        stops.roll_back(session, request.turn)
        text = ""
    session.open_turn = None
    if session.replays:
        replays.go_on(session, outcome)
    approvals.close(session)
    if session.budgeted:
        asks.close(session)
    inputs, outputs, cost, ended, priced, begun = _USAGE.one(
        connection, {"of_sid": session.sid, "of_turn": request.turn}
    )
    worked = terms.spec(connection)
    # Sessions above are locked before memories, and these before accounts.
    session.lock_above()
    memories.mark_due(session, request.turn, worked)
    side_journal.close(session, request.turn, terms.meter)
    # What a turn that is worked again did has been told before.
    if worked.agent.hooks.turn_end and not session.replays:
        hook_runs.mark_due(session, request.turn, worked.agent.hooks.turn_end)
    side = side_journal.paid(connection, session.sid, request.turn)
    if begun is not None:
        # Nobody will hear of this call any more.
        ledger.lose(session, STEP.one(connection, {**at, "of_step": begun}), terms)
    cost_usd = (cost or 0.0) + (side.cost_usd or 0.0)
    session.tell(
        Draft(
            id=f"turn/{request.turn}/finished",
            type="turn_finished",
            turn=request.turn,
            step=request.step,
            body={
                "outcome": outcome,
                "reason": reason,
                "text": text,
                "usage": {
                    "input_tokens": inputs + side.input_tokens,
                    "output_tokens": outputs + side.output_tokens,
                    "model_calls": ended + side.calls,
                },
                "cost_usd": cost_usd,
                "unpriced_calls": ended - priced + side.calls - side.priced,
                "steps": request.step,
            },
        )
    )
    return ExecutorReport(
        outcome=outcome, reason=reason, text=text, steps=request.step, cost_usd=cost_usd
    )


def _is_passing(session: LockedSession, request: FinishTurn, adoptions: int) -> bool:
    """Whether time may repair what ended the turn: a provider that is away, workers that are
    lost, and no answer of a provider's or of a model's."""
    if request.passing or adoptions > ADOPTIONS_MAX:
        return True
    if request.outcome != "model_failed" or request.reason is not None:
        return False
    at = {"of_sid": session.sid, "of_turn": request.turn}
    return not _REFUSED.scalar(session.tx.connection, at)


def _final_text(session: LockedSession, turn: int, step: int) -> str:
    """What the turn says to its user: the result of `response` where the last step called it
    (C5), else the last reply, with the pieces before it that were cut."""
    connection = session.tx.connection
    at = {"of_sid": session.sid, "of_turn": turn}
    responded = _RESPONDED.scalar(connection, {**at, "of_step": step})
    if responded is not None:
        return str(responded)
    pieces: list[str] = []
    # A reply that was cut off by a cancel stands behind the last finished step.
    found = _SAID.first(connection, {**at, "of_step": step + 1})
    while found is not None:
        pieces.append(message_from_json(found.body).text)  # type: ignore[union-attr]
        before = {**at, "of_step": found.step - 1}
        if found.step == 1 or STOP.scalar(connection, before) != "max_tokens":
            break
        found = _SAID.first(connection, before)
    return "".join(reversed(pieces))


def told_text(connection: sa.Connection, sid: int, turn: int) -> str:
    """What a turn that has ended said to its user, as its watchers were told."""
    at = {"of_sid": sid, "of_event": f"turn/{turn}/finished"}
    body = _FINISHED.scalar(connection, at)
    return "" if body is None else str(json.loads(body)["text"])
