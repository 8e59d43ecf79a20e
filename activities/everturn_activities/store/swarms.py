"""Swarms: begun, filled, paused, stopped, and what follows once a level of them is worked.

A swarm is kept by a session of its own, on whose budget its items draw.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from everturn.errors import IdempotencyConflict, UsageError
from everturn.session import SessionKey
from everturn.swarms import ITEMS_MAX, StopReason, SwarmHead, SwarmSpec, checked_item
from everturn_activities.store import SessionSettings, accounts, new_sessions, schema
from everturn_activities.store.database import StaleError, Tx
from everturn_activities.store.locked_swarm import ITEM, KEEPER, LockedSwarm, at, locked, one_item
from everturn_activities.store.statement import Statement, insert

_w, _x, _s = schema.swarms, schema.swarm_items, schema.sessions
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_BY_NAMES = sa.select(_x).where(_x.c.sid == _sid, _x.c.level == 0)
_INSERT = insert(_w)
_INSERT_ITEM = insert(_x)
_SKIP = Statement(
    sa.update(_x)
    .where(one_item)
    .values(
        state="skipped",
        outcome=None,
        text=None,
        taken_by=None,
        **{name: sa.bindparam(name) for name in ("reason", "ended_at", "settled")},
    )
)
ROWS_AT_ONCE = 1000


def create(tx: Tx, key: SessionKey, spec: SwarmSpec, settings: SessionSettings) -> None:
    """Begin a swarm without items; one of the same spec is left as it is. Its items' sessions
    are made of `settings`, with folders of their own where these say so."""
    keeper = KEEPER.first(tx.connection, {"of_tenant": key.tenant, "of_id": key.session})
    if keeper is not None and keeper.swarm_sid != keeper.sid:
        raise IdempotencyConflict(
            f"A session is called {key.session!r}; give the swarm another id."
        )
    if keeper is not None:
        if LockedSwarm(tx, keeper.sid).spec != spec or keeper.workspace != settings.workspace:
            raise IdempotencyConflict(
                f"Swarm {key.session!r} was begun with other settings; give a new swarm an id of"
                " its own."
            )
        return
    title = f"Swarm of {spec.agent}"
    sid = new_sessions.create(tx, key, settings, title=title)
    if sid is None:
        raise StaleError
    if spec.budget is not None:
        accounts.put(tx, key.tenant, sid, "session", spec.budget)
        tx.connection.execute(sa.update(_s).where(_s.c.sid == sid).values(budgeted=1))
    tx.connection.execute(sa.update(_s).where(_s.c.sid == sid).values(swarm_sid=sid))
    _INSERT.run(
        tx.connection,
        {
            "sid": sid,
            "body": spec.model_dump_json(),
            "state": "running",
            "created_at": tx.now,
            "wake_at": tx.now,
        },
    )


def add(
    tx: Tx, key: SessionKey, first: int, items: Sequence[Mapping[str, Any]], last: bool
) -> None:
    """Append items from number `first` on; those that are there already must be the same."""
    swarm = locked(tx, key)
    known: int = swarm.row.items
    if first > known + 1:
        raise UsageError(
            f"Swarm {key.session!r} has {known} items, and these begin with number {first}; send"
            f" those from {known + 1} on first."
        )
    if first + len(items) - 1 > ITEMS_MAX:
        raise UsageError(f"A swarm has at most {ITEMS_MAX:,} items; begin another for the rest.")
    prompt, fresh = swarm.spec.prompt, []
    for n, item in enumerate(items, first):
        name = checked_item(prompt, item, n)
        body = json.dumps(item, ensure_ascii=False)
        if n > known:
            fresh.append({"sid": swarm.sid, "level": 0, "n": n, "name": name, "input": body})
        elif ITEM.one(tx.connection, at(swarm.sid, 0, n)).input != body:
            raise IdempotencyConflict(f"Item {n} of swarm {key.session!r} was another before.")
    if fresh and not swarm.open:
        raise UsageError(f"Swarm {key.session!r} takes no more items: it was told the last.")
    _demand_unlike(tx, swarm.sid, fresh)
    _INSERT_ITEM.run(tx.connection, *({**row, "state": "waiting"} for row in fresh))
    closes = last and swarm.open
    values: dict[str, Any] = {
        "items": known + len(fresh),
        "open": int(swarm.open and not last),
    }
    if fresh or closes:
        values["wake_at"] = tx.now
    tx.connection.execute(sa.update(_w).where(_w.c.sid == swarm.sid).values(values))


def _demand_unlike(tx: Tx, sid: int, fresh: Sequence[Mapping[str, Any]]) -> None:
    """Raise UsageError where two items have one id, which names their results."""
    seen: dict[str, int] = {}
    for row in fresh:
        if row["name"] in seen:
            other = seen[row["name"]]
            raise UsageError(f"Items {other} and {row['n']} have the same id {row['name']!r}.")
        seen[row["name"]] = row["n"]
    names = list(seen)
    for begin in range(0, len(names), 500):
        query = _BY_NAMES.where(_x.c.name.in_(names[begin : begin + 500])).limit(1)
        found = tx.connection.execute(query, {"of_sid": sid}).first()
        if found is not None:
            raise UsageError(
                f"Items {found.n} and {seen[found.name]} have the same id {found.name!r}."
            )


def begin(tx: Tx, key: SessionKey) -> SwarmHead:
    """Where the swarm stands for a workflow that begins to work it: what the shards of another
    have taken and not begun waits again."""
    swarm = locked(tx, key)
    tx.connection.execute(
        sa.update(_x)
        .where(_x.c.sid == swarm.sid, _x.c.state == "taken")
        .values(state="waiting", taken_by=None, attempts=_x.c.attempts - 1)
    )
    if swarm.row.begun_at is None:
        tx.connection.execute(sa.update(_w).where(_w.c.sid == swarm.sid).values(begun_at=tx.now))
    return check(tx, key)


def check(tx: Tx, key: SessionKey) -> SwarmHead:
    """Where the swarm stands, and a clean `wake_at`. A level that is worked is followed by the
    one that reduces it, or the swarm is done."""
    swarm = locked(tx, key)
    swarm.wake_at = None
    spec, begun = swarm.spec, swarm.row.begun_at or tx.now
    left = None if spec.deadline_seconds is None else begun + spec.deadline_seconds - tx.now
    if left is not None and left <= 0 and swarm.level == 0:
        swarm.stop("deadline")
        swarm.wake_at = None
    if swarm.state == "stopping":
        _skip(swarm)
    counts = counts_of(tx.connection, swarm.sid, swarm.level)
    waits, works = counts.get("waiting", 0), counts.get("taken", 0) + counts.get("running", 0)
    over = not waits and not works and (not swarm.open or swarm.state == "stopping")
    if over and swarm.state != "done":
        nodes = _next_level(swarm, spec)
        if nodes:
            swarm.state, swarm.level, waits = "running", swarm.level + 1, nodes
        else:
            swarm.state = "done"
        ended = {"level": swarm.level, "ended_at": None if nodes else tx.now, "open": 0}
        tx.connection.execute(sa.update(_w).where(_w.c.sid == swarm.sid).values(ended))
    swarm.save()
    return SwarmHead(
        state=swarm.state,
        waits=waits,
        works=works,
        open=swarm.open,
        shards=spec.shards,
        left_seconds=left if swarm.level == 0 else None,
    )


def _skip(swarm: LockedSwarm) -> None:
    """What waits in a swarm that stops is not worked any more."""
    unbegun = _x.c.state.in_(("waiting", "taken"))
    of_level = sa.and_(_x.c.sid == swarm.sid, _x.c.level == swarm.level, unbegun)
    query = sa.select(_x.c.n).where(of_level).order_by(_x.c.n)
    why, values = _skipped(swarm.reason), []
    for n in swarm.tx.connection.execute(query).scalars().all():
        swarm.settled += 1
        values.append(
            {
                **at(swarm.sid, swarm.level, n),
                "reason": why,
                "ended_at": swarm.tx.now,
                "settled": swarm.settled,
            }
        )
    # Many in one message: a round trip for each of a hundred thousand takes longer than may be.
    for begin in range(0, len(values), ROWS_AT_ONCE):
        _SKIP.run(swarm.tx.connection, *values[begin : begin + ROWS_AT_ONCE])


def _skipped(reason: str | None) -> str:
    match reason:
        case "quorum":
            return "Enough items had completed."
        case "deadline":
            return "The swarm's deadline had passed."
        case "budget":
            return "A budget that the swarm draws on was spent."
        case _:
            return "The swarm was cancelled."


def _next_level(swarm: LockedSwarm, spec: SwarmSpec) -> int:
    """Write the nodes that reduce the level that was worked; how many there are."""
    if spec.reduce is None or swarm.reason not in (None, "quorum"):
        return 0
    connection = swarm.tx.connection
    of_level = sa.and_(_x.c.sid == swarm.sid, _x.c.level == swarm.level)
    rows = connection.execute(sa.select(_x.c.n, _x.c.state).where(of_level).order_by(_x.c.n)).all()
    numbers = [row.n for row in rows if row.state == "done"]
    # Where a node has failed, what is made of the others would pass for what is made of all.
    whole = swarm.level == 0 or len(numbers) == len(rows)
    if not numbers or not whole or (swarm.level > 0 and len(rows) == 1):
        return 0
    level = swarm.level + 1
    nodes = [
        {
            "sid": swarm.sid,
            "level": level,
            "n": n,
            "name": f"r{level}.{n}",
            "input": json.dumps(numbers[begin : begin + spec.fan_in]),
            "state": "waiting",
            # So its session has another name than that of an earlier round.
            "attempts": swarm.row.rounds,
        }
        for n, begin in enumerate(range(0, len(numbers), spec.fan_in), 1)
    ]
    for begin in range(0, len(nodes), ROWS_AT_ONCE):
        _INSERT_ITEM.run(connection, *nodes[begin : begin + ROWS_AT_ONCE])
    return len(nodes)


def pause(tx: Tx, key: SessionKey) -> None:
    swarm = locked(tx, key)
    if swarm.state == "paused":
        return
    if swarm.state != "running":
        raise UsageError(f"Swarm {key.session!r} is {swarm.state}; only a running one can pause.")
    swarm.state = "paused"
    swarm.save()


def resume(tx: Tx, key: SessionKey, retry_failed: bool) -> None:
    """Go on with a paused swarm; with `retry_failed` also with the items of one that is done that
    failed, were cancelled or skipped, and with what could not be reduced."""
    swarm = locked(tx, key)
    if swarm.state == "stopping" or (swarm.state == "done" and not retry_failed):
        mend = "wait until it is done"
        if swarm.state == "done":
            mend = "have what failed worked again by retry_failed (--retry-failed)"
        raise UsageError(f"Swarm {key.session!r} is {swarm.state} and cannot go on; {mend}.")
    if retry_failed:
        if swarm.level and swarm.state != "done":
            raise UsageError(
                f"Swarm {key.session!r} reduces its results; wait until it is done, or cancel it."
            )
        _again(swarm, key)
    elif swarm.state == "running":
        return
    swarm.state, swarm.wake_at = "running", tx.now
    swarm.save()


def _again(swarm: LockedSwarm, key: SessionKey) -> None:
    connection, mine = swarm.tx.connection, _x.c.sid == swarm.sid
    failed = sa.and_(mine, _x.c.level == 0, _x.c.state.in_(("failed", "cancelled", "skipped")))
    found: Any = connection.execute(
        sa.update(_x)
        .where(failed)
        .values(state="waiting", settled=None, reason=None, twin=None, twin_taken_by=None)
    )
    unreduced = sa.select(_x.c.n).where(mine, _x.c.level > 0, _x.c.state != "done").limit(1)
    if not found.rowcount and swarm.state == "done" and not connection.execute(unreduced).first():
        raise UsageError(f"Swarm {key.session!r} has no item that failed or was left out.")
    # What was made of too few results is made anew.
    connection.execute(sa.delete(_x).where(mine, _x.c.level > 0))
    # Nor do they go on under what may have been the reason.
    values: dict[str, Any] = {"spec_hash": None, "reduce_hash": None, "harmless": 0}
    if swarm.state == "done":
        values |= {"level": 0, "begun_at": swarm.tx.now, "ended_at": None}
        values |= {"rounds": swarm.row.rounds + 1}
    swarm.reason = None
    connection.execute(sa.update(_w).where(_w.c.sid == swarm.sid).values(values))


def cancel(tx: Tx, key: SessionKey, reason: StopReason = "cancelled") -> None:
    """Begin no more items; who looks next cancels those under way."""
    swarm = locked(tx, key)
    swarm.stop(reason)
    swarm.save()


def working(connection: sa.Connection, key: SessionKey) -> list[tuple[SessionKey, int]]:
    """The sessions that work a swarm's items just now, with their newest turns."""
    keeper = KEEPER.one(connection, {"of_tenant": key.tenant, "of_id": key.session})
    of_item = sa.or_(
        sa.and_(_x.c.state == "running", _s.c.id == _x.c.child),
        # Also one that works in vain beside an item that is done.
        sa.and_(_x.c.twin_begun == 1, _s.c.id == _x.c.twin, _s.c.open_turn.is_not(None)),
    )
    rows = connection.execute(
        sa.select(_s.c.id, _s.c.turn)
        .select_from(_x.join(_s, sa.and_(_s.c.tenant == key.tenant, of_item)))
        .where(_x.c.sid == keeper.sid)
    ).all()
    return [(SessionKey(key.tenant, row.id), row.turn) for row in rows]


