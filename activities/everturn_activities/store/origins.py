"""Where a session comes from that began as a fork."""

from typing import Any

import sqlalchemy as sa

from everturn_activities.store import schema
from everturn_activities.store.statement import Statement

_FORK = Statement(sa.select(schema.forks).where(schema.forks.c.sid == sa.bindparam("of_sid")))


def fork_of(connection: sa.Connection, sid: int) -> Any:
    """The row that says where the session comes from, None where from nowhere."""
    return _FORK.first(connection, {"of_sid": sid})
