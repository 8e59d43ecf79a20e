"""A swarm's items: taken by shards, opened as sessions, settled where their turns end, once.

Locks are taken from an item's session to its swarm's row and never the other way round: taking
items locks no session, and what they need is opened in a transaction of its own.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from everturn.agents import AgentSpec
from everturn.errors import UsageError
from everturn.executors import ExecutorReport
from everturn.folders import FolderKind
from everturn.messages import user_text
from everturn.session import SessionKey
from everturn.swarms import (
    RETRIED,
    GiveUpItem,
    ItemRef,
    SwarmSpec,
    TakeItems,
    Taken,
    filled,
    reduce_prompt,
    session_of,
)
from everturn_activities.store import (
    Inbound,
    SessionSettings,
    accounts,
    hedges,
    inbox,
    new_sessions,
    schema,
)
from everturn_activities.store.database import StaleError, Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.locked_swarm import (
    ITEM,
    KEEPER,
    SETTLE,
    LockedSwarm,
    at,
    leave,
    locked,
    one_item,
)
from everturn_activities.store.metering import Meter
from everturn_activities.store.specs import keep
from everturn_activities.store.statement import Statement

OwnPath = Callable[[SessionKey, FolderKind, Path], Path | None]
"""Where a session's own folder is to be, None where it works in the one that is given; raises
UsageError where there can be none of that kind."""

_w, _x = schema.swarms, schema.swarm_items
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_TAKEN = Statement(
    sa.select(_x)
    .where(_x.c.sid == _sid, _x.c.taken_by == sa.bindparam("of_taking"))
    .order_by(_x.c.level, _x.c.n)
)
_WAITING = Statement(
    sa.select(_x)
    .where(_x.c.sid == _sid, _x.c.level == sa.bindparam("of_level"), _x.c.state == "waiting")
    .order_by(_x.c.n)
    .limit(sa.bindparam("most"))
)
_OF_CHILD = Statement(sa.select(_x).where(_x.c.sid == _sid, _x.c.child == sa.bindparam("of_child")))
_TAKE = Statement(
    sa.update(_x)
    .where(one_item)
    .values(
        state="taken",
        **{name: sa.bindparam(name) for name in ("taken_by", "child", "attempts", "begun_at")},
    )
)
_RUN = Statement(sa.update(_x).where(one_item).values(state="running"))
_PUT_BACK = Statement(
    sa.update(_x).where(one_item).values(state="waiting", taken_by=None, attempts=_x.c.attempts - 1)
)


def take(tx: Tx, request: TakeItems) -> Taken:
    """Give a shard the next items that wait, once for each of its takings."""
    key = SessionKey(request.tenant, request.swarm)
    swarm = locked(tx, key)
    taking = f"{request.run_id}/{request.k}"
    rows = _TAKEN.all(tx.connection, {"of_sid": swarm.sid, "of_taking": taking})
    known = [ItemRef(row.level, row.n, row.child) for row in rows]
    known += hedges.taken(swarm, taking)
    if known:
        return Taken(known, "more")
    if swarm.state in ("stopping", "done"):
        return Taken([], "end", stopping=swarm.state == "stopping")
    if swarm.state == "paused":
        return Taken([], "wait")
    waiting = {"of_sid": swarm.sid, "of_level": swarm.level, "most": request.most}
    items = []
    for row in _WAITING.all(tx.connection, waiting):
        attempt = row.attempts + 1
        child = session_of(request.swarm, row.level, row.n, attempt)
        begun = {"taken_by": taking, "child": child, "attempts": attempt, "begun_at": tx.now}
        _TAKE.run(tx.connection, {**at(swarm.sid, row.level, row.n), **begun})
        items.append(ItemRef(row.level, row.n, child))
    if items:
        return Taken(items, "more")
    return hedges.take(swarm, taking, request.most) or Taken([], "wait" if swarm.open else "end")


class Opened(NamedTuple):
    """An item's session: whether it is to be worked, the hash of the spec that is pinned for
    it, if one is, and whether it has a folder of its own, which stands in a spec of its own."""

    works: bool
    pinned: str | None = None
    apart: bool = False


def open_item(tx: Tx, tenant: str, name: str, item: ItemRef, meter: Meter, own: OwnPath) -> Opened:
    """Give an item its session and what it is to do, now that it is its turn: a swarm may pause
    or stop meanwhile. Repeating it changes nothing."""
    keeper = KEEPER.one(tx.connection, {"of_tenant": tenant, "of_id": name})
    place = at(keeper.sid, item.level, item.n)
    if keeper.budgeted:
        # Before the swarm, as where a session ends that pays from it.
        accounts.one(tx, tenant, keeper.sid, "session")
    begun = LockedSwarm(tx, keeper.sid).row
    row = ITEM.one(tx.connection, place)
    pinned = begun.reduce_hash if item.level else begun.spec_hash
    apart = keeper.folder != "shared"
    if row.twin == item.session:
        if row.state != "running" or begun.state != "running":
            return Opened(False)
        if not row.twin_begun and _is_elses(tx, tenant, item):
            hedges.drop(tx.connection, row)
            return Opened(False)
        if not row.twin_begun:
            hedges.begun(tx.connection, row)
            _open(tx, keeper, SessionKey(tenant, item.session), begun.body, row, meter, None)
        return Opened(True, pinned, apart)
    if row.child != item.session or row.state != "taken":
        works = row.child == item.session and row.state == "running"
        return Opened(works, pinned, apart)
    if begun.state != "running":
        _PUT_BACK.run(tx.connection, place)
        return Opened(False)
    key = SessionKey(tenant, item.session)
    if _is_elses(tx, tenant, item):
        _refuse(tx, row, f"A session of somebody else's is called {item.session!r}.")
        return Opened(False)
    try:
        own_dir = own(key, keeper.folder, Path(keeper.working_dir))
    except UsageError as error:
        _refuse(tx, row, str(error))
        return Opened(False)
    _open(tx, keeper, key, begun.body, row, meter, own_dir)
    _RUN.run(tx.connection, place)
    return Opened(True, pinned, apart)


def give_up(tx: Tx, request: GiveUpItem) -> bool:
    """Settle an item as failed whose session was never opened, or leave it to its first session;
    whether it was so. Repeating it answers the same."""
    item = request.item
    found = {"of_tenant": request.tenant, "of_id": request.swarm}
    swarm = LockedSwarm(tx, KEEPER.one(tx.connection, found).sid)
    row = ITEM.one(tx.connection, at(swarm.sid, item.level, item.n))
    if row.child == item.session:
        if row.state == "taken":
            _refuse(tx, row, request.reason)
        return bool(row.state != "running" and row.outcome is None)
    if row.twin == item.session and not row.twin_begun:
        hedges.drop(tx.connection, row)
        return True
    return bool(row.twin != item.session)


def _is_elses(tx: Tx, tenant: str, item: ItemRef) -> bool:
    """Whether somebody's session has the name of one that is not opened yet."""
    named = {"of_tenant": tenant, "of_id": item.session}
    return KEEPER.first(tx.connection, named) is not None


