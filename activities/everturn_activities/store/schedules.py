"""Schedules as rows: defined, changed, removed, and made equal with what Temporal has.

Each change counts up `version` and makes the row due; whoever has told Temporal of that version
says so. One that is removed is a row until Temporal has forgotten it.
"""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from everturn.errors import IdempotencyConflict, UnknownSchedule, UsageError
from everturn.schedules import (
    NEXT_SHOWN,
    RUNS_SHOWN,
    Definition,
    Rules,
    ScheduleView,
    Status,
)
from everturn.session import SessionKey
from everturn_activities import cron
from everturn_activities.store import reads, runs, schema
from everturn_activities.store.database import Tx
from everturn_activities.store.statement import Statement, lock_table

LOOKED_AT = 100
"""So many times are looked at together."""
AGAIN_SECONDS = 60.0
"""What Temporal has refused is told again after so long: perhaps it has learnt of it."""

_c = schema.schedules
_named = sa.select(_c).where(
    _c.c.tenant == sa.bindparam("of_tenant"), _c.c.name == sa.bindparam("of_name")
)
_FIND, _LOCK = Statement(_named), Statement(_named.with_for_update())
# Asked every half second by each worker.
_DUE = Statement(
    sa.select(_c)
    .where(_c.c.due_at <= sa.bindparam("upto"))
    .order_by(_c.c.due_at)
    .limit(sa.bindparam("most"))
)
_UNSETTLED = Statement(sa.select(_c).where(_c.c.unsettled_at <= sa.bindparam("upto")).limit(20))


@dataclass(frozen=True)
class Missed:
    """Times of a schedule about which nobody has decided; those `upto` are looked at."""

    id: int
    version: int
    tenant: str
    name: str
    times: tuple[float, ...]
    next: float | None


@dataclass(frozen=True)
class Told:
    """A version of a schedule that Temporal is to hear of; without a `definition` it is removed."""

    id: int
    version: int
    tenant: str
    name: str
    definition: Definition | None
    paused: bool

    @property
    def schedule_id(self) -> str:
        return schedule_id(self.tenant, self.name)


def schedule_id(tenant: str, name: str) -> str:
    """What Temporal calls it."""
    return f"c/{tenant}/{name}"


def add(
    tx: Tx,
    tenant: str,
    name: str,
    given: Definition,
    status: Status,
    most: int,
) -> Any:
    """The schedule of that name, new or as it is.

    Raises IdempotencyConflict where that one says something else, UsageError where the tenant
    has as many as it may, and UnknownSession.
    """
    if given.session is not None:
        reads.sid_of(tx.connection, SessionKey(tenant, given.session))
    # Two that are added at once are counted one after the other.
    lock_table(tx.connection, _c)
    known = locked(tx, tenant, name)
    if known is not None and known.state != "removed":
        if _said(definition_of(known)) != _said(given):
            raise IdempotencyConflict(
                f"There is another schedule {name!r}; change that one, remove it, or choose"
                " another name."
            )
        return known
    count = sa.select(sa.func.count()).where(_c.c.tenant == tenant, _c.c.state != "removed")
    if tx.connection.execute(count).scalar_one() >= most:
        raise UsageError(
            f"There are {most} schedules, which is the limit; remove one, or have the operator"
            " raise EVERTURN_SCHEDULES_MAX."
        )
    values = {
        "session": given.session,
        "body": given.model_dump_json(),
        "state": status,
        "sent": 0,
        "created_at": tx.now,
        "due_at": tx.now,
        "problem": None,
        "unsettled_at": _first(given, status, tx.now),
    }
    if known is None:
        tx.connection.execute(sa.insert(_c), {"tenant": tenant, "name": name, **values})
    else:
        runs.forget(tx, known.id)
        _write(tx, known, **values)
    return locked(tx, tenant, name)


def change(tx: Tx, known: Any, new: Definition, status: Status | None) -> Any:
    """Give the schedule another definition, pause it or have it go on."""
    state = status or ("active" if known.state == "ended" else known.state)
    if state == "active" and new.runs_max is not None and known.sent >= new.runs_max:
        state = "ended"
    _write(
        tx,
        known,
        body=new.model_dump_json(),
        state=state,
        due_at=tx.now,
        problem=None,
        unsettled_at=_first(new, state, max(tx.now, new.since)),
    )
    return locked(tx, known.tenant, known.name)


def remove(tx: Tx, known: Any) -> Any:
    """Let it fire no more."""
    _write(tx, known, state="removed", due_at=tx.now, unsettled_at=None)
    return locked(tx, known.tenant, known.name)


def sent(tx: Tx, row: Any, definition: Definition) -> None:
    """Count a message; after the last one it ends."""
    number = row.sent + 1
    if definition.runs_max is not None and number >= definition.runs_max:
        _write(tx, row, sent=number, state="ended", due_at=tx.now, unsettled_at=None)
    else:
        tx.connection.execute(sa.update(_c).where(_c.c.id == row.id).values(sent=number))


def due(connection: sa.Connection, upto: float, limit: int) -> list[Told]:
    """Schedules that Temporal is to hear of since that time or before."""
    return [told_of(row) for row in _DUE.all(connection, {"upto": upto, "most": limit})]


def known(connection: sa.Connection) -> list[Told]:
    """Schedules that Temporal has heard of."""
    query = sa.select(_c).where(_c.c.state.in_(("active", "paused")), _c.c.due_at.is_(None))
    return [told_of(row) for row in connection.execute(query).all()]


