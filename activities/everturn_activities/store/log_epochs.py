"""A session's events for a log elsewhere: the rows that it lacks, and where it begins anew.

Positions are the numbers of the rows; an epoch is a life of that log. Epochs are even, and each
odd one stands for the store's own numbers: a cursor of it names a position.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from everturn.errors import UnknownSession
from everturn.messages import AssistantMessage, Text, Thinking
from everturn.session import SessionKey
from everturn_activities.store import schema
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import ASSISTANT_PART, LockedSession, unknown
from everturn_activities.store.statement import Statement

_s, _e, _m = schema.sessions, schema.events, schema.messages
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_STANDING = Statement(
    sa.select(_s.c.sid, _s.c.log_epoch, _s.c.event_epoch, _s.c.event_seq).where(
        _s.c.tenant == sa.bindparam("tenant"), _s.c.id == sa.bindparam("session")
    )
)
_AFTER = Statement(
    sa.select(_e)
    .where(
        _e.c.sid == _sid,
        sa.tuple_(_e.c.epoch, _e.c.seq) > sa.tuple_(sa.bindparam("epoch"), sa.bindparam("seq")),
    )
    .order_by(_e.c.epoch, _e.c.seq)
    .limit(sa.bindparam("most"))
)
_EPOCH = Statement(sa.select(_s.c.log_epoch).where(_s.c.sid == _sid))
_NEWEST_BEFORE = Statement(
    sa.select(_e.c.time)
    .where(_e.c.sid == _sid, _e.c.time < sa.bindparam("before"))
    .order_by(_e.c.epoch.desc(), _e.c.seq.desc())
    .limit(1)
)
_BEGIN = Statement(sa.update(_s).where(_s.c.sid == _sid).values(log_epoch=sa.bindparam("of_epoch")))
_STARTED = Statement(
    sa.select(_e.c.seq).where(_e.c.sid == _sid, _e.c.event_id == sa.bindparam("of_event"))
)
_NEWEST_START = Statement(
    sa.select(_e.c.seq, _e.c.turn)
    .where(
        _e.c.sid == _sid,
        _e.c.epoch == sa.bindparam("epoch"),
        _e.c.seq <= sa.bindparam("seq"),
        _e.c.type == "turn_started",
    )
    .order_by(_e.c.seq.desc())
    .limit(1)
)
_REPLY = Statement(
    sa.select(_m.c.body).where(
        _m.c.sid == _sid,
        _m.c.turn == sa.bindparam("of_turn"),
        _m.c.step == sa.bindparam("of_step"),
        _m.c.part == ASSISTANT_PART,
    )
)

NO_EPOCH = 0
FEW = 1_000
"""Events that a session without a log begins its first one with."""
JUST_NOW_SECONDS = 60.0


@dataclass(frozen=True)
class Standing:
    """Where the store stands: the newest epoch that it knows of, and its newest position."""

    epoch: int
    position: int


@dataclass(frozen=True)
class Begun:
    """An epoch that this process is to begin; `turn` is told anew from behind `base`.

    `idle_seconds` is how long nothing had been told before what is told now.
    """

    epoch: int
    base: int
    turn: int
    idle_seconds: float


def standing(connection: sa.Connection, key: SessionKey) -> Standing:
    row = _row(connection, key)
    return Standing(row.log_epoch, row.event_seq)


def rows_after(
    connection: sa.Connection, key: SessionKey, position: int, limit: int
) -> tuple[Standing, Sequence[Any]]:
    """The rows of events after a position, oldest first; UnknownSession raises."""
    row = _row(connection, key)
    standing = Standing(row.log_epoch, row.event_seq)
    if position >= row.event_seq:
        return standing, ()
    at = {"of_sid": row.sid, "epoch": row.event_epoch, "seq": position, "most": limit}
    return standing, _AFTER.all(connection, at)


def replies(
    connection: sa.Connection, key: SessionKey, steps: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], AssistantMessage]:
    """What stands in the transcript of those steps, each by its turn and its number."""
    sid = _row(connection, key).sid
    found = {}
    for turn, step in steps:
        row = _REPLY.first(connection, {"of_sid": sid, "of_turn": turn, "of_step": step})
        if row is not None:
            found[turn, step] = AssistantMessage.model_validate_json(row.body)
    return found


def turn_at(connection: sa.Connection, key: SessionKey, position: int) -> tuple[int, int]:
    """The newest turn that had begun at a position, and the position before its beginning."""
    row = _row(connection, key)
    at = {"of_sid": row.sid, "epoch": row.event_epoch, "seq": position}
    found = _NEWEST_START.first(connection, at)
    return (0, 0) if found is None else (found.turn, found.seq - 1)


def begin(tx: Tx, key: SessionKey, seen: int, above: int) -> Begun | None:
    """Begin an epoch after `seen`, and after `above`; None where another process has begun one
    since `seen` was read."""
    session = LockedSession(tx, key)
    at = {"of_sid": session.sid}
    if _EPOCH.scalar(tx.connection, at) != seen:
        return None
    epoch = max(seen, above) + 2
    _BEGIN.run(tx.connection, {**at, "of_epoch": epoch})
    base = 0
    if session.turn > 1 and (seen != NO_EPOCH or session.event_seq > FEW):
        turn_started = {**at, "of_event": f"turn/{session.turn}/started"}
        started = _STARTED.scalar(tx.connection, turn_started)
        base = 0 if started is None else started - 1
    told_at = _NEWEST_BEFORE.scalar(tx.connection, {**at, "before": tx.now - JUST_NOW_SECONDS})
    return Begun(
        epoch=epoch,
        base=base,
        turn=session.turn,
        idle_seconds=0.0 if told_at is None else tx.now - told_at,
    )


def pieces(message: AssistantMessage) -> list[tuple[str, dict[str, str]]]:
    """A stored reply as the deltas that it would have been: type and body of each."""
    told = []
    for part in message.parts:
        match part:
            case Thinking(text=text) if text:
                told.append(("thinking_delta", {"text": text}))
            case Text(text=text) if text:
                told.append(("text_delta", {"text": text}))
    for call in message.tool_calls:
        body = {"call_id": call.id, "name": call.name, "text": json.dumps(call.arguments)}
        told.append(("tool_call_delta", body))
    return told


def _row(connection: sa.Connection, key: SessionKey) -> Any:
    row = _STANDING.first(connection, {"tenant": key.tenant, "session": key.session})
    if row is None:
        raise UnknownSession(unknown(key))
    return row
