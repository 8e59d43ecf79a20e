"""A turn's beginnings: each a row that the first writer wins."""

import json
import secrets
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from everturn.agents import AgentSpec
from everturn.events import Draft
from everturn.session import TO_RECOVER, BeginTurn, SessionKey, Stop, TurnHead
from everturn.tools import RESPONSE
from everturn_activities.store import (
    Idle,
    SpecNeeded,
    TakeoverNeeded,
    approvals,
    hook_runs,
    inbox,
    ledger,
    room,
    schema,
    served,
    tasks,
)
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.specs import keep
from everturn_activities.store.statement import Statement, insert
from everturn_activities.store.steps import LAST_STEP, RESULTS, STEP, STOP, admit

ADOPTIONS_MAX = 3
# What a workflow may know of a settings error; the outcome's reason is the spec's own.
UNUSABLE_SETTINGS = "The workspace cannot be used."

_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_turn: sa.BindParameter[int] = sa.bindparam("of_turn")
_beginnings, _turns = schema.beginnings, schema.turns
_BEGINNING = Statement(
    sa.select(_beginnings.c.head).where(
        _beginnings.c.sid == _sid,
        _beginnings.c.run_id == sa.bindparam("of_run"),
        _beginnings.c.k == sa.bindparam("of_k"),
    )
)
TURN = Statement(sa.select(_turns).where(_turns.c.sid == _sid, _turns.c.turn == _turn))
SPEC = Statement(
    sa.select(schema.specs.c.body).where(schema.specs.c.hash == sa.bindparam("of_hash"))
)
_ADOPT = Statement(
    sa.update(_turns)
    .where(_turns.c.sid == _sid, _turns.c.turn == _turn)
    .values(adoptions=sa.bindparam("adoptions"))
)
_INSERT_BEGINNING = insert(_beginnings)
_INSERT_TURN = insert(_turns)


def begin(
    tx: Tx,
    request: BeginTurn,
    spec: AgentSpec | None,
    spec_hash: str,
    closed: TakeoverNeeded | None,
) -> TurnHead | TakeoverNeeded | Idle | SpecNeeded:
    """Take the session, then resume its open turn or admit waiting messages to a new one.

    `spec` is pinned to a new turn; an open one keeps its own.
    """
    session = LockedSession(tx, SessionKey(request.tenant, request.session))
    made = _BEGINNING.scalar(
        tx.connection, {"of_sid": session.sid, "of_run": request.run_id, "of_k": request.k}
    )
    if made is not None:
        return TurnHead(**json.loads(made))
    how = inbox.take_host(session, request, closed)
    if how == "refused":
        assert session.host_workflow_id is not None
        assert session.host_run_id is not None
        return TakeoverNeeded(session.host_workflow_id, session.host_run_id)
    session.wake_at = None
    if session.open_turn is not None:
        head = _resume(session, session.open_turn, adopted=how not in ("mine", "successor"))
    else:
        rows = inbox.waiting(session)
        inbox.settle_controls(session, rows)
        messages = inbox.next_up([row for row in rows if row["kind"] == "message"])
        if not messages:
            session.host_workflow_id = session.host_run_id = None
            session.save()
            return Idle()
        if spec is None:
            return SpecNeeded()
        head = _open(session, messages, spec, spec_hash)
    _INSERT_BEGINNING.run(
        tx.connection,
        {
            "sid": session.sid,
            "run_id": request.run_id,
            "k": request.k,
            "head": json.dumps(asdict(head)),
        },
    )
    session.save()
    return head


