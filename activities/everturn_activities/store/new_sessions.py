"""The row that a session begins as."""

from typing import Any

import sqlalchemy as sa

from everturn.session import SessionKey
from everturn_activities.store import SessionSettings, schema
from everturn_activities.store.database import Tx
from everturn_activities.store.statement import Statement, insert, lock_table

_s, _a = schema.sessions, schema.accounts
_NAMED = Statement(
    sa.select(_s.c.sid).where(
        _s.c.tenant == sa.bindparam("of_tenant"), _s.c.id == sa.bindparam("of_id")
    )
)
_LIMITED = Statement(
    sa.select(_a.c.id).where(_a.c.tenant == sa.bindparam("of_tenant"), _a.c.sid == 0).limit(1)
)
_INSERT = insert(_s)


def create(tx: Tx, key: SessionKey, settings: SessionSettings, **more: Any) -> int | None:
    """Create the session, with `more` of its columns, and return its number; None where there is
    one of that name, which stays as it is."""
    named = {"of_tenant": key.tenant, "of_id": key.session}
    if _NAMED.first(tx.connection, named) is not None:
        return None
    # Before the look: whoever opens an account marks all sessions that there are then.
    lock_table(tx.connection, _s, "ROW EXCLUSIVE")
    limited = _LIMITED.first(tx.connection, {"of_tenant": key.tenant}) is not None
    _INSERT.run(
        tx.connection,
        {
            "tenant": key.tenant,
            "id": key.session,
            "created_at": tx.now,
            "updated_at": tx.now,
            "agent": settings.agent,
            "model": settings.model,
            "workspace": settings.workspace,
            "working_dir": settings.working_dir,
            "user": settings.user,
            "folder": settings.folder,
            "own_dir": settings.own_dir,
            "folder_due": int(settings.own_dir is not None),
            "webhook": None if settings.webhook is None else settings.webhook.model_dump_json(),
            **more,
            "budgeted": int(limited or more.get("budgeted", 0)),
        },
    )
    sid: int = _NAMED.one(tx.connection, named).sid
    return sid
