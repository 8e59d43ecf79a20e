"""Tasks as their senders read them."""

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from everturn.errors import UnknownTask
from everturn.tasks import AttemptView, NewTask, TaskState, TaskView
from everturn_activities.store import outbox, schema
from everturn_activities.store.tasks import unknown

_t, _a, _s, _i = schema.tasks, schema.task_attempts, schema.sessions, schema.inbox
_asks = [
    sa.exists().where(table.c.sid == _t.c.sid, table.c.state == "open")
    for table in (schema.approvals, schema.budget_asks)
]
_view = sa.select(
    _t,
    _s.c.id.label("session"),
    _s.c.agent,
    _s.c.model,
    _s.c.open_turn,
    sa.or_(*_asks).label("asks"),
).join(_s, _s.c.sid == _t.c.sid)
# What of `begun` is under way; the others stand in line.
_STATES: dict[TaskState, sa.ColumnElement[bool]] = {
    "waiting": _t.c.state == "waits",
    "queued": sa.and_(_t.c.state == "begun", _s.c.open_turn.is_(None)),
    "running": sa.and_(_t.c.state == "begun", _s.c.open_turn.is_not(None)),
    "done": _t.c.state == "done",
    "dead": _t.c.state == "dead",
    "cancelled": _t.c.state == "cancelled",
}


def one(connection: sa.Connection, tenant: str, name: str) -> TaskView:
    """The task of that id, with its webhooks; raises UsageError where there is none."""
    row = connection.execute(_view.where(_t.c.tenant == tenant, _t.c.id == name)).first()
    if row is None:
        raise UnknownTask(unknown(name))
    (made,) = _made(connection, [row])
    return made.model_copy(update={"webhooks": outbox.of_session(connection, row.sid)})


def listed(
    connection: sa.Connection, tenant: str, state: TaskState | None, limit: int, before: str | None
) -> list[TaskView]:
    """The tenant's tasks, the newest first, older than `before`."""
    query = _view.where(_t.c.tenant == tenant).order_by(_t.c.n.desc()).limit(limit)
    if state is not None:
        query = query.where(_STATES[state])
    if before is not None:
        last = sa.select(_t.c.n).where(_t.c.tenant == tenant, _t.c.id == before)
        query = query.where(_t.c.n < last.scalar_subquery())
    return _made(connection, connection.execute(query).all())


def _made(connection: sa.Connection, rows: Sequence[Any]) -> list[TaskView]:
    attempts: dict[int, list[Any]] = {row.n: [] for row in rows}
    turns = (
        sa.select(_a, _i.c.turn.label("in_turn"), _i.c.state.label("message"))
        .join(_t, _t.c.n == _a.c.task)
        .join(
            _i,
            sa.and_(
                _i.c.sid == _t.c.sid,
                _i.c.sender_id == sa.literal("attempt/") + sa.cast(_a.c.attempt, sa.Text),
            ),
        )
        .where(_a.c.task.in_(attempts))
        .order_by(_a.c.task, _a.c.attempt)
    )
    for attempt in connection.execute(turns):
        attempts[attempt.task].append(attempt)
    return [_task(row, attempts[row.n]) for row in rows]


def _task(row: Any, attempts: Sequence[Any]) -> TaskView:
    new = NewTask.model_validate_json(row.body)
    used = row.attempt - row.first + 1
    state: TaskState = row.state
    if row.state == "waits":
        state = "waiting"
    elif row.state == "begun":
        state = "queued" if row.open_turn is None else "running"
    return TaskView(
        id=row.id,
        session=row.session,
        state=state,
        reason=row.reason,
        result=_result(row.result, new),
        waits_for_person=bool(row.asks) and state == "running",
        priority=new.priority,
        agent=row.agent,
        model=row.model,
        labels=new.labels,
        attempts=tuple(_attempt(each) for each in attempts),
        attempts_left=max(0, new.retry.attempts_max - used),
        cost_usd=sum(each.cost_usd or 0.0 for each in attempts),
        created_at=row.created_at,
        due_at=row.due_at,
        deadline=row.deadline,
        ended_at=row.ended_at,
    )


def _attempt(row: Any) -> AttemptView:
    return AttemptView(
        attempt=row.attempt,
        turn=row.turn or (None if row.message == "waiting" else row.in_turn),
        begun_at=row.begun_at,
        ended_at=row.ended_at,
        outcome=row.outcome,
        reason=row.reason,
        cost_usd=row.cost_usd,
    )


def _result(text: str | None, task: NewTask) -> Any:
    if text is None or task.output is None:
        return text
    try:
        return json.loads(text)
    except ValueError:
        # What was cut short of a limit of ours is shown as it is.
        return text
