"""What a step reads: recorded once, with the results, nudges and messages that come before it."""

import json
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from everturn.context.nudges import nudge
from everturn.context.window import Frame, Sections
from everturn.events import Draft
from everturn.messages import (
    ToolMessage,
    UserMessage,
    message_from_json,
    user_text,
)
from everturn.session import ContextHead, Placement, PrepareStep, SessionKey
from everturn_activities.store import StepLayers, inbox, reads, replays, room, schema, snapshots
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import NUDGE_PART, TOOL_PART, LockedSession
from everturn_activities.store.results import result_of
from everturn_activities.store.statement import Statement, insert

TITLE_CHARACTERS = 60
OVERHEAD_TOKENS = 10_000
"""What prompt and tools may take of every request before a watcher is told."""

_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_turn: sa.BindParameter[int] = sa.bindparam("of_turn")
_step: sa.BindParameter[int] = sa.bindparam("of_step")
_steps, _calls = schema.steps, schema.tool_calls
STEP = Statement(
    sa.select(_steps).where(_steps.c.sid == _sid, _steps.c.turn == _turn, _steps.c.step == _step)
)
STOP = Statement(
    sa.select(_steps.c.stop).where(
        _steps.c.sid == _sid, _steps.c.turn == _turn, _steps.c.step == _step
    )
)
LAST_STEP = Statement(
    sa.select(sa.func.max(_steps.c.step)).where(_steps.c.sid == _sid, _steps.c.turn == _turn)
)
RESULTS = Statement(
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
_TOLD_EVENT = Statement(
    sa.select(schema.events.c.event_id).where(
        schema.events.c.sid == _sid, schema.events.c.event_id == sa.bindparam("of_event")
    )
)
_INSERT_STEP = insert(_steps)


def prepare(
    tx: Tx,
    request: PrepareStep,
    placement: Placement,
    model: str,
    frame: Frame | None = None,
    layers: StepLayers | None = None,
) -> ContextHead:
    """Close the step before, admit steered messages, and record what this step will read.

    `frame` is what the request has to fit into; without one nothing is measured. `layers`
    are what its prompt is composed of.
    """
    session = LockedSession(tx, SessionKey(request.tenant, request.session))
    key = {"of_sid": session.sid, "of_turn": request.turn, "of_step": request.step}
    made = STEP.first(tx.connection, key)
    if made is not None:
        return _prepared(session, request, made, frame)
    cancelled = session.cancel_turn == request.turn
    session.demand_host(request.turn, request.epoch)
    if session.replays and not cancelled:
        replays.steer(session, request.step)
    waiting = inbox.waiting(session)
    if not cancelled and _renders(session, request.turn, waiting):
        session.save()
        return _unprepared(request, placement)
    if not append_results(session, request.turn, request.step - 1) and request.step > 1:
        _append_nudge(session, request.turn, request.step - 1)
    if request.resting is not None:
        _tell_resting(session, request, model)
    # What arrived is looked at here, so whoever comes next signals. A cancelled turn takes
    # nothing more in: what was said after the cancel is for the next.
    session.wake_at = None
    steered = [
        row
        for row in waiting
        if row["kind"] == "message" and row["mode"] == "steer" and not cancelled
    ]
    for part, row in enumerate(steered):
        if inbox.can_join(session, row, request.turn):
            admit(session, row, request.turn, request.step, part)
    sections = None
    if frame is not None:
        if request.step == 1 or frame.history.retrim == "step":
            room.fit(session, frame, request.step)
        if request.step == 1:
            _warn_of_overhead(session, frame)
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
        layers=layers.digest if layers is not None else "",
        first=session.sent_first,
        since=session.sent_since,
    )
    if layers is not None:
        snapshots.record(session, layers, request.turn, request.step)
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


def _renders(session: LockedSession, turn: int, waiting: list[dict[str, Any]]) -> bool:
    """Whether an MCP server is to be asked for what this step would read."""
    if session.renders_due:
        return True
    return any(
        row["renders"] and row["mode"] == "steer" and inbox.can_join(session, row, turn)
        for row in waiting
    )


def _unprepared(request: PrepareStep, placement: Placement) -> ContextHead:
    return ContextHead(
        *(request.tenant, request.session, request.turn, request.step, request.epoch, 0, 0),
        placement=placement,
        renders=True,
    )


