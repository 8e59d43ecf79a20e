"""On which homes the file checkpoints of a turn are kept: each keeps those of its workers."""

from collections.abc import Iterable

import sqlalchemy as sa

from everturn.session import SessionKey
from everturn_activities.store import reads, schema
from everturn_activities.store.database import Tx
from everturn_activities.store.statement import Statement, insert

_h = schema.record_homes
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_turn: sa.BindParameter[int] = sa.bindparam("of_turn")
_KNOWN = Statement(
    sa.select(_h.c.home).where(
        _h.c.sid == _sid, _h.c.turn == _turn, _h.c.home == sa.bindparam("of_home")
    )
)
_SINCE = Statement(sa.select(_h.c.home).where(_h.c.sid == _sid, _h.c.turn >= _turn).distinct())
_INSERT = insert(_h)


def note(tx: Tx, key: SessionKey, turn: int, home: str) -> None:
    """Say, once, that a call of the turn is recorded there."""
    sid = reads.sid_of(tx.connection, key)
    at = {"of_sid": sid, "of_turn": turn, "of_home": home}
    if _KNOWN.first(tx.connection, at) is None:
        _INSERT.run(tx.connection, {"sid": sid, "turn": turn, "home": home})


def since(connection: sa.Connection, works: Iterable[tuple[SessionKey, int]]) -> frozenset[str]:
    """The homes that have records of these sessions' turns, each from a turn on."""
    found = set()
    for key, turn in works:
        at = {"of_sid": reads.sid_of(connection, key), "of_turn": turn}
        found |= {row.home for row in _SINCE.all(connection, at)}
    return frozenset(found)
