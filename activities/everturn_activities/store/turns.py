"""A turn's beginnings, steps and end: each a row that the first writer wins."""

import json
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sa

from everturn.agents import AgentSpec
from everturn.context.nudges import nudge
from everturn.context.window import Frame, Sections
from everturn.errors import StaleHost
from everturn.events import Draft
from everturn.messages import (
    Text,
    ToolMessage,
    ToolResult,
    UserMessage,
    message_from_json,
    user_text,
)
from everturn.session import (
    TO_RECOVER,
    BeginTurn,
    ContextHead,
    Finished,
    FinishTurn,
    Placement,
    PrepareStep,
    SessionKey,
    Stop,
    TurnHead,
)
from everturn.tools import RESPONSE
from everturn_activities.store import (
    Idle,
    SpecNeeded,
    TakeoverNeeded,
    asks,
    inbox,
    ledger,
    room,
    schema,
    side_journal,
    stops,
)
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.metering import Terms
from everturn_activities.store.statement import Statement, insert

ADOPTIONS_MAX = 3
TITLE_CHARACTERS = 60

OVERHEAD_TOKENS = 10_000
"""What prompt and tools may take of every request before a watcher is told."""

# What a workflow may know of a settings error; the outcome's reason is the spec's own.
UNUSABLE_SETTINGS = "The workspace cannot be used."

# Parts of a step, in the order in which a model reads them.
ASSISTANT_PART = 10_000
TOOL_PART = 20_000
NUDGE_PART = 30_000

