"""Budgets as operators see and set them."""

import sqlalchemy as sa

from everturn.budgets import UNITS, Budget, Scope, Unit, part
from everturn.session import SessionKey
from everturn.views import BudgetView, SpentView
from everturn_activities.store import accounts, schema
from everturn_activities.store.accounts import Account
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession

_a, _s = schema.accounts, schema.sessions


def put(tx: Tx, tenant: str, scope: Scope, session: str | None, budget: Budget) -> BudgetView:
    """Set the limits of a tenant, of its days or of a session; raises UnknownSession."""
    sid = 0
    if scope == "session":
        locked = LockedSession(tx, SessionKey(tenant, session or ""))
        locked.budgeted = 1
        locked.save()
        sid = locked.sid
    return view(accounts.put(tx, tenant, sid, scope, budget), session)


def every(connection: sa.Connection, tenant: str, today: str) -> list[BudgetView]:
    """The tenant's budgets: its own, its days', then those of its sessions, newest first."""
    rows = connection.execute(
        sa.select(_a, _s.c.id.label("session"))
        .outerjoin(_s, _s.c.sid == _a.c.sid)
        .where(_a.c.tenant == tenant)
        .order_by(_a.c.sid != 0, _a.c.scope.desc(), _a.c.sid.desc())
    ).all()
    found = []
    for row in rows:
        account = accounts.from_row(row)
        account.begin_day(today)
        found.append(view(account, row.session))
    return found


def view(account: Account, session: str | None) -> BudgetView:
    limits = {
        unit: part(unit, limit) for unit in UNITS if (limit := account.limit[unit]) is not None
    }
    return BudgetView(
        scope=account.scope,
        session=session,
        day=account.day or None,
        limits=Budget(**limits, soft=account.soft),
        spent=_spent(account.spent),
        reserved=_spent(account.reserved),
    )


def _spent(amounts: dict[Unit, int]) -> SpentView:
    return SpentView(**{unit: part(unit, amounts[unit]) for unit in UNITS})