def missed(connection: sa.Connection, now: float, late_seconds: float) -> list[Missed]:
    """Times that passed so long ago, and about which nobody has decided."""
    upto = now - late_seconds
    found = []
    for row in _UNSETTLED.all(connection, {"upto": upto}):
        definition = definition_of(row)
        start = max(row.unsettled_at - 1, upto - definition.catch_up_seconds)
        passed: list[float] = []
        while len(more := cron.times(definition, start, LOOKED_AT, definition.since)):
            passed += [at for at in more if at <= upto]
            if more[-1] > upto:
                break
            start = more[-1]
        known = runs.decided(connection, row.id, start=passed[0]) if passed else set()
        times = tuple(at for at in passed if at not in known)
        coming = cron.times(definition, upto, 1, definition.since)
        following = coming[0] if coming else None
        found.append(Missed(row.id, row.version, row.tenant, row.name, times, following))
    return found


def settled(tx: Tx, of: Missed) -> None:
    """All times before the next are decided about."""
    mine = (_c.c.id == of.id, _c.c.version == of.version)
    tx.connection.execute(sa.update(_c).where(*mine).values(unsettled_at=of.next))


def told(tx: Tx, of: Told) -> None:
    """Temporal has what `of` says."""
    mine = (_c.c.id == of.id, _c.c.version == of.version)
    if (
        of.definition is None
        and tx.connection.execute(sa.delete(_c).where(*mine, _c.c.state == "removed")).rowcount
    ):
        runs.forget(tx, of.id)
    known = tx.connection.execute(sa.update(_c).where(*mine).values(due_at=None, problem=None))
    if not known.rowcount:
        # It may have been told after what somebody has set since.
        tx.connection.execute(sa.update(_c).where(_c.c.id == of.id).values(due_at=tx.now))


def refused(tx: Tx, of: Told, problem: str) -> None:
    """Temporal will not have it."""
    values = {"due_at": tx.now + AGAIN_SECONDS, "problem": problem}
    mine = (_c.c.id == of.id, _c.c.version == of.version)
    tx.connection.execute(sa.update(_c).where(*mine).values(values))


def lost(tx: Tx, of: Told) -> None:
    """Temporal knows nothing of it any more."""
    mine = (_c.c.id == of.id, _c.c.version == of.version, _c.c.due_at.is_(None))
    tx.connection.execute(sa.update(_c).where(*mine).values(due_at=tx.now))


def views(
    connection: sa.Connection, tenant: str, now: float, session: str | None = None
) -> list[ScheduleView]:
    """The tenant's schedules, or those that send to that session, by name."""
    query = sa.select(_c).where(_c.c.tenant == tenant, _c.c.state != "removed")
    if session is not None:
        query = query.where(_c.c.session == session)
    rows = connection.execute(query.order_by(_c.c.name)).all()
    return [view(connection, row, now, next_count=1, runs_count=1) for row in rows]


def view(
    connection: sa.Connection,
    row: Any,
    now: float,
    next_count: int = NEXT_SHOWN,
    runs_count: int = RUNS_SHOWN,
) -> ScheduleView:
    definition = definition_of(row)
    coming: list[float] = []
    if definition.runs_max is not None:
        next_count = min(next_count, definition.runs_max - row.sent)
    if row.state == "active" and next_count > 0:
        coming = cron.times(definition, now, next_count, definition.since)
    status = "ended" if row.state == "active" and not coming else row.state
    return ScheduleView(
        **definition.model_dump(include=set(Rules.model_fields)),
        name=row.name,
        status=status,
        workspace=definition.workspace or None,
        made_by=definition.made_by,
        created_at=row.created_at,
        sent=row.sent,
        next=tuple(coming),
        runs=tuple(runs.newest(connection, row.id, runs_count)),
        problem=row.problem,
    )


def locked(tx: Tx, tenant: str, name: str) -> Any:
    """The row; None where there is none."""
    return _LOCK.first(tx.connection, {"of_tenant": tenant, "of_name": name})


def found(connection: sa.Connection, tenant: str, name: str) -> Any:
    """The row as it is, not locked; None where there is none."""
    return _FIND.first(connection, {"of_tenant": tenant, "of_name": name})


def is_removed(row: Any) -> bool:
    return row is None or row.state == "removed"


def demand(row: Any, name: str) -> Any:
    """The row; raises UnknownSchedule where there is none, or one that was removed."""
    if is_removed(row):
        raise UnknownSchedule(
            f"There is no schedule {name!r}; 'everturn schedules list' names those there are."
        )
    return row


def definition_of(row: Any) -> Definition:
    return Definition.model_validate_json(row.body)


def told_of(row: Any) -> Told:
    return Told(
        row.id,
        row.version,
        row.tenant,
        row.name,
        None if row.state == "removed" else definition_of(row),
        row.state != "active",
    )


def _first(definition: Definition, status: str, after: float) -> float | None:
    """The first time after that moment, of a schedule that is active."""
    if status != "active":
        return None
    coming = cron.times(definition, after, 1, definition.since)
    return coming[0] if coming else None


def _said(definition: Definition) -> Definition:
    """All of it but when it was said."""
    return definition.model_copy(update={"since": 0.0})


def _write(tx: Tx, row: Any, **values: Any) -> None:
    tx.connection.execute(
        sa.update(_c).where(_c.c.id == row.id).values(version=row.version + 1, **values)
    )
