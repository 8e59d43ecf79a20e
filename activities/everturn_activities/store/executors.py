"""Executors of a session: tasks handed on, as many at once as may be, each reported once.

A task is a row from the moment that its call is known. The parent's transaction begins it;
what follows, the child's session and its message, is one of its own, which can be repeated.
Whoever holds a child's row may lock its parent's after it, and never the other way round.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from everturn.context.projection import IMPORTED
from everturn.events import Draft
from everturn.executors import (
    REPORT_BYTES,
    Delegation,
    ExecutorReport,
    came_back,
    works_on,
)
from everturn.messages import message_from_json, user_text
from everturn.session import Delegated, RunTools, SessionKey
from everturn_activities.capped import capped, with_way_on
from everturn_activities.store import Handed, Inbound, Wake, accounts, inbox, schema, tool_journal
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.metering import Meter
from everturn_activities.store.statement import Statement, insert

TASK_CHARACTERS = 300
"""Of a task, as watchers of the parent are told of it."""

_x, _s, _i, _m = schema.executors, schema.sessions, schema.inbox, schema.messages
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_undone = sa.or_(_x.c.state == "waits", _x.c.state == "begun", _x.c.state == "running")
_of_step = sa.and_(
    _x.c.sid == _sid, _x.c.turn == sa.bindparam("of_turn"), _x.c.step == sa.bindparam("of_step")
)
_one = sa.and_(_of_step, _x.c.idx == sa.bindparam("of_index"))
_INSERT = insert(_x)
_OF_STEP = Statement(sa.select(_x).where(_of_step).order_by(_x.c.idx))
_UNDONE = Statement(
    sa.select(_x).where(_x.c.sid == _sid, _undone).order_by(_x.c.turn, _x.c.step, _x.c.idx)
)
# Of an executor's tasks those that one of its turns has worked.
_WORKED = Statement(
    sa.select(_x)
    .join(_i, _i.c.sender_id == _x.c.sender_id)
    .where(
        _x.c.sid == _sid,
        _x.c.child == sa.bindparam("of_child"),
        _i.c.sid == sa.bindparam("of_child_sid"),
        _i.c.turn == sa.bindparam("of_turn"),
        sa.or_(_x.c.state == "begun", _x.c.state == "running"),
    )
    .order_by(_x.c.turn, _x.c.step, _x.c.idx)
)
_KNOWN = Statement(
    sa.select(_x.c.child).where(_x.c.sid == _sid, _x.c.child == sa.bindparam("of_child")).limit(1)
)
_BEGIN = Statement(
    sa.update(_x).where(_one).values(state="begun", begun_at=sa.bindparam("begun_at"))
)
_RUN = Statement(sa.update(_x).where(_one, _x.c.state == "begun").values(state="running"))
_END = Statement(
    sa.update(_x)
    .where(_one)
    .values({name: sa.bindparam(name) for name in ("state", "outcome", "ended_at")})
)
_UNDELIVERED = (
    sa.select(_x, _s.c.tenant, _s.c.id.label("parent"))
    .join(_s, _s.c.sid == _x.c.sid)
    .where(_x.c.state == "begun")
    .limit(100)
)
_TAIL = Statement(
    sa.select(_m)
    .where(_m.c.sid == _sid, _m.c.said == 1)
    .order_by(_m.c.position.desc())
    .limit(sa.bindparam("most"))
)
_OUTCOME = Statement(
    sa.select(schema.turns.c.outcome).where(
        schema.turns.c.sid == _sid, schema.turns.c.turn == sa.bindparam("of_turn")
    )
)
_SESSION = Statement(
    sa.select(_s).where(_s.c.tenant == sa.bindparam("of_tenant"), _s.c.id == sa.bindparam("of_id"))
)


def hand_over(
    tx: Tx,
    request: RunTools,
    width: int,
    tasks: Sequence[Delegation],
    refused: Mapping[int, str],
) -> list[Handed]:
    """Write the tasks of a step's calls down, each once, and begin as many as may be at once.

    Calls in `refused` are answered with why. A turn that was cancelled begins none.
    """
    session = LockedSession(tx, SessionKey(request.tenant, request.session))
    session.demand_host(request.turn, request.epoch)
    for index, why in refused.items():
        tool_journal.answer_call(session, request.turn, request.step, index, why)
    rows = _OF_STEP.all(tx.connection, _at(session.sid, request.turn, request.step))
    known = {row.idx for row in rows}
    for task in tasks:
        if task.index not in known:
            _write(session, request.turn, request.step, width, task)
    handed = begin_next(session)
    session.save()
    return handed


def is_executor(connection: sa.Connection, sid: int, child: str) -> bool:
    """Whether the session has handed work to `child` before."""
    return _KNOWN.first(connection, {"of_sid": sid, "of_child": child}) is not None


def check(connection: sa.Connection, sid: int, turn: int, step: int) -> Delegated:
    """How many of a step's executors that are waited for have not reported yet."""
    rows = _OF_STEP.all(connection, _at(sid, turn, step))
    awaited = [row for row in rows if not row.background]
    return Delegated(
        left=sum(row.state not in ("done", "dropped") for row in awaited),
        failed=sum(row.outcome not in (None, "completed") for row in awaited),
    )


