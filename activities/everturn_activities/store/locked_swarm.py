"""A swarm's row, locked for one transaction: whoever holds it numbers what ends."""

from typing import Any

import sqlalchemy as sa

from everturn.errors import UnknownSession
from everturn.session import SessionKey
from everturn.swarms import StopReason, SwarmSpec, SwarmState
from everturn_activities.store import schema
from everturn_activities.store.database import Tx
from everturn_activities.store.statement import Statement

_w, _x, _s = schema.swarms, schema.swarm_items, schema.sessions
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
one_item = sa.and_(
    _x.c.sid == _sid,
    _x.c.level == sa.bindparam("of_level"),
    _x.c.n == sa.bindparam("of_n"),
)
KEEPER = Statement(
    sa.select(_s).where(_s.c.tenant == sa.bindparam("of_tenant"), _s.c.id == sa.bindparam("of_id"))
)
ITEM = Statement(sa.select(_x).where(one_item))
SETTLE = Statement(
    sa.update(_x)
    .where(one_item)
    .values(
        taken_by=None,
        **{
            name: sa.bindparam(name)
            for name in (
                "state",
                "outcome",
                "reason",
                "text",
                "steps",
                "cost_usd",
                "ended_at",
                "settled",
            )
        },
    )
)
_NUMBERS = ("state", "reason", "completed", "settled", "cost_usd", "wake_at")
_LOCK = Statement(sa.select(_w).where(_w.c.sid == _sid).with_for_update())
_SAVE = Statement(
    sa.update(_w).where(_w.c.sid == _sid).values({name: sa.bindparam(name) for name in _NUMBERS})
)


class LockedSwarm:
    """A swarm's row, locked: its numbers as attributes, which `save` writes back."""

    state: SwarmState
    reason: StopReason | None
    completed: int
    settled: int
    cost_usd: float
    wake_at: float | None

    def __init__(self, tx: Tx, sid: int) -> None:
        row = _LOCK.one(tx.connection, {"of_sid": sid})
        self.tx, self.sid, self.row = tx, sid, row
        self.level: int = row.level
        self.open: bool = bool(row.open)
        for name in _NUMBERS:
            setattr(self, name, getattr(row, name))

    @property
    def spec(self) -> SwarmSpec:
        return SwarmSpec.model_validate_json(self.row.body)

    def stop(self, reason: StopReason) -> None:
        """Begin no more; those under way are to be cancelled by whoever looks next."""
        if self.state in ("running", "paused"):
            self.state, self.reason = "stopping", reason
            self.wake_at = self.tx.now

    def save(self) -> None:
        values = {name: getattr(self, name) for name in _NUMBERS}
        _SAVE.run(self.tx.connection, {"of_sid": self.sid, **values})


def locked(tx: Tx, key: SessionKey) -> LockedSwarm:
    """The swarm of `key`; raises UnknownSession where there is none."""
    keeper = KEEPER.first(tx.connection, {"of_tenant": key.tenant, "of_id": key.session})
    if keeper is None or keeper.swarm_sid != keeper.sid:
        raise unknown(key)
    return LockedSwarm(tx, keeper.sid)


def unknown(key: SessionKey) -> UnknownSession:
    return UnknownSession(
        f"There is no swarm {key.session!r}; `everturn swarm list` names those there are."
    )


def leave(swarm: LockedSwarm, row: Any, state: str, why: str) -> None:
    """Settle an item that no session works."""
    swarm.settled += 1
    ended = {
        "state": state,
        "outcome": None,
        "reason": why,
        "text": None,
        "steps": row.steps,
        "cost_usd": row.cost_usd,
        "ended_at": swarm.tx.now,
        "settled": swarm.settled,
    }
    SETTLE.run(swarm.tx.connection, {**at(swarm.sid, row.level, row.n), **ended})


def at(sid: int, level: int, n: int) -> dict[str, int]:
    return {"of_sid": sid, "of_level": level, "of_n": n}