def _open(
    tx: Tx, keeper: Any, key: SessionKey, body: str, row: Any, meter: Meter, own: Path | None
) -> None:
    agent, model, prompt = _task(tx.connection, keeper.sid, body, row)
    settings = SessionSettings(
        *(keeper.workspace, keeper.working_dir, agent, model, keeper.user, keeper.folder),
        own_dir=None if own is None else str(own),
    )
    sid = new_sessions.create(tx, key, settings, swarm_sid=keeper.sid, budgeted=keeper.budgeted)
    if sid is None:
        raise StaleError
    if keeper.budgeted:
        accounts.open_below(tx, key.tenant, keeper.sid, sid)
    message = Inbound(id="swarm/item", kind="message", message=user_text(prompt))
    inbox.accept(tx, key, message, meter.tokens(prompt))


def _task(connection: sa.Connection, sid: int, body: str, row: Any) -> tuple[str, str | None, str]:
    """Who works an item or a node, by which model, and what it is asked."""
    spec = SwarmSpec.model_validate_json(body)
    if row.level == 0:
        return spec.agent, spec.model, filled(spec.prompt, json.loads(row.input))
    below = [ITEM.one(connection, at(sid, row.level - 1, n)) for n in json.loads(row.input)]
    results = [(one.name, one.text or "") for one in below]
    return spec.reduce or "", None, reduce_prompt(spec.reduce_prompt, results)


