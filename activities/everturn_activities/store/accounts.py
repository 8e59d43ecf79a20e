"""Accounts: what a session, a tenant and a tenant's day may spend, and what they have spent.

Only what has a limit has an account. One that is opened later begins with the sums of what
was spent before, so its figures do not depend on when its limit was set. Accounts are
locked in one order: the session's, the tenant's, the day's, then those of parents.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from everturn.budgets import UNITS, Amount, Budget, Scope, Unit, shown
from everturn_activities.store import schema
from everturn_activities.store.database import Tx
from everturn_activities.store.statement import Statement, insert, lock_table

EXTRA = ("lost", "cut")
"""States of entries whose cost stands in no step."""

_a, _e, _s, _st, _c, _x, _v = (
    schema.accounts,
    schema.entries,
    schema.sessions,
    schema.steps,
    schema.tool_calls,
    schema.side_calls,
    schema.embeddings,
)
_KINDS = ("limit", "mark", "reserved", "spent")
_COLUMNS = tuple(f"{kind}_{unit}" for kind in _KINDS for unit in UNITS)

_OF_SID = Statement(
    sa.select(_a)
    .where(_a.c.tenant == sa.bindparam("tenant"), _a.c.sid == sa.bindparam("at"))
    .order_by(_a.c.scope.desc())
    .with_for_update()
)
_BY_ID = Statement(sa.select(_a).where(_a.c.id == sa.bindparam("of_id")).with_for_update())
_ONE = Statement(
    sa.select(_a)
    .where(
        _a.c.tenant == sa.bindparam("tenant"),
        _a.c.sid == sa.bindparam("at"),
        _a.c.scope == sa.bindparam("of_scope"),
    )
    .with_for_update()
)
_OWNER = Statement(sa.select(_s.c.id).where(_s.c.sid == sa.bindparam("of_sid")))
_SAVE = Statement(
    sa.update(_a)
    .where(_a.c.id == sa.bindparam("of_id"))
    .values({name: sa.bindparam(name) for name in ("day", "soft", "applied", *_COLUMNS)})
)
_INSERT = insert(_a)
_MARK_SESSIONS = Statement(
    sa.update(_s).where(_s.c.tenant == sa.bindparam("of_tenant")).values(budgeted=1)
)


@dataclass
class Account:
    """A row, locked; the mappings have a key for each unit."""

    id: int
    tenant: str
    sid: int
    scope: Scope
    day: str
    parent: int | None
    soft: float | None
    applied: str
    limit: dict[Unit, int | None]
    mark: dict[Unit, int | None]
    reserved: dict[Unit, int]
    spent: dict[Unit, int]
    owner: str = ""
    """The session that it is of, where that is another than the one that draws on it."""

    def name(self, session: str) -> str:
        """The account as a sentence begins with it, for who draws on it."""
        match self.scope:
            case "session":
                return f"The budget of session {self.owner or session}"
            case "tenant":
                return "The budget of the tenant"
            case "day":
                return f"The budget of the day {self.day} (UTC)"

    def needs(self, unit: Unit, wanted: Amount) -> int:
        # What nothing is reserved of needs some of it to be left.
        return max(wanted.of(unit), 1)

    def is_over(self, unit: Unit, wanted: Amount) -> bool:
        """Whether `wanted` cannot be had even when all calls under way took nothing."""
        limit = self.limit[unit]
        return limit is not None and self.spent[unit] + self.needs(unit, wanted) > limit

    def is_taken(self, unit: Unit, wanted: Amount) -> bool:
        """Whether the calls under way may leave too little for `wanted`."""
        limit = self.limit[unit]
        taken = self.spent[unit] + self.reserved[unit]
        return limit is not None and taken + self.needs(unit, wanted) > limit

    def is_marked(self, unit: Unit) -> bool:
        """Whether so much is spent that a person is to be asked."""
        mark = self.mark[unit]
        return mark is not None and self.spent[unit] >= mark

    def allow(self, unit: Unit, limit: int | None) -> None:
        """Set a limit; a person is asked at its soft share, at once where that is spent."""
        self.limit[unit] = limit
        if limit is None or self.soft is None:
            self.mark[unit] = None
        else:
            self.mark[unit] = max(int(limit * self.soft), 1)

    def raise_to(self, unit: Unit, limit: int) -> None:
        """Set a limit that a person raised, who knows what is spent and is not asked again."""
        self.allow(unit, limit)
        if self.is_marked(unit):
            self.mark[unit] = None

    def begin_day(self, day: str) -> None:
        """Begin anew with a new day; calls of the day before are settled there."""
        if self.scope != "day" or day <= self.day:
            return
        self.day = day
        for unit in UNITS:
            self.reserved[unit] = self.spent[unit] = 0
            self.allow(unit, self.limit[unit])

    def covers(self, day: str) -> bool:
        """Whether a call that began on `day` is counted here."""
        return self.scope != "day" or day == self.day

    def left(self, unit: Unit) -> str:
        limit = self.limit[unit]
        assert limit is not None
        return f"allows {shown(unit, limit)}; {shown(unit, self.spent[unit])} spent"


@lru_cache(maxsize=8)
def _day(number: int) -> str:
    return datetime.fromtimestamp(number * 86_400, UTC).strftime("%Y-%m-%d")


def day_of(time: float) -> str:
    """The UTC day of a time in seconds since 1970."""
    return _day(int(time // 86_400))


def of_session(tx: Tx, tenant: str, sid: int) -> list[Account]:
    """The accounts that a session draws from, locked, those of days at today.

    Locked from a session's upwards, and the tenant's last, so that nobody waits in a circle.
    """
    today = day_of(tx.now)
    own = _locked(tx, tenant, sid) if sid else []
    above: list[Account] = []
    parent = own[0].parent if own else None
    while parent is not None:
        higher = from_row(_BY_ID.one(tx.connection, {"of_id": parent}))
        higher.owner = _OWNER.one(tx.connection, {"of_sid": higher.sid}).id
        above.append(higher)
        parent = higher.parent
    found = [*own, *_locked(tx, tenant, 0), *above]
    for account in found:
        account.begin_day(today)
    return found


def _locked(tx: Tx, tenant: str, sid: int) -> list[Account]:
    return [from_row(row) for row in _OF_SID.all(tx.connection, {"tenant": tenant, "at": sid})]


def open_below(tx: Tx, tenant: str, parent_sid: int, sid: int) -> None:
    """Have a new session draw from its parent's account too, where that has one."""
    above = one(tx, tenant, parent_sid, "session")
    if above is not None:
        _opened(tx, tenant, sid, "session", above.id)


