"""Stragglers of a swarm: worked a second time beside, where that can do no harm.

The second session of an item is its twin. The first of the two that answers is the item's, and
the other is cancelled; one that fails leaves it to the other.
"""

import statistics
from typing import Any

import sqlalchemy as sa

from everturn.swarms import ItemRef, Taken
from everturn_activities.store import schema
from everturn_activities.store.locked_swarm import LockedSwarm, at, one_item
from everturn_activities.store.statement import Statement

SAMPLE = 50
"""Of the items that ended last, whose median tells how long one takes."""
SAMPLE_MIN = 3
SECONDS_MIN = 1.0
"""Nothing is gained where an item takes less."""

_x = schema.swarm_items
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_TAKEN = Statement(
    sa.select(_x).where(
        _x.c.sid == _sid,
        _x.c.twin_taken_by == sa.bindparam("of_taking"),
        _x.c.twin.is_not(None),
    )
)
_OF_TWIN = Statement(sa.select(_x).where(_x.c.sid == _sid, _x.c.twin == sa.bindparam("of_child")))
_LAST = Statement(
    sa.select(_x.c.ended_at - _x.c.begun_at)
    .where(_x.c.sid == _sid, _x.c.level == 0, _x.c.settled.is_not(None), _x.c.state == "done")
    .order_by(_x.c.settled.desc())
    .limit(SAMPLE)
)
_ALONE = Statement(
    sa.select(_x)
    .where(_x.c.sid == _sid, _x.c.level == 0, _x.c.state == "running", _x.c.twin_taken_by.is_(None))
    .order_by(_x.c.begun_at)
)
_HEDGE = Statement(
    sa.update(_x)
    .where(one_item)
    .values(twin=sa.bindparam("twin"), twin_taken_by=sa.bindparam("twin_taken_by"), twin_begun=0)
)
_BEGUN = Statement(sa.update(_x).where(one_item).values(twin_begun=1))
_LEFT = Statement(
    sa.update(_x)
    .where(one_item)
    .values({name: sa.bindparam(name) for name in ("child", "twin", "steps", "cost_usd")})
)

_WON = Statement(
    sa.update(_x).where(one_item).values(child=sa.bindparam("child"), twin=sa.bindparam("twin"))
)
# What stands in `twin_taken_by` keeps the item from being worked beside once more.
_DROP = Statement(sa.update(_x).where(one_item).values(twin=None))


def taken(swarm: LockedSwarm, taking: str) -> list[ItemRef]:
    rows = _TAKEN.all(swarm.tx.connection, {"of_sid": swarm.sid, "of_taking": taking})
    return [ItemRef(row.level, row.n, row.twin) for row in rows]


def take(swarm: LockedSwarm, taking: str, most: int) -> Taken | None:
    """Items that take too long, to be worked beside, once no other waits; None where there is
    nothing to look after."""
    factor = swarm.spec.hedge
    if factor is None or not swarm.row.harmless or swarm.level:
        return None
    connection, mine = swarm.tx.connection, {"of_sid": swarm.sid}
    alone = _ALONE.all(connection, mine)
    if not alone:
        return None
    lasted = [row[0] for row in _LAST.all(connection, mine)]
    if len(lasted) < SAMPLE_MIN:
        return Taken([], "wait", wait_seconds=SECONDS_MIN)
    patience = max(factor * statistics.median(lasted), SECONDS_MIN)
    late = [row for row in alone if swarm.tx.now - row.begun_at >= patience][:most]
    if not late:
        begun_at: float = alone[0].begun_at
        wait = max(begun_at + patience - swarm.tx.now, 0.1)
        return Taken([], "wait", wait_seconds=wait)
    for row in late:
        twin = {"twin": f"{row.child}h", "twin_taken_by": taking}
        _HEDGE.run(connection, {**at(swarm.sid, row.level, row.n), **twin})
    return Taken([ItemRef(row.level, row.n, f"{row.child}h") for row in late], "more")


def begun(connection: sa.Connection, row: Any) -> None:
    _BEGUN.run(connection, at(row.sid, row.level, row.n))


def drop(connection: sa.Connection, row: Any) -> None:
    """Leave the item to its first session: no other could be begun."""
    _DROP.run(connection, at(row.sid, row.level, row.n))


def of_twin(connection: sa.Connection, named: dict[str, Any]) -> Any:
    """The item whose twin has that name."""
    return _OF_TWIN.first(connection, named)


def other(row: Any, name: str) -> str | None:
    """The session that works the item beside the one of that name."""
    if not row.twin_begun or row.twin is None:
        return None
    found: str = row.child if name == row.twin else row.twin
    return found


def went(connection: sa.Connection, row: Any, name: str | None, paid: dict[str, Any]) -> None:
    """Count what one of the two cost that does not decide; one of that `name` is the item's no
    more."""
    child = row.twin if name == row.child else row.child
    twin = None if name is not None else row.twin
    _LEFT.run(connection, {**at(row.sid, row.level, row.n), "child": child, "twin": twin, **paid})


def won(connection: sa.Connection, row: Any, name: str, loser: str) -> None:
    """The item is that session's; the other keeps its place, for what it costs."""
    _WON.run(connection, {**at(row.sid, row.level, row.n), "child": name, "twin": loser})
