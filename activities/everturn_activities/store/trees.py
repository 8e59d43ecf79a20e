"""Who works below a session: the turns of its executors, and for which of its steps each was."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from everturn.session import SessionKey
from everturn_activities.store import ExecutorTurn, schema

_x, _s, _i = schema.executors, schema.sessions, schema.inbox
# A task that has not reached its executor yet has no row there, and one that no turn has taken
# up has no turn.
_BELOW = (
    sa.select(
        *(_x.c.sid.label("above"), _x.c.turn, _x.c.step, _x.c.child, _s.c.sid, _s.c.tenant),
        *(_i.c.turn.label("worked"), _s.c.open_turn),
    )
    .join(_s, sa.and_(_s.c.parent_sid == _x.c.sid, _s.c.id == _x.c.child))
    .join(_i, sa.and_(_i.c.sid == _s.c.sid, _i.c.sender_id == _x.c.sender_id))
    .where(_i.c.state != "rolled_back")
    .order_by(_x.c.turn, _x.c.step, _x.c.idx)
)

Place = tuple[int, int]


def below(connection: sa.Connection, sid: int, since: Place) -> list[ExecutorTurn]:
    """The turns that executors of the session, and theirs, worked for its steps from `since` on."""
    found: list[ExecutorTurn] = []
    # The step of the session above all, by session and turn.
    level: dict[int, Mapping[int, Place] | None] = {sid: None}
    while level:
        rows = connection.execute(_BELOW.where(_x.c.sid.in_(level))).all()
        under: dict[int, dict[int, Place]] = {}
        for row in rows:
            place = _place(level[row.above], row)
            if place is None or place < since:
                continue
            turn = row.worked or 0
            key = SessionKey(row.tenant, row.child)
            works = row.worked is None or row.open_turn == row.worked
            found.append(ExecutorTurn(key, turn, place, works))
            under.setdefault(row.sid, {}).setdefault(turn, place)
        level = dict(under)
    return found


def _place(places: Mapping[int, Place] | None, row: Any) -> Place | None:
    return (row.turn, row.step) if places is None else places.get(row.turn)