_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_turn: sa.BindParameter[int] = sa.bindparam("of_turn")
_step: sa.BindParameter[int] = sa.bindparam("of_step")
_beginnings, _turns, _steps, _calls = (
    schema.beginnings,
    schema.turns,
    schema.steps,
    schema.tool_calls,
)
_BEGINNING = Statement(
    sa.select(_beginnings.c.head).where(
        _beginnings.c.sid == _sid,
        _beginnings.c.run_id == sa.bindparam("of_run"),
        _beginnings.c.k == sa.bindparam("of_k"),
    )
)
_TURN = Statement(sa.select(_turns).where(_turns.c.sid == _sid, _turns.c.turn == _turn))
_STEP = Statement(
    sa.select(_steps).where(_steps.c.sid == _sid, _steps.c.turn == _turn, _steps.c.step == _step)
)
_STOP = Statement(
    sa.select(_steps.c.stop).where(
        _steps.c.sid == _sid, _steps.c.turn == _turn, _steps.c.step == _step
    )
)
_LAST_STEP = Statement(
    sa.select(sa.func.max(_steps.c.step)).where(_steps.c.sid == _sid, _steps.c.turn == _turn)
)
_RESULTS = Statement(
    sa.select(_calls)
    .where(_calls.c.sid == _sid, _calls.c.turn == _turn, _calls.c.step == _step)
    .order_by(_calls.c.idx)
)
_TOLD = Statement(
    sa.update(_steps)
    .where(_steps.c.sid == _sid, _steps.c.turn == _turn, _steps.c.step == _step)
    .values(results_told=1)
)
_RERUN = Statement(
    sa.update(_steps)
    .where(_steps.c.sid == _sid, _steps.c.turn == _turn, _steps.c.step == _step)
    .values(reruns=sa.bindparam("reruns"))
)
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
_SPEC_KNOWN = Statement(
    sa.select(schema.specs.c.hash).where(schema.specs.c.hash == sa.bindparam("of_hash"))
)
_SPEC = Statement(
    sa.select(schema.specs.c.body).where(schema.specs.c.hash == sa.bindparam("of_hash"))
)
_ADOPT = Statement(
    sa.update(_turns)
    .where(_turns.c.sid == _sid, _turns.c.turn == _turn)
    .values(adoptions=sa.bindparam("adoptions"))
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
_TOLD_EVENT = Statement(
    sa.select(schema.events.c.event_id).where(
        schema.events.c.sid == _sid, schema.events.c.event_id == sa.bindparam("of_event")
    )
)
_INSERT_BEGINNING = insert(_beginnings)
_INSERT_TURN = insert(_turns)
_INSERT_STEP = insert(_steps)
_INSERT_SPEC = insert(schema.specs)


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
    session.history_tokens = session.message_tokens
    session.compaction_failures = 0
    if session.budgeted or spec.agent.budget is not None:
        ledger.open_session(session, spec.agent.budget)
    connection = session.tx.connection
    if _SPEC_KNOWN.first(connection, {"of_hash": spec_hash}) is None:
        _INSERT_SPEC.run(connection, {"hash": spec_hash, "body": spec.model_dump_json()})
    _INSERT_TURN.run(
        connection,
        {
            "sid": session.sid,
            "turn": turn,
            "agent": spec.agent.name,
            "spec_hash": spec_hash,
            "started_at": session.tx.now,
            "adoptions": 0,
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
        _admit(session, row, turn, 0, part)
    return TurnHead(
        tenant=session.key.tenant,
        session=session.key.session,
        turn=turn,
        epoch=session.host_epoch,
        recoveries_max=spec.agent.recoveries_max,
        steps_max=spec.agent.steps_max,
        cancelled=session.cancel_turn == turn,
        failure=UNUSABLE_SETTINGS if spec.settings_error else None,
    )


def _admit(session: LockedSession, row: dict[str, Any], turn: int, step: int, part: int) -> None:
    message = message_from_json(row["body"])
    assert isinstance(message, UserMessage)
    session.append(message, turn, step, part, row["tokens"])
    inbox.settle(session, row, "admitted", turn)
    session.tell(
        Draft(
            id=f"message/{row['sender_id']}/admitted",
            type="message_admitted",
            turn=turn,
            # The first step reads what opened the turn.
            step=step or 1,
            body={"message_id": row["sender_id"]},
        )
    )
    if not session.title:
        session.title = title(message)


def _resume(session: LockedSession, turn: int, adopted: bool) -> TurnHead:
    """The open turn's head after its last finished step. One that was prepared and did not
    finish, calls and all, runs again as recorded."""
    row = _TURN.one(session.tx.connection, {"of_sid": session.sid, "of_turn": turn})
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
        _SPEC.scalar(session.tx.connection, {"of_hash": row.spec_hash})
    )
    last, stop = _last_finished(session, turn)
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
    )


def _last_finished(session: LockedSession, turn: int) -> tuple[int, Stop | None]:
    at = {"of_sid": session.sid, "of_turn": turn}
    last: int = _LAST_STEP.scalar(session.tx.connection, at) or 0
    if last == 0:
        return 0, None
    row = _STEP.one(session.tx.connection, {**at, "of_step": last})
    calls = _RESULTS.all(session.tx.connection, {**at, "of_step": last})
    if row.state == "done" and all(call.state == "done" for call in calls):
        responded = any(call.name == RESPONSE and not call.failed for call in calls)
        return last, "response" if responded else row.stop
    return last - 1, None


def _recoveries(session: LockedSession, turn: int, step: int, stop: Stop | None) -> int:
    """How many replies in a row up to that of `step` were cut or empty."""
    found = 0
    while stop in TO_RECOVER:
        found += 1
        at = {"of_sid": session.sid, "of_turn": turn, "of_step": step - found}
        stop = _STOP.scalar(session.tx.connection, at)
    return found


def prepare(
    tx: Tx,
    request: PrepareStep,
    placement: Placement,
    model: str,
    frame: Frame | None = None,
) -> ContextHead:
    """Close the step before, admit steered messages, and record what this step will read.

    `frame` is what the request has to fit into; without one nothing is measured.
    """
    session = LockedSession(tx, SessionKey(request.tenant, request.session))
    key = {"of_sid": session.sid, "of_turn": request.turn, "of_step": request.step}
    made = _STEP.first(tx.connection, key)
    cancelled = session.cancel_turn == request.turn
    if made is not None:
        # The row answers anyone, but the work below it is done for whoever hosts now, and
        # a cancel since then holds.
        reruns = made.reruns
        if made.state != "prepared" or made.error is None:
            # One that only waited for a budget ended no worker.
            reruns += 1
            _RERUN.run(tx.connection, {**key, "reruns": reruns})
        hosts = (session.host_epoch, session.open_turn) == (request.epoch, request.turn)
        if session.wake_at is not None and hosts:
            # Whoever comes next signals, as below.
            session.wake_at = None
            session.save()
        head = replace(
            context_head(made.context),
            epoch=request.epoch,
            cancelled=cancelled,
            reruns=reruns,
            budgeted=bool(session.budgeted),
        )
        if frame is not None and made.state == "prepared":
            head = _with_room(session, head, frame, request.tried)
            session.save()
        return head
    session.demand_host(request.turn, request.epoch)
    if not append_results(session, request.turn, request.step - 1) and request.step > 1:
        _append_nudge(session, request.turn, request.step - 1)
    if request.resting is not None:
        _tell_resting(session, request, model)
    # What arrived is looked at here, so whoever comes next signals. A cancelled turn takes
    # nothing more in: what was said after the cancel is for the next.
    session.wake_at = None
    steered = [
        row
        for row in inbox.waiting(session)
        if row["kind"] == "message" and row["mode"] == "steer" and not cancelled
    ]
    for part, row in enumerate(steered):
        if inbox.can_join(session, row, request.turn):
            _admit(session, row, request.turn, request.step, part)
    sections = None
    if frame is not None:
        if request.step == 1:
            _begin_with(session, frame)
        sections = room.sections(session, frame)
    head = ContextHead(
        tenant=request.tenant,
        session=request.session,
        turn=request.turn,
        step=request.step,
        epoch=request.epoch,
        upto=session.message_pos,
        tokens=session.message_tokens if sections is None else sections.request,
        placement=placement,
        cancelled=cancelled,
        cuts=session.cut_n,
        level="none" if frame is None or sections is None else frame.level(sections.used),
        sections=sections,
        budgeted=bool(session.budgeted),
    )
    _INSERT_STEP.run(
        tx.connection,
        {
            "sid": session.sid,
            "turn": request.turn,
            "step": request.step,
            "context": recorded(head),
            "state": "prepared",
            "attempt": 0,
            "model": model,
            "placement": placement,
            "context_tokens": head.tokens,
        },
    )
    if frame is not None:
        head = _with_room(session, head, frame, request.tried)
    session.save()
    return head


def _begin_with(session: LockedSession, frame: Frame) -> None:
    """What a turn begins with: of earlier turns no more than fits, where its agent wants that."""
    if frame.keeps_newest:
        room.drop_oldest(session, frame)
    overhead = frame.system + frame.tools
    if overhead > OVERHEAD_TOKENS:
        session.tell(
            Draft(
                id=f"turn/{session.open_turn}/overhead",
                type="status",
                turn=session.open_turn or 0,
                body={
                    "text": f"The prompt takes {frame.system:,} tokens of every request, and the"
                    f" tools take {frame.tools:,}."
                },
            )
        )


def _with_room(session: LockedSession, head: ContextHead, frame: Frame, tried: bool) -> ContextHead:
    """`head` with what is due before its request can be sent, if anything is."""
    if head.sections is None or head.cancelled:
        return head
    ordinal = room.due(session, frame, head.sections.used, tried)
    overfull = not ordinal and frame.compaction.enabled and head.sections.request > frame.window
    return replace(head, compaction=ordinal, overfull=overfull) if ordinal or overfull else head


def recorded(head: ContextHead) -> str:
    """A step's context as JSON. `asdict` would copy it deeply, which costs more than all else."""
    sections = vars(head.sections) if head.sections is not None else None
    return json.dumps({**vars(head), "sections": sections})


def context_head(text: str) -> ContextHead:
    """A step's context as recorded."""
    made = json.loads(text)
    if made["sections"] is not None:
        made["sections"] = Sections(**made["sections"])
    return ContextHead(**made)


def append_results(session: LockedSession, turn: int, step: int) -> bool:
    """Put the results of `step` into the transcript as one message, in call order; whether
    it has any."""
    key = {"of_sid": session.sid, "of_turn": turn, "of_step": step}
    rows = _RESULTS.all(session.tx.connection, key)
    if not rows:
        return False
    told = _STEP.one(session.tx.connection, key).results_told
    if not told:
        results = tuple(result_of(row) for row in rows)
        tokens = sum(row.tokens for row in rows)
        session.append(ToolMessage(results=results), turn, step, TOOL_PART, tokens)
        _TOLD.run(session.tx.connection, key)
    return True


def _append_nudge(session: LockedSession, turn: int, step: int) -> None:
    """Tell the model how to go on after a reply that was cut or empty."""
    at = {"of_sid": session.sid, "of_turn": turn, "of_step": step}
    text = nudge(_STOP.scalar(session.tx.connection, at))
    if text is not None:
        session.append(user_text(text), turn, step, NUDGE_PART, len(text) // 4)


def _tell_resting(session: LockedSession, request: PrepareStep, model: str) -> None:
    name = f"turn/{request.turn}/resting/{model}"
    at = {"of_sid": session.sid, "of_event": name}
    if _TOLD_EVENT.first(session.tx.connection, at) is None:
        text = f"Model {request.resting} failed too often of late. Switching to {model}."
        body = {"text": text}
        session.tell(Draft(id=name, type="status", turn=request.turn, step=request.step, body=body))


def result_of(row: Any) -> ToolResult:
    """A call's result; a call that never ended answers so, for no call may stay unanswered."""
    if row.state == "done":
        return ToolResult(
            call_id=row.call_id, name=row.name, text=row.result, failed=bool(row.failed)
        )
    return ToolResult(
        call_id=row.call_id, name=row.name, text="The call did not run to its end.", failed=True
    )


def finish(tx: Tx, request: FinishTurn, terms: Terms) -> Finished:
    """Record the outcome once; decide anew, at each execution, whether the run goes on."""
    session = LockedSession(tx, SessionKey(request.tenant, request.session))
    turn = _TURN.one(tx.connection, {"of_sid": session.sid, "of_turn": request.turn})
    if turn.outcome is None:
        session.demand_host(request.turn, request.epoch)
        _record_outcome(session, request, turn.spec_hash, terms)
    elif session.host_epoch > request.epoch and session.open_turn is not None:
        raise StaleHost(f"Session {request.session} went on to turn {session.open_turn}.")
    more = inbox.let_go(session, request.workflow_id, request.run_id)
    session.save()
    return Finished(more=more)


def _record_outcome(
    session: LockedSession, request: FinishTurn, spec_hash: str, terms: Terms
) -> None:
    connection = session.tx.connection
    at = {"of_sid": session.sid, "of_turn": request.turn}
    # A turn that ends where it was resumed leaves the calls of its last step unanswered.
    append_results(session, request.turn, _LAST_STEP.scalar(connection, at) or 0)
    outcome, reason = stops.outcome_of(session, request)
    reason = reason or _ERROR.scalar(connection, at)
    if reason == UNUSABLE_SETTINGS:
        spec = AgentSpec.model_validate_json(_SPEC.scalar(connection, {"of_hash": spec_hash}))
        reason = spec.settings_error
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
    if session.budgeted:
        asks.close(session)
    inputs, outputs, cost, ended, priced, begun = _USAGE.one(
        connection, {"of_sid": session.sid, "of_turn": request.turn}
    )
    side_journal.close(session, request.turn, terms.meter)
    side = side_journal.paid(connection, session.sid, request.turn)
    if begun is not None:
        # Nobody will hear of this call any more.
        ledger.lose(session, _STEP.one(connection, {**at, "of_step": begun}), terms)
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
                "cost_usd": (cost or 0.0) + (side.cost_usd or 0.0)
                if (priced, side.priced) == (ended, side.calls)
                else None,
                "steps": request.step,
            },
        )
    )


_ERROR = Statement(
    sa.select(_steps.c.error)
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
        if found.step == 1 or _STOP.scalar(connection, before) != "max_tokens":
            break
        found = _SAID.first(connection, before)
    return "".join(reversed(pieces))


def title(message: UserMessage) -> str:
    """The first line of a session's first message, shortened."""
    text = "".join(part.text for part in message.parts if isinstance(part, Text)).strip()
    line = text.splitlines()[0] if text else "untitled"
    return line if len(line) <= TITLE_CHARACTERS else line[: TITLE_CHARACTERS - 1] + "…"