def by_id(tx: Tx, account: int) -> Account | None:
    row = _BY_ID.first(tx.connection, {"of_id": account})
    return None if row is None else from_row(row)


def one(tx: Tx, tenant: str, sid: int, scope: Scope) -> Account | None:
    row = _ONE.first(tx.connection, {"tenant": tenant, "at": sid, "of_scope": scope})
    if row is None:
        return None
    account = from_row(row)
    account.begin_day(day_of(tx.now))
    return account


def save(tx: Tx, account: Account) -> None:
    values: dict[str, Any] = {}
    for unit in UNITS:
        values[f"limit_{unit}"] = account.limit[unit]
        values[f"mark_{unit}"] = account.mark[unit]
        values[f"reserved_{unit}"] = account.reserved[unit]
        values[f"spent_{unit}"] = account.spent[unit]
    named = {"day": account.day, "soft": account.soft, "applied": account.applied}
    _SAVE.run(tx.connection, {"of_id": account.id, **named, **values})


def put(tx: Tx, tenant: str, sid: int, scope: Scope, budget: Budget) -> Account:
    """Set all limits of an account, which is opened where there is none."""
    account = one(tx, tenant, sid, scope) or _opened(tx, tenant, sid, scope)
    stays, account.soft = budget.soft == account.soft, budget.soft
    for unit in UNITS:
        old, new = account.limit[unit], budget.amount(unit)
        if stays and new == old:
            continue
        if stays and new is not None and old is not None and new > old:
            account.raise_to(unit, new)
        else:
            account.allow(unit, new)
    save(tx, account)
    return account


def _opened(tx: Tx, tenant: str, sid: int, scope: Scope, parent: int | None = None) -> Account:
    """A new account with what was spent and is reserved so far; its sessions know of it."""
    if sid == 0:
        # First, so that every session is locked and none spends, or begins, while we count.
        lock_table(tx.connection, _s)
        lock_table(tx.connection, _v)
        _MARK_SESSIONS.run(tx.connection, {"of_tenant": tenant})
    today = day_of(tx.now) if scope == "day" else ""
    since = tx.now // 86_400 * 86_400 if scope == "day" else 0.0
    known = {"tenant": tenant, "sid": sid, "scope": scope, "parent": parent}
    sums = _sums(tx.connection, tenant, sid, since, today)
    _INSERT.run(tx.connection, {**known, "day": today, **sums})
    opened = one(tx, tenant, sid, scope)
    assert opened is not None
    return opened