def _prepared(
    session: LockedSession, request: PrepareStep, made: Any, frame: Frame | None
) -> ContextHead:
    """The step as its row records it. The row answers anyone, but the work below it is done
    for whoever hosts now, and a cancel since then holds."""
    reruns = made.reruns
    if made.state != "prepared" or made.error is None:
        # One that only waited for a budget ended no worker.
        reruns += 1
        key = {"of_sid": session.sid, "of_turn": request.turn, "of_step": request.step}
        _RERUN.run(session.tx.connection, {**key, "reruns": reruns})
    hosts = (session.host_epoch, session.open_turn) == (request.epoch, request.turn)
    if session.wake_at is not None and hosts:
        # What arrived is looked at here, so whoever comes next signals.
        session.wake_at = None
        session.save()
    head = replace(
        context_head(made.context),
        epoch=request.epoch,
        cancelled=session.cancel_turn == request.turn,
        reruns=reruns,
        budgeted=bool(session.budgeted),
    )
    if frame is not None and made.state == "prepared":
        head = _with_room(session, head, frame, request.tried)
        session.save()
    return head


def _warn_of_overhead(session: LockedSession, frame: Frame) -> None:
    if frame.overhead > OVERHEAD_TOKENS:
        session.tell(
            Draft(
                id=f"turn/{session.open_turn}/overhead",
                type="status",
                turn=session.open_turn or 0,
                body={
                    "text": f"The prompt takes {frame.overhead - frame.tools:,} tokens of every"
                    f" request, and the tools take {frame.tools:,}."
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


def admit(session: LockedSession, row: dict[str, Any], turn: int, step: int, part: int) -> None:
    message = message_from_json(row["body"])
    assert isinstance(message, UserMessage)
    session.append(message, turn, step, part, row["tokens"])
    if row["renders"]:
        session.renders_due = 1
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


def append_results(session: LockedSession, turn: int, step: int) -> bool:
    """Put the results of `step` into the transcript as one message, in call order; whether
    it has any."""
    key = {"of_sid": session.sid, "of_turn": turn, "of_step": step}
    rows = RESULTS.all(session.tx.connection, key)
    if not rows:
        return False
    told = STEP.one(session.tx.connection, key).results_told
    if not told:
        results = tuple(result_of(row) for row in rows)
        tokens = sum(row.tokens for row in rows)
        session.append(ToolMessage(results=results), turn, step, TOOL_PART, tokens)
        _TOLD.run(session.tx.connection, key)
    return True


def _append_nudge(session: LockedSession, turn: int, step: int) -> None:
    """Tell the model how to go on after a reply that was cut or empty."""
    at = {"of_sid": session.sid, "of_turn": turn, "of_step": step}
    text = nudge(STOP.scalar(session.tx.connection, at))
    if text is not None:
        session.append(user_text(text), turn, step, NUDGE_PART, len(text) // 4)


def _tell_resting(session: LockedSession, request: PrepareStep, model: str) -> None:
    name = f"turn/{request.turn}/resting/{model}"
    at = {"of_sid": session.sid, "of_event": name}
    if _TOLD_EVENT.first(session.tx.connection, at) is None:
        text = f"Model {request.resting} failed too often of late. Switching to {model}."
        body = {"text": text}
        session.tell(Draft(id=name, type="status", turn=request.turn, step=request.step, body=body))


def prepared(
    connection: sa.Connection, key: SessionKey, turn: int, step: int
) -> ContextHead | None:
    """What a step reads, as recorded; None where it is not prepared."""
    at = {"of_sid": reads.sid_of(connection, key), "of_turn": turn, "of_step": step}
    row = STEP.first(connection, at)
    return context_head(row.context) if row is not None else None


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


def title(message: UserMessage) -> str:
    """The first line of a session's first message that says something, shortened."""
    text = message.said.strip()
    lines = text.splitlines() or ["untitled"]
    # An object as JSON begins with a brace alone.
    line = next((line.strip() for line in lines if any(map(str.isalnum, line))), lines[0])
    return line if len(line) <= TITLE_CHARACTERS else line[: TITLE_CHARACTERS - 1] + "…"
