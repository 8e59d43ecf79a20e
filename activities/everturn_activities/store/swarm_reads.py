"""What people and programs read of swarms and their items."""

import json
from typing import Any

import sqlalchemy as sa

from everturn.session import SessionKey
from everturn.swarm_views import ItemView, SwarmCounts, SwarmView
from everturn.swarms import SwarmSpec
from everturn_activities.store import reads, schema, swarms
from everturn_activities.store.locked_swarm import unknown

_w, _x, _s = schema.swarms, schema.swarm_items, schema.sessions
_q, _b = schema.approvals, schema.budget_asks
RECENT = 100
"""How many items tell how fast a swarm is just now."""
_SWARMS = sa.select(_w, _s.c.id, _s.c.workspace).join(_s, _s.c.sid == _w.c.sid)


def view(connection: sa.Connection, key: SessionKey, now: float) -> SwarmView:
    """Raises UnknownSession where there is no such swarm."""
    found = connection.execute(
        _SWARMS.where(_s.c.tenant == key.tenant, _s.c.id == key.session)
    ).first()
    if found is None:
        raise unknown(key)
    return _view(connection, found, now)


def every(
    connection: sa.Connection, tenant: str, limit: int, before: str | None, now: float
) -> list[SwarmView]:
    query = _SWARMS.where(_s.c.tenant == tenant).order_by(_w.c.sid.desc()).limit(limit)
    if before is not None:
        query = query.where(_w.c.sid < reads.sid_of(connection, SessionKey(tenant, before)))
    return [_view(connection, row, now) for row in connection.execute(query).all()]


def _view(connection: sa.Connection, row: Any, now: float) -> SwarmView:
    spec = SwarmSpec.model_validate_json(row.body)
    seconds, text = spec.deadline_seconds, None
    if row.state == "done" and row.level:
        # Of several nodes none is the result of all: one of them has failed.
        top = sa.and_(_x.c.sid == row.sid, _x.c.level == row.level)
        made = connection.execute(sa.select(_x.c.state, _x.c.text).where(top).limit(2)).all()
        text = made[0].text if len(made) == 1 and made[0].state == "done" else None
    counts = _counts(swarms.counts_of(connection, row.sid, 0))
    rate = _rate(connection, row, counts, now)
    asking = () if row.state == "done" else _asking(connection, row.sid)
    return SwarmView(
        id=row.id,
        state=row.state,
        reason=row.reason,
        spec=spec,
        workspace=row.workspace,
        items=row.items,
        open=bool(row.open),
        counts=counts,
        reducing=row.level,
        text=text,
        cost_usd=round(row.cost_usd, 12),
        created_at=row.created_at,
        begun_at=row.begun_at,
        ended_at=row.ended_at,
        deadline_at=None if seconds is None else (row.begun_at or row.created_at) + seconds,
        asking=asking,
        items_per_second=rate,
        left_seconds=None if 0 < counts.running <= len(asking) else _left(row, spec, counts, rate),
        seen=_seen(row, counts, asking),
    )


def _seen(row: Any, counts: SwarmCounts, asking: tuple[str, ...]) -> str:
    numbers = (*counts.model_dump().values(), row.items, row.open, row.level, len(asking))
    return f"{row.state}.{'.'.join(str(number) for number in numbers)}"


def _rate(connection: sa.Connection, row: Any, counts: SwarmCounts, now: float) -> float | None:
    """How many items ended in a second: among the last hundred, or in all once none is left."""
    if row.begun_at is None or row.state == "paused" or (row.level and row.state != "done"):
        return None
    if row.state == "done":
        worked = counts.done + counts.failed + counts.cancelled
        since = row.begun_at
    else:
        last = sa.and_(_x.c.sid == row.sid, _x.c.level == 0, _x.c.ended_at > row.begun_at)
        recent = last & (_x.c.settled > row.settled - RECENT) & (_x.c.state != "skipped")
        query = sa.select(sa.func.count(), sa.func.min(_x.c.ended_at)).where(recent)
        worked, first = connection.execute(query).one()
        since = first if worked == RECENT else row.begun_at
    lasted = (row.ended_at or now) - since
    return round(worked / lasted, 3) if worked and lasted > 0 else None


def _left(row: Any, spec: SwarmSpec, counts: SwarmCounts, rate: float | None) -> float | None:
    if rate is None or row.state != "running" or row.open:
        return None
    left = counts.waiting + counts.running
    if spec.quorum is not None:
        left = min(left, max(spec.quorum - counts.done, 0))
    return round(left / rate, 1)


def _asking(connection: sa.Connection, sid: int) -> tuple[str, ...]:
    """The items' sessions that ask a person something."""
    asked = sa.union(
        sa.select(_q.c.sid).where(_q.c.state == "open"),
        sa.select(_b.c.sid).where(_b.c.state == "open"),
    ).subquery()
    query = (
        sa.select(_s.c.id)
        .join(asked, asked.c.sid == _s.c.sid)
        .where(_s.c.swarm_sid == sid)
        .order_by(_s.c.sid)
    )
    return tuple(connection.execute(query).scalars())


def _counts(found: dict[str, int]) -> SwarmCounts:
    # What a shard has taken waits for one of its places.
    waiting = found.get("waiting", 0) + found.pop("taken", 0)
    return SwarmCounts(**{**found, "waiting": waiting})


def items(
    connection: sa.Connection, key: SessionKey, after: int, limit: int, state: str | None
) -> list[ItemView]:
    query = _of(connection, key).where(_x.c.n > after).order_by(_x.c.n).limit(limit)
    if state is not None:
        query = query.where(_x.c.state.in_((state, "taken") if state == "waiting" else (state,)))
    return [_item(row) for row in connection.execute(query).all()]


def results(connection: sa.Connection, key: SessionKey, after: int, limit: int) -> list[ItemView]:
    query = _of(connection, key).where(_x.c.settled > after).order_by(_x.c.settled).limit(limit)
    return [_item(row) for row in connection.execute(query).all()]


def results_in_order(
    connection: sa.Connection, key: SessionKey, after: int, limit: int
) -> list[ItemView]:
    """Items by their numbers, from the one behind `after` on, as far as all have ended."""
    query = _of(connection, key).where(_x.c.n > after).order_by(_x.c.n).limit(limit)
    found = []
    with connection.execute(query) as rows:
        for row in rows:
            if row.settled is None:
                break
            found.append(_item(row))
    return found


def _of(connection: sa.Connection, key: SessionKey) -> Any:
    sid = connection.execute(
        sa.select(_w.c.sid)
        .join(_s, _s.c.sid == _w.c.sid)
        .where(_s.c.tenant == key.tenant, _s.c.id == key.session)
    ).scalar()
    if sid is None:
        raise unknown(key)
    return sa.select(_x).where(_x.c.sid == sid, _x.c.level == 0)


def _item(row: Any) -> ItemView:
    ended = row.ended_at is not None and row.begun_at is not None and row.settled is not None
    return ItemView(
        id=row.name,
        n=row.n,
        state="waiting" if row.state == "taken" else row.state,
        session=None if row.state == "taken" else row.child,
        outcome=row.outcome,
        reason=row.reason,
        text=row.text,
        result=_parsed(row.text),
        attempts=row.attempts,
        steps=row.steps,
        cost_usd=round(row.cost_usd, 12),
        seconds=round(row.ended_at - row.begun_at, 3) if ended else None,
        settled=row.settled,
    )


def _parsed(text: str | None) -> Any:
    """An answer that is a JSON object, which agents with an output schema give."""
    if text is None or not text.startswith("{"):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