def _sums(
    connection: sa.Connection, tenant: str, sid: int, since: float, day: str
) -> dict[str, int]:
    """What the tenant, or its session, has spent since `since`, and has reserved."""

    def of(table: sa.Table, *conditions: Any) -> list[Any]:
        mine = table.c.sid == sid if sid else _s.c.tenant == tenant
        return [_s.c.sid == table.c.sid, mine, *conditions]

    def total(column: Any) -> Any:
        return sa.func.coalesce(sa.func.sum(column), 0)

    seconds = (_st.c.ended_at - _st.c.started_at, _c.c.duration_seconds)
    model_ms, tool_ms = (sa.cast(sa.func.round(s * 1000), sa.BigInteger) for s in seconds)
    steps = connection.execute(
        sa.select(
            total(whole_usd(_st.c.cost_usd)),
            total(_st.c.input_tokens + _st.c.output_tokens),
            sa.func.count(),
            total(model_ms),
        ).where(*of(_st, _st.c.state == "done", _st.c.started_at >= since))
    ).one()
    extra = connection.execute(
        sa.select(
            total(_e.c.usd), total(_e.c.input_tokens + _e.c.output_tokens), total(_e.c.milliseconds)
        ).where(*of(_e, _e.c.state.in_(EXTRA), _e.c.created_at >= since))
    ).one()
    tools = connection.execute(
        sa.select(total(tool_ms)).where(*of(_c, _c.c.state == "done", _c.c.ended_at >= since))
    ).scalar_one()
    side = connection.execute(
        sa.select(
            total(whole_usd(_x.c.cost_usd)), total(_x.c.input_tokens + _x.c.output_tokens)
        ).where(*of(_x, _x.c.output_tokens > 0, _x.c.started_at >= since))
    ).one()
    vectors = _vectors(connection, tenant, since, day) if sid == 0 else [0, 0, 0, 0]
    open_ = [_e.c.state == "open", *([_e.c.day == day] if day else [])]
    reserved = connection.execute(
        sa.select(*(total(_e.c[f"reserved_{unit}"]) for unit in UNITS)).where(*of(_e, *open_))
    ).one()
    return {
        "spent_usd": steps[0] + extra[0] + side[0] + vectors[0],
        "spent_tokens": steps[1] + extra[1] + side[1] + vectors[1],
        "spent_steps": steps[2],
        "spent_seconds": steps[3] + extra[2] + tools,
        "reserved_usd": reserved[0] + vectors[2],
        "reserved_tokens": reserved[1] + vectors[3],
        **{f"reserved_{unit}": reserved[2 + n] for n, unit in enumerate(UNITS[2:])},
    }


def _vectors(connection: sa.Connection, tenant: str, since: float, day: str) -> Any:
    """What the tenant's embeddings have spent in dollars and tokens, and have reserved."""
    mine = [_v.c.tenant == tenant, _v.c.started_at >= since]

    def total(column: Any, is_open: bool) -> Any:
        state = _v.c.state == "open" if is_open else _v.c.state != "open"
        return sa.func.coalesce(sa.func.sum(sa.case((state, column), else_=0)), 0)

    return connection.execute(
        sa.select(
            total(_v.c.usd, False),
            total(_v.c.input_tokens, False),
            total(_v.c.reserved_usd, True),
            total(_v.c.reserved_tokens, True),
        ).where(*mine, *([_v.c.day == day] if day else []))
    ).one()


def whole_usd(column: Any) -> Any:
    """A column of dollars in whole numbers, which add up exactly."""
    return sa.cast(sa.func.round(column * 10**12), sa.BigInteger)


def from_row(row: Any) -> Account:
    values: Mapping[str, Any] = row._asdict()

    def units(kind: str) -> dict[Unit, Any]:
        return {unit: values[f"{kind}_{unit}"] for unit in UNITS}

    return Account(
        id=row.id,
        tenant=row.tenant,
        sid=row.sid,
        scope=row.scope,
        day=row.day,
        parent=row.parent,
        soft=row.soft,
        applied=row.applied,
        limit=units("limit"),
        mark=units("mark"),
        reserved=units("reserved"),
        spent=units("spent"),
    )
