"""What became of a schedule's times: of each the message that it sent, and the turn of that."""

import json
from typing import Any

import sqlalchemy as sa

from everturn.schedules import RunView
from everturn_activities.store import schema
from everturn_activities.store.database import Tx

_f, _i, _t, _s, _e = (
    schema.firings,
    schema.inbox,
    schema.turns,
    schema.sessions,
    schema.events,
)
_worked = (
    sa.select(
        _f,
        _s.c.id.label("session"),
        _i.c.state.label("stands"),
        _i.c.turn,
        _t.c.outcome,
        _t.c.ended_at,
    )
    .outerjoin(_s, _s.c.sid == _f.c.sid)
    .outerjoin(_i, sa.and_(_i.c.sid == _f.c.sid, _i.c.sender_id == _f.c.sender_id))
    .outerjoin(_t, sa.and_(_t.c.sid == _f.c.sid, _t.c.turn == _i.c.turn))
)


def newest(connection: sa.Connection, schedule: int, count: int) -> list[RunView]:
    """The newest times and what became of them, the newest first."""
    query = _worked.where(_f.c.schedule == schedule).order_by(_f.c.at.desc()).limit(count)
    return [_view(connection, row) for row in connection.execute(query).all()]


def decided(connection: sa.Connection, schedule: int, start: float) -> set[float]:
    """The times from then on about which was decided."""
    query = sa.select(_f.c.at).where(_f.c.schedule == schedule, _f.c.by_hand == 0, _f.c.at >= start)
    return set(connection.execute(query).scalars())


def one(connection: sa.Connection, schedule: int, key: str) -> RunView:
    query = _worked.where(_f.c.schedule == schedule, _f.c.key == key)
    return _view(connection, connection.execute(query).one())


def working(connection: sa.Connection, schedule: int) -> Any:
    """The newest message of the schedule that waits for its turn, or whose turn is open."""
    query = (
        _worked.where(
            _f.c.schedule == schedule,
            _f.c.state == "sent",
            sa.or_(
                _i.c.state == "waiting", sa.and_(_i.c.state == "admitted", _t.c.ended_at.is_(None))
            ),
        )
        .order_by(_f.c.at.desc())
        .limit(1)
    )
    return connection.execute(query).first()


def forget(tx: Tx, schedule: int) -> None:
    tx.connection.execute(sa.delete(_f).where(_f.c.schedule == schedule))


def _view(connection: sa.Connection, row: Any) -> RunView:
    cost = None
    if row.outcome is not None:
        finished = (_e.c.sid == row.sid, _e.c.event_id == f"turn/{row.turn}/finished")
        body = connection.execute(sa.select(_e.c.body).where(*finished)).scalar()
        cost = None if body is None else json.loads(body)["cost_usd"]
    return RunView(
        at=row.at,
        state=row.state,
        by_hand=bool(row.by_hand),
        session=row.session,
        message=row.sender_id,
        turn=row.turn,
        outcome=row.outcome,
        cost_usd=cost,
        why=row.why,
    )
