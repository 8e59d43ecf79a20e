"""Taking a session back to a step: what comes behind it is no longer sent, and can be again."""

import sqlalchemy as sa

from everturn.context.cuts import Cut, shown
from everturn.errors import UsageError
from everturn.events import Draft
from everturn.forks import place_text
from everturn.session import SessionKey
from everturn_activities.store import Rewound, cuts, inbox, schema
from everturn_activities.store.database import Tx, asked_as
from everturn_activities.store.fork_points import Point, behind
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.origins import fork_of
from everturn_activities.store.statement import Statement

_calls = schema.tool_calls
_CALLED = Statement(
    sa.select(_calls.c.idx)
    .where(
        _calls.c.sid == sa.bindparam("of_sid"),
        # Those that a fork has taken over changed no file of its own.
        _calls.c.turn > sa.bindparam("of_own"),
        sa.or_(
            _calls.c.turn > sa.bindparam("of_turn"),
            sa.and_(
                _calls.c.turn == sa.bindparam("of_turn"), _calls.c.step >= sa.bindparam("of_step")
            ),
        ),
    )
    .limit(1)
)


def rewind(
    tx: Tx,
    key: SessionKey,
    turn: int,
    step: int | None,
    id: str | None,  # noqa: A002
) -> Rewound:
    """Leave all messages behind the step out of what is sent from now on, and have files go back
    to what they were then. Where nothing comes behind it, nothing changes.

    Raises UsageError while a turn is open or waits, and for a step that is out of the context.
    """
    session = LockedSession(asked_as(tx, id), key)
    if (done := cuts.made_before(session)) is not None:
        return Rewound(turn, step, done.last - done.first + 1)
    _demand_rest(session)
    point = behind(session, turn, step)
    _demand_sent(session, point)
    first, last = point.position + 1, session.message_pos
    in_force = cuts.in_force(tx.connection, session.sid, session.cut_n)
    if not any(piece.last >= first for piece in shown(in_force, last)):
        return Rewound(turn, step, 0)
    n = cuts.cut(session, "rewind", first, last, session.turn)
    _have_files_restored(session, point)
    session.tell(
        Draft(
            id=f"cut/{n}/rewound",
            type="session_rewound",
            body={
                "at_turn": turn,
                "at_step": step,
                "first": first,
                "last": last,
                "messages": last - point.position,
            },
        )
    )
    session.save()
    return Rewound(turn, step, last - point.position)


def undo(tx: Tx, key: SessionKey, id: str | None) -> Cut:  # noqa: A002
    """Send again what the newest rewind left out. Files stay as they are."""
    session = LockedSession(asked_as(tx, id), key)
    if (done := cuts.undone_before(session)) is not None:
        return done
    _demand_rest(session)
    undone = cuts.undo(session, "rewind")
    if undone is None:
        raise UsageError(f"Session {key.session!r} was not taken back, so that is not undone.")
    body = {"first": undone.first, "last": undone.last}
    session.tell(Draft(id=f"cut/{session.cut_n}/undone", type="rewind_undone", body=body))
    session.save()
    return undone


def _demand_rest(session: LockedSession) -> None:
    waits = any(row["kind"] == "message" for row in inbox.waiting(session))
    if session.open_turn is not None or waits:
        raise UsageError(
            f"Session {session.key.session!r} works; cancel it with 'everturn cancel"
            f" {session.key.session}', or wait for its end."
        )


def _demand_sent(session: LockedSession, point: Point) -> None:
    for cut in cuts.in_force(session.tx.connection, session.sid, session.cut_n):
        if cut.kind != "compaction" and cut.first <= point.position <= cut.last:
            place = place_text(point.turn, point.step)
            mend = "fork it from there"
            if cut.kind == "rewind":
                mend = f"'everturn rewind {session.key.session} --undo' takes that back; or {mend}"
            raise UsageError(
                f"The messages of {place} are not sent any more, since a {cut.kind}; {mend}."
            )


def _have_files_restored(session: LockedSession, point: Point) -> None:
    since = (point.turn + 1, 0) if point.step is None else (point.turn, point.step + 1)
    came = fork_of(session.tx.connection, session.sid)
    own = 0 if came is None else came.turn
    at = {"of_sid": session.sid, "of_turn": since[0], "of_step": since[1], "of_own": own}
    if _CALLED.first(session.tx.connection, at) is None:
        return
    # What an earlier rollback left to do is done with it.
    known = (session.restore_turn, session.restore_step)
    session.restore_turn, session.restore_step = min(since, known) if known[0] else since