def pin(tx: Tx, key: SessionKey, reducing: bool, spec: AgentSpec) -> str:
    """Have all items that begin from here on be worked under `spec`, unless another is pinned;
    the hash of the one that is."""
    swarm = locked(tx, key)
    known: str | None = swarm.row.reduce_hash if reducing else swarm.row.spec_hash
    if known is None:
        known = keep(tx.connection, spec)
        harmless = not reducing and not spec.changing and not spec.servers
        values: dict[str, Any] = {"reduce_hash" if reducing else "spec_hash": known}
        if not reducing:
            values["harmless"] = int(harmless)
        tx.connection.execute(sa.update(_w).where(_w.c.sid == swarm.sid).values(values))
    return known


def _refuse(tx: Tx, row: Any, why: str) -> None:
    swarm = LockedSwarm(tx, row.sid)
    leave(swarm, row, "failed", why)
    swarm.save()


def settle(session: LockedSession, report: ExecutorReport, last: bool) -> SessionKey | None:
    """Record what became of an item where its session's `last` turn ends, once, and what each of
    its turns has cost. Returns a session that works the same in vain from here on."""
    assert session.swarm_sid is not None
    tx, name = session.tx, session.key.session
    of_child = {"of_sid": session.swarm_sid, "of_child": name}
    swarm = LockedSwarm(tx, session.swarm_sid)
    row = _OF_CHILD.first(tx.connection, of_child) or hedges.of_twin(tx.connection, of_child)
    if row is None:
        return None
    spec, done = swarm.spec, report.outcome == "completed"
    cost_usd = report.cost_usd or 0.0
    swarm.cost_usd += cost_usd
    paid = {"steps": row.steps + report.steps, "cost_usd": row.cost_usd + cost_usd}
    other = hedges.other(row, name) if row.state == "running" else None
    if row.state != "running" or not last or (other is not None and not done):
        # The other has answered, or still may; or a person's message comes next.
        over = last and row.state == "running"
        hedges.went(tx.connection, row, name if over else None, paid)
        swarm.save()
        return None
    ended: dict[str, Any] = {
        "state": "waiting",
        "outcome": report.outcome,
        "reason": report.reason,
        "text": report.text,
        "ended_at": tx.now,
        "settled": None,
    }
    tried = row.attempts - (swarm.row.rounds if row.level else 0)
    again = report.outcome in RETRIED and tried < spec.attempts_max
    if again and swarm.state in ("running", "paused"):
        # Its shard may have found nothing more to take.
        swarm.wake_at = swarm.wake_at or tx.now
    else:
        swarm.settled += 1
        ended |= {"state": _state(report), "settled": swarm.settled}
        if done and row.level == 0:
            swarm.completed += 1
    SETTLE.run(tx.connection, {**at(swarm.sid, row.level, row.n), **ended, **paid})
    if other is not None:
        hedges.won(tx.connection, row, name, other)
    # Who has what failed worked again wants more than enough.
    wanted = spec.quorum if swarm.row.rounds == 0 and row.level == 0 else None
    if wanted is not None and swarm.completed >= wanted:
        swarm.stop("quorum")
    if report.outcome == "budget_exceeded" and not _is_its_own(report, name):
        # The next ones would begin in vain, however many they are.
        swarm.stop("budget")
    swarm.save()
    return None if other is None else SessionKey(session.key.tenant, other)


def _is_its_own(report: ExecutorReport, name: str) -> bool:
    """Whether the budget that was spent is that of the item's session alone."""
    return (report.reason or "").startswith(f"The budget of session {name} ")


def left_beside(session: LockedSession) -> SessionKey | None:
    """As `settle` returned when it settled the item of this session."""
    of_child = {"of_sid": session.swarm_sid, "of_child": session.key.session}
    row = _OF_CHILD.first(session.tx.connection, of_child)
    if row is None or row.state != "done" or not row.twin_begun or row.twin is None:
        return None
    return SessionKey(session.key.tenant, row.twin)


def _state(report: ExecutorReport) -> str:
    match report.outcome:
        case "completed":
            return "done"
        case "cancelled" | "rolled_back":
            return "cancelled"
        case _:
            return "failed"
