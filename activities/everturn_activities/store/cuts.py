"""Cuts: ranges of a transcript that are no longer sent, and what is sent in their place.

Messages stay where they are, so a cut is undone by a note in its row. Cuts and undoings
are numbered together by `sessions.cut_n`: whoever reads as of a number sees what was in
force then, whatever came later.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from everturn.context.cuts import Cut, CutKind, Extent, shown
from everturn_activities.store import schema
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.statement import Statement, insert

_cuts, _messages = schema.cuts, schema.messages
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_n: sa.BindParameter[int] = sa.bindparam("of_n")

_INSERT = insert(_cuts)
_IN_FORCE = Statement(
    sa.select(_cuts)
    .where(
        _cuts.c.sid == _sid,
        _cuts.c.n <= _n,
        sa.or_(_cuts.c.undone_n.is_(None), _cuts.c.undone_n > _n),
    )
    .order_by(_cuts.c.n)
)
_UNDO = Statement(
    sa.update(_cuts)
    .where(_cuts.c.sid == _sid, _cuts.c.n == sa.bindparam("of_cut"))
    .values({name: sa.bindparam(name) for name in ("undone_n", "undone_at", "nonce")})
)
_OWN = Statement(
    sa.select(_cuts)
    .where(_cuts.c.sid == _sid, _cuts.c.nonce == sa.bindparam("of_nonce"))
    .order_by(_cuts.c.n.desc())
)
_SUMS = Statement(
    sa.select(
        sa.func.coalesce(sa.func.sum(_messages.c.tokens), 0).label("tokens"),
        sa.func.coalesce(
            sa.func.sum(sa.case((_messages.c.turn < sa.bindparam("of_turn"), _messages.c.tokens))),
            0,
        ).label("history"),
        sa.func.coalesce(
            sa.func.sum(sa.case((_messages.c.role == "tool", _messages.c.tokens))), 0
        ).label("results"),
        sa.func.coalesce(sa.func.sum(_messages.c.result_characters), 0).label("characters"),
    ).where(
        _messages.c.sid == _sid,
        _messages.c.position >= sa.bindparam("first"),
        _messages.c.position <= sa.bindparam("last"),
        sa.or_(_messages.c.turn >= sa.bindparam("since"), _messages.c.said == 1),
    )
)
_SENT = Statement(
    sa.select(_messages.c.position, _messages.c.turn, _messages.c.tokens, _messages.c.body)
    .where(
        _messages.c.sid == _sid,
        _messages.c.position >= sa.bindparam("first"),
        _messages.c.position <= sa.bindparam("last"),
        sa.or_(_messages.c.turn >= sa.bindparam("since"), _messages.c.said == 1),
    )
    .order_by(_messages.c.position)
)


@dataclass(frozen=True)
class Summary:
    """What stands for the messages up to `position`."""

    position: int
    text: str
    tokens: int


def cut(
    session: LockedSession,
    kind: CutKind,
    first: int,
    last: int,
    turn: int,
    body: str | None = None,
    tokens: int = 0,
) -> int:
    """Leave the messages `first` to `last` out from now on; returns the cut's number.

    A rollback, and a rewind, undo the summaries that tell of their messages.
    """
    now_in_force = in_force(session.tx.connection, session.sid, session.cut_n)
    session.cut_n += 1
    if kind != "compaction":
        for other in now_in_force:
            if other.kind == "compaction" and other.first <= last and other.last >= first:
                _mark_undone(session, other.n)
    _INSERT.run(
        session.tx.connection,
        {
            "sid": session.sid,
            "n": session.cut_n,
            "kind": kind,
            "first": first,
            "last": last,
            "turn": turn,
            "body": body,
            "tokens": tokens,
            "created_at": session.tx.now,
            "nonce": session.tx.nonce,
        },
    )
    count_again(session)
    return session.cut_n


def undo(session: LockedSession, kind: CutKind = "compaction") -> Cut | None:
    """Take the newest cut of `kind` back; None where there is none in force."""
    found = in_force(session.tx.connection, session.sid, session.cut_n)
    newest = next((one for one in reversed(found) if one.kind == kind), None)
    if newest is None:
        return None
    session.cut_n += 1
    _mark_undone(session, newest.n)
    count_again(session)
    return newest


def in_force(connection: sa.Connection, sid: int, n: int) -> list[Cut]:
    """The cuts that were in force when `cut_n` was `n`, in the order of their numbers."""
    if n == 0:
        return []
    return [_of(row) for row in _IN_FORCE.all(connection, {"of_sid": sid, "of_n": n})]


def made_before(session: LockedSession) -> Cut | None:
    """The cut that this very change made, in a run whose COMMIT was not heard of."""
    return next((_of(row) for row in _own(session) if row.undone_n is None), None)


def undone_before(session: LockedSession) -> Cut | None:
    """The cut that this very change took back, in a run whose COMMIT was not heard of."""
    return next((_of(row) for row in _own(session) if row.undone_n is not None), None)


def _own(session: LockedSession) -> Sequence[Any]:
    if session.cut_n == 0:
        return ()
    at = {"of_sid": session.sid, "of_nonce": session.tx.nonce}
    return _OWN.all(session.tx.connection, at)


def _of(row: Any) -> Cut:
    return Cut(row.n, row.kind, row.first, row.last, row.body, row.tokens)


def sent(connection: sa.Connection, sid: int, extent: Extent, after: int) -> Sequence[Any]:
    """What is sent of the positions after `after`: rows of messages, and a `Summary` where one
    stands for what it is of."""
    rows: list[Any] = []
    pieces = shown(in_force(connection, sid, extent.cuts), extent.upto, extent.first)
    for piece in pieces:
        if piece.last <= after:
            continue
        if isinstance(piece, Cut):
            rows.append(Summary(piece.last, piece.body or "", piece.tokens))
        else:
            at = {"of_sid": sid, "since": extent.since, "last": piece.last}
            rows += _SENT.all(connection, {**at, "first": max(after + 1, piece.first)})
    return rows


def sums(session: LockedSession, first: int, last: int) -> Any:
    """What the messages from `first` to `last` take, as far as they are sent: all `tokens`,
    those of the `history`, those of `results`, and the `characters` of these."""
    turn = session.open_turn or session.turn + 1
    at = {"of_sid": session.sid, "first": first, "last": last, "of_turn": turn}
    return _SUMS.one(session.tx.connection, {**at, "since": session.sent_since})


def _mark_undone(session: LockedSession, n: int) -> None:
    _UNDO.run(
        session.tx.connection,
        {
            "of_sid": session.sid,
            "of_cut": n,
            "undone_n": session.cut_n,
            "undone_at": session.tx.now,
            "nonce": session.tx.nonce,
        },
    )


def count_again(session: LockedSession) -> None:
    """Set the running sums to what is sent now. A summary belongs to the history."""
    session.write_messages()
    cuts = in_force(session.tx.connection, session.sid, session.cut_n)
    session.message_tokens = session.history_tokens = 0
    session.result_tokens = session.result_characters = 0
    for piece in shown(cuts, session.message_pos, session.sent_first):
        if isinstance(piece, Cut):
            session.message_tokens += piece.tokens
            session.history_tokens += piece.tokens
            continue
        found = sums(session, piece.first, piece.last)
        session.message_tokens += found.tokens
        session.history_tokens += found.history
        session.result_tokens += found.results
        session.result_characters += found.characters
