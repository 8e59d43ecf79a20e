"""Which turns of a session a fork works again."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from everturn.context.cuts import Cut
from everturn.errors import UsageError
from everturn.forks import ForkSession
from everturn_activities.store import cuts, schema
from everturn_activities.store.fork_points import Point, before, behind
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.statement import Statement

_m = schema.messages
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_turn: sa.BindParameter[int] = sa.bindparam("of_turn")
_FIRST = Statement(
    sa.select(_m.c.position).where(_m.c.sid == _sid, _m.c.turn == _turn, _m.c.role == "user")
)


@dataclass(frozen=True)
class Played:
    """Turns of the origin to be worked again, in order, and what comes before the first."""

    behind: Point
    turns: tuple[int, ...]


def plan(source: LockedSession, wanted: ForkSession) -> Played:
    """Which turns are worked again. Raises UsageError where there are none."""
    name = source.key.session
    if wanted.step is not None:
        raise UsageError(
            f"A replay works whole turns again; name turn {wanted.turn} without its step."
        )
    newest = source.turn if source.open_turn is None else source.open_turn - 1
    first = wanted.turn or (newest if wanted.replay == "turn" else 1)
    if wanted.turn is not None:
        behind(source, wanted.turn, None)
    last = first if wanted.replay == "turn" else newest
    left_out = [
        cut
        for cut in cuts.in_force(source.tx.connection, source.sid, source.cut_n)
        if cut.kind != "compaction"
    ]
    turns = tuple(
        turn
        for turn in range(max(first, 1), last + 1)
        if _is_worked(source, turn, [] if turn == wanted.turn else left_out)
    )
    if not turns:
        raise UsageError(
            f"Session {name!r} has no turn that is over and could be worked again; wait for one,"
            " or fork it without a replay."
        )
    return Played(before(source, max(first, 1)), turns)


def written(played: Played, wanted: ForkSession) -> str:
    """What is to be worked again, as JSON."""
    return json.dumps({"turns": played.turns, "agent": wanted.agent, "model": wanted.model})


def _is_worked(source: LockedSession, turn: int, left_out: Sequence[Cut]) -> bool:
    at = {"of_sid": source.sid, "of_turn": turn}
    position = _FIRST.scalar(source.tx.connection, at)
    return position is not None and not any(cut.first <= position <= cut.last for cut in left_out)