def asleep(connection: sa.Connection, before: float, limit: int) -> list[SessionKey]:
    """Swarms that somebody changed before that time, and no workflow has looked at since."""
    rows = connection.execute(
        sa.select(_s.c.tenant, _s.c.id)
        .join(_w, _w.c.sid == _s.c.sid)
        .where(_w.c.wake_at < before)
        .order_by(_w.c.wake_at)
        .limit(limit)
    )
    return [SessionKey(row.tenant, row.id) for row in rows]


def unended(connection: sa.Connection, after: int, limit: int) -> list[tuple[int, SessionKey]]:
    """Swarms that some workflow must be working, by their numbers, from behind `after` on."""
    rows = connection.execute(
        sa.select(_w.c.sid, _s.c.tenant, _s.c.id)
        .join(_w, _w.c.sid == _s.c.sid)
        .where(_w.c.state != "done", _w.c.sid > after)
        .order_by(_w.c.sid)
        .limit(limit)
    )
    return [(row.sid, SessionKey(row.tenant, row.id)) for row in rows]


def counts_of(connection: sa.Connection, sid: int, level: int) -> dict[str, int]:
    """How many items of a level are in which state."""
    rows = connection.execute(
        sa.select(_x.c.state, sa.func.count())
        .where(_x.c.sid == sid, _x.c.level == level)
        .group_by(_x.c.state)
    )
    return {row[0]: row[1] for row in rows}