def open_child(tx: Tx, handed: Handed, meter: Meter) -> Wake | None:
    """Give an executor its session and its task, and say whom to wake then.

    Repeating it changes nothing. Where somebody else's session has the executor's name, the
    call is answered with that.
    """
    key = SessionKey(handed.parent.tenant, handed.delegation.executor)
    parent = _SESSION.one(tx.connection, _named(handed.parent))
    child = _SESSION.first(tx.connection, _named(key))
    if child is not None and child.parent_sid != parent.sid:
        return _refuse(tx, handed)
    if child is None:
        _create(tx, parent, key, handed.delegation)
    message = user_text(handed.delegation.task)
    inbound = Inbound(
        id=handed.sender_id,
        kind="message",
        message=message,
        agent=handed.delegation.agent,
        model=handed.delegation.model,
    )
    accepted = inbox.accept(tx, key, inbound, meter.tokens(handed.delegation.task))
    at = _at(parent.sid, handed.turn, handed.step, handed.delegation.index)
    _RUN.run(tx.connection, at)
    return accepted.wake


def reported(
    session: LockedSession, turn: int, report: ExecutorReport, meter: Meter
) -> Wake | None:
    """Tell the parent what became of the tasks that `turn` of its executor has worked, and say
    whom to wake."""
    parent = session.parent
    at = {"of_sid": parent.sid, "of_child": session.key.session}
    at |= {"of_child_sid": session.sid, "of_turn": turn}
    rows = _WORKED.all(session.tx.connection, at)
    for row in rows:
        ended = {"state": "done", "outcome": report.outcome, "ended_at": session.tx.now}
        _END.run(session.tx.connection, {**_place(row), **ended})
    wake = None
    for row in rows:
        wake = _report(parent, row, report, meter) or wake
    return wake


def begin_next(session: LockedSession) -> list[Handed]:
    """Begin the tasks of a session that there is a place for, in order, and return all that are
    on their way."""
    rows = _UNDONE.all(session.tx.connection, {"of_sid": session.sid})
    working = sum(row.state != "waits" for row in rows)
    handed = [_handed(session.key, row) for row in rows if row.state == "begun"]
    for row in rows:
        if row.state != "waits" or working >= row.width:
            continue
        if not row.background and session.cancel_turn == row.turn:
            continue
        working += 1
        _BEGIN.run(session.tx.connection, {**_place(row), "begun_at": session.tx.now})
        handed.append(_handed(session.key, row))
        session.tell(_started(row))
    return handed


def left(session: LockedSession, turn: int, outcome: str) -> list[SessionKey]:
    """The executors that a turn which is over waited for, and all of one that was rolled back:
    they are to be cancelled. Its tasks that had no place yet are dropped."""
    found = []
    for row in _UNDONE.all(session.tx.connection, {"of_sid": session.sid}):
        if row.turn != turn or (row.background and outcome != "rolled_back"):
            continue
        if row.state == "waits":
            ended = {"state": "dropped", "outcome": "cancelled", "ended_at": session.tx.now}
            _END.run(session.tx.connection, {**_place(row), **ended})
        else:
            found.append(SessionKey(session.key.tenant, row.child))
    return found


def undelivered(connection: sa.Connection, before: float) -> list[Handed]:
    """Tasks begun before that time whose executors may not have them: who sent them crashed."""
    rows = connection.execute(_UNDELIVERED.where(_x.c.begun_at < before)).all()
    return [_handed(SessionKey(row.tenant, row.parent), row) for row in rows]


def _write(session: LockedSession, turn: int, step: int, width: int, task: Delegation) -> None:
    _INSERT.run(
        session.tx.connection,
        {
            "sid": session.sid,
            "turn": turn,
            "step": step,
            "idx": task.index,
            "child": task.executor,
            "sender_id": f"delegate/{turn}.{step}.{task.index}",
            "body": task.model_dump_json(),
            "background": int(task.background),
            "width": width,
            "state": "waits",
            "created_at": session.tx.now,
        },
    )
    tool_journal.begin_delegated(session, turn, step, task.index)
    if task.background:
        text = works_on(task.executor)
        tool_journal.answer_call(session, turn, step, task.index, text, failed=False)