def _open(
    session: LockedSession, rows: list[dict[str, Any]], spec: AgentSpec, spec_hash: str
) -> TurnHead:
    session.turn += 1
    session.open_turn = turn = session.turn
    inbox.take_cancel(session)
    room.begin_turn(session, spec.history)
    session.compaction_failures = 0
    session.renders_due = 0
    if spec.profile.when_useful:
        session.useful = " ".join(spec.useful)
    if session.budgeted or spec.agent.budget is not None:
        ledger.open_session(session, spec.agent.budget)
    if spec.settings_error is None:
        served.mark(session, spec)
    connection = session.tx.connection
    keep(connection, spec)
    _INSERT_TURN.run(
        connection,
        {
            "sid": session.sid,
            "turn": turn,
            "agent": spec.agent.name,
            "spec_hash": spec_hash,
            "started_at": session.tx.now,
            "adoptions": 0,
            "boundary": secrets.token_hex(6),
        },
    )
    session.tell(
        Draft(
            id=f"turn/{turn}/started",
            type="turn_started",
            turn=turn,
            body={
                "messages": [row["sender_id"] for row in rows],
                "agent": spec.agent.name,
                "model": spec.agent.model,
            },
        )
    )
    for part, row in enumerate(rows):
        admit(session, row, turn, 0, part)
    if session.task is not None:
        tasks.opened(session)
    return TurnHead(
        tenant=session.key.tenant,
        session=session.key.session,
        turn=turn,
        epoch=session.host_epoch,
        recoveries_max=spec.agent.recoveries_max,
        steps_max=spec.agent.steps_max,
        cancelled=session.cancel_turn == turn,
        failure=UNUSABLE_SETTINGS if spec.settings_error else None,
        hooks_seconds=_hooks_seconds(session, spec),
        folder_due=bool(session.folder_due or session.restore_turn),
        home=session.home,
    )


def _hooks_seconds(session: LockedSession, spec: AgentSpec) -> float:
    """None are run for a turn that is worked again: they would act a second time."""
    return 0.0 if session.replays else hook_runs.seconds_due(session, spec)


def _resume(session: LockedSession, turn: int, adopted: bool) -> TurnHead:
    """The open turn's head after its last finished step. One that was prepared and did not
    finish, calls and all, runs again as recorded."""
    row = TURN.one(session.tx.connection, {"of_sid": session.sid, "of_turn": turn})
    adoptions = row.adoptions + adopted
    failure = None
    if adopted:
        _ADOPT.run(
            session.tx.connection, {"of_sid": session.sid, "of_turn": turn, "adoptions": adoptions}
        )
        session.tell(
            Draft(
                id=f"turn/{turn}/adopted/{adoptions}",
                type="status",
                turn=turn,
                body={"text": "The turn lost its workflow and goes on from its last step."},
            )
        )
        if adoptions > ADOPTIONS_MAX:
            failure = (
                f"The turn lost its workflow {adoptions} times and was given up;"
                " it may be what ends the workers."
            )
    spec = AgentSpec.model_validate_json(
        SPEC.scalar(session.tx.connection, {"of_hash": row.spec_hash})
    )
    last, stop = _last_finished(session, turn)
    if spec.agent.approvals.on_denial == "end" and approvals.denied_in(
        session.tx.connection, session.sid, turn, last
    ):
        stop = "denied"
    recoveries = _recoveries(session, turn, last, stop)
    return TurnHead(
        tenant=session.key.tenant,
        session=session.key.session,
        turn=turn,
        epoch=session.host_epoch,
        step=last,
        stop=stop,
        recoveries=recoveries,
        recoveries_max=spec.agent.recoveries_max,
        steps_max=spec.agent.steps_max,
        cancelled=session.cancel_turn == turn or stop == "cancelled",
        failure=failure or (UNUSABLE_SETTINGS if spec.settings_error else None),
        hooks_seconds=_hooks_seconds(session, spec),
        folder_due=bool(session.folder_due or session.restore_turn),
        home=session.home,
    )


def _last_finished(session: LockedSession, turn: int) -> tuple[int, Stop | None]:
    at = {"of_sid": session.sid, "of_turn": turn}
    last: int = LAST_STEP.scalar(session.tx.connection, at) or 0
    if last == 0:
        return 0, None
    row = STEP.one(session.tx.connection, {**at, "of_step": last})
    calls = RESULTS.all(session.tx.connection, {**at, "of_step": last})
    if row.state == "done" and all(call.state == "done" and not call.followed for call in calls):
        responded = any(call.name == RESPONSE and not call.failed for call in calls)
        return last, "response" if responded else row.stop
    return last - 1, None


def _recoveries(session: LockedSession, turn: int, step: int, stop: Stop | None) -> int:
    """How many replies in a row up to that of `step` were cut or empty."""
    found = 0
    while stop in TO_RECOVER:
        found += 1
        at = {"of_sid": session.sid, "of_turn": turn, "of_step": step - found}
        stop = STOP.scalar(session.tx.connection, at)
    return found
