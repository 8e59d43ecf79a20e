"""Grants: calls that a person has let pass for the rest of their session."""

import json
from typing import Any

import sqlalchemy as sa

from everturn.approvals import covers
from everturn_activities.store import schema
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.statement import Statement, insert

_grants = schema.grants
_OF_TOOL = Statement(
    sa.select(_grants.c.pattern).where(
        _grants.c.sid == sa.bindparam("of_sid"), _grants.c.tool == sa.bindparam("of_tool")
    )
)
_INSERT = insert(_grants)


def give(session: LockedSession, n: int, tool: str, pattern: dict[str, str]) -> None:
    """Let calls of `tool` pass from now on; `n` is the question that was answered so."""
    row = {"sid": session.sid, "n": n, "tool": tool, "pattern": json.dumps(pattern)}
    _INSERT.run(session.tx.connection, row)


def given(session: LockedSession, tool: str, arguments: dict[str, Any]) -> bool:
    """Whether a call with these arguments needs no further leave."""
    rows = _OF_TOOL.all(session.tx.connection, {"of_sid": session.sid, "of_tool": tool})
    return any(covers(json.loads(row.pattern), arguments) for row in rows)