def _create(tx: Tx, parent: Any, key: SessionKey, task: Delegation) -> None:
    """The executor's session: its parent's folder and user, its share of the parent's budget,
    and the last of what was said there."""
    values = {
        "budgeted": parent.budgeted,
        "tenant": key.tenant,
        "id": key.session,
        "created_at": tx.now,
        "updated_at": tx.now,
        "agent": task.agent,
        "model": task.model,
        "workspace": parent.workspace,
        "working_dir": parent.own_dir or parent.working_dir,
        "home": parent.home,
        "user": parent.user,
        "parent_sid": parent.sid,
        "priority": parent.priority,
        "rules": task.rules.model_dump_json(),
    }
    tx.connection.execute(sa.insert(_s), values)
    session = LockedSession(tx, key)
    accounts.open_below(tx, key.tenant, parent.sid, session.sid)
    if not task.tail:
        return
    told = _TAIL.all(tx.connection, {"of_sid": parent.sid, "most": task.tail})
    for part, row in enumerate(reversed(told)):
        message = message_from_json(row.body)
        session.append(message, turn=IMPORTED, step=0, part=part, tokens=row.tokens)
    session.save()


def _refuse(tx: Tx, handed: Handed) -> Wake | None:
    session = LockedSession(tx, handed.parent)
    index, name = handed.delegation.index, handed.delegation.executor
    at = _at(session.sid, handed.turn, handed.step, index)
    _END.run(tx.connection, {**at, "state": "done", "outcome": "failed", "ended_at": tx.now})
    if session.open_turn == handed.turn:
        why = f"The executor cannot work: a session of somebody else's is called {name!r}."
        tool_journal.answer_call(session, handed.turn, handed.step, index, why)
    wake = inbox.rouse(session)
    session.save()
    return wake


def _report(parent: LockedSession, row: Any, report: ExecutorReport, meter: Meter) -> Wake | None:
    late = not row.background and parent.open_turn != row.turn
    if row.background:
        # What a turn did that was rolled back is nobody's to hear of.
        at = {"of_sid": row.sid, "of_turn": row.turn}
        late = _OUTCOME.scalar(parent.tx.connection, at) == "rolled_back"
    parent.tell(_finished(row, report, late))
    if late:
        return None
    whole = came_back(row.child, report)
    text = capped(whole, REPORT_BYTES)
    if row.background:
        inbound = Inbound(
            id=f"executor/{row.child}/{row.sender_id}",
            kind="message",
            message=user_text(text),
            mode="steer",
        )
        return inbox.put(parent, inbound, meter.tokens(text)).wake
    if Delegation.model_validate_json(row.body).reads_on:
        place = f"{row.turn}.{row.step}.{row.idx}"
        text = with_way_on(text, place)
    tool_journal.answer_call(
        parent,
        row.turn,
        row.step,
        row.idx,
        text,
        failed=not report.done,
        tokens=meter.tokens(text),
        whole=whole if text != whole else None,
    )
    # A parent hears of the last one only: its history does not grow with their number.
    waits = check(parent.tx.connection, parent.sid, row.turn, row.step).left
    return None if waits else inbox.rouse(parent)


def _started(row: Any) -> Draft:
    task = Delegation.model_validate_json(row.body)
    text = task.task
    return Draft(
        id=f"executor/{row.turn}.{row.step}.{row.idx}/started",
        type="executor_started",
        turn=row.turn,
        step=row.step,
        body={
            "executor": row.child,
            "index": row.idx,
            "agent": task.agent,
            "task": text if len(text) <= TASK_CHARACTERS else f"{text[: TASK_CHARACTERS - 1]}…",
            "background": bool(row.background),
        },
    )


def _finished(row: Any, report: ExecutorReport, late: bool) -> Draft:
    return Draft(
        id=f"executor/{row.turn}.{row.step}.{row.idx}/finished",
        type="executor_finished",
        turn=row.turn,
        step=row.step,
        body={
            "executor": row.child,
            "index": row.idx,
            "outcome": report.outcome,
            "reason": report.reason,
            "steps": report.steps,
            "cost_usd": report.cost_usd,
            "late": late,
        },
    )


def _handed(parent: SessionKey, row: Any) -> Handed:
    task = Delegation.model_validate_json(row.body)
    return Handed(parent, row.turn, row.step, row.sender_id, task)


def _at(sid: int, turn: int, step: int, index: int | None = None) -> dict[str, Any]:
    at = {"of_sid": sid, "of_turn": turn, "of_step": step}
    return at if index is None else {**at, "of_index": index}


def _place(row: Any) -> dict[str, Any]:
    return _at(row.sid, row.turn, row.step, row.idx)


def _named(key: SessionKey) -> dict[str, str]:
    return {"of_tenant": key.tenant, "of_id": key.session}
