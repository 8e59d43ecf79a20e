"""The step behind which a session is forked or taken back to, and what stands up to there."""

from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from everturn.errors import UsageError
from everturn.forks import place_text
from everturn.messages import ToolMessage
from everturn_activities.store import schema
from everturn_activities.store.locked import NUDGE_PART, LockedSession
from everturn_activities.store.origins import fork_of
from everturn_activities.store.results import result_of
from everturn_activities.store.statement import Statement
from everturn_activities.store.steps import LAST_STEP, RESULTS, STEP, context_head

_m, _c = schema.messages, schema.cuts
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_turn: sa.BindParameter[int] = sa.bindparam("of_turn")
_step: sa.BindParameter[int] = sa.bindparam("of_step")
_UP_TO_TURN = Statement(
    sa.select(sa.func.max(_m.c.position)).where(_m.c.sid == _sid, _m.c.turn <= _turn)
)
_UP_TO_STEP = Statement(
    sa.select(sa.func.max(_m.c.position)).where(
        _m.c.sid == _sid,
        sa.or_(
            _m.c.turn < _turn,
            sa.and_(
                _m.c.turn == _turn,
                # A nudge belongs to the step that it is for.
                sa.or_(_m.c.step < _step, sa.and_(_m.c.step == _step, _m.c.part < NUDGE_PART)),
            ),
        ),
    )
)
_HOLDS = Statement(
    sa.select(_m.c.position)
    .where(_m.c.sid == _sid, _m.c.turn == _turn, _m.c.step == _step, _m.c.role == "assistant")
    .limit(1)
)
_MADE_BEFORE = Statement(sa.select(sa.func.max(_c.c.n)).where(_c.c.sid == _sid, _c.c.turn < _turn))


@dataclass(frozen=True)
class Point:
    """Behind `step` of `turn`, or behind the whole turn: messages up to `position`, under the
    cuts at number `cuts`. `results` are those of the step where they stand in no message yet."""

    turn: int
    step: int | None
    position: int
    cuts: int
    results: ToolMessage | None = None
    tokens: int = 0


def end_of(session: LockedSession) -> Point:
    """Behind all that is finished."""
    if session.open_turn is None and session.message_pos:
        return Point(session.turn, None, session.message_pos, session.cut_n)
    turn = session.open_turn or 1
    step = _last_finished(session, turn)
    if step:
        return _behind_step(session, turn, step)
    # What was left out since the turn before ended stays so.
    point = replace(behind(session, turn - 1, None), cuts=session.cut_n)
    if point.position == 0:
        raise UsageError(
            f"Session {session.key.session!r} has nothing yet to begin with: no step of a first"
            " turn is finished; wait for one, or begin a session of its own."
        )
    return point


def behind(session: LockedSession, turn: int, step: int | None) -> Point:
    """Behind a whole turn that is over, or a finished step. Raises UsageError for any other."""
    name = session.key.session
    if turn > session.turn:
        newest = f"its newest is {session.turn}" if session.turn else "it has none yet"
        raise UsageError(f"Session {name!r} has no turn {turn}; {newest}.")
    if step is not None:
        return _behind_step(session, turn, step)
    if turn == session.open_turn:
        last = _last_finished(session, turn)
        other = f"step {turn}.{last}, its last finished one" if last else f"turn {turn - 1}"
        raise UsageError(
            f"Turn {turn} of session {name!r} is not over; name {other}, or wait for its end."
        )
    at = {"of_sid": session.sid, "of_turn": turn}
    position = _UP_TO_TURN.scalar(session.tx.connection, at) or 0
    return Point(turn, None, position, _cuts_at_end(session, turn))


def before(session: LockedSession, turn: int) -> Point:
    """What the turn began with."""
    step = STEP.first(session.tx.connection, {"of_sid": session.sid, "of_turn": turn, "of_step": 1})
    point = behind(session, turn - 1, None)
    return point if step is None else replace(point, cuts=context_head(step.context).cuts)


def _behind_step(session: LockedSession, turn: int, step: int) -> Point:
    connection = session.tx.connection
    at = {"of_sid": session.sid, "of_turn": turn, "of_step": step}
    row = STEP.first(connection, at)
    position = _UP_TO_STEP.scalar(connection, at) or 0
    came = fork_of(connection, session.sid)
    if row is None and came is not None and turn <= came.turn and _HOLDS.first(connection, at):
        return Point(turn, step, position, came.cuts)
    place = place_text(turn, step)
    if row is None:
        last = LAST_STEP.scalar(connection, at)
        there = f"the last step of turn {turn} is {turn}.{last}" if last else "there are none"
        raise UsageError(
            f"Session {session.key.session!r} has no step {place} of its own; {there}."
        )
    calls = RESULTS.all(connection, at)
    why = _unfinished(row, calls)
    if why is not None:
        raise UsageError(
            f"Step {place} of session {session.key.session!r} is not finished: {why}; name a step"
            " before it, or wait for it."
        )
    head = context_head(row.context)
    results = None
    if calls and not row.results_told:
        results = ToolMessage(results=tuple(result_of(call) for call in calls))
    tokens = sum(call.tokens for call in calls)
    return Point(turn, step, position, head.cuts, results, tokens)


def _unfinished(row: Any, calls: list[Any]) -> str | None:
    if row.state != "done":
        return "it has no reply"
    left = sum(call.state != "done" or bool(call.followed) for call in calls)
    # What a turn's end left without a result is answered in its transcript.
    if left and not row.results_told:
        return f"{left} of its calls {'has' if left == 1 else 'have'} no result"
    return None


def _last_finished(session: LockedSession, turn: int) -> int:
    connection = session.tx.connection
    at = {"of_sid": session.sid, "of_turn": turn}
    last: int = LAST_STEP.scalar(connection, at) or 0
    while last:
        there = {**at, "of_step": last}
        if _unfinished(STEP.one(connection, there), RESULTS.all(connection, there)) is None:
            return last
        last -= 1
    return 0


def _cuts_at_end(session: LockedSession, turn: int) -> int:
    """The number of the cuts when the turn ended; that of its own rollback comes after."""
    connection = session.tx.connection
    at = {"of_sid": session.sid, "of_turn": turn}
    last = LAST_STEP.scalar(connection, at)
    if last is not None:
        return context_head(STEP.one(connection, {**at, "of_step": last}).context).cuts
    came = fork_of(connection, session.sid)
    if came is not None and turn <= came.turn:
        return int(came.cuts)
    return _MADE_BEFORE.scalar(connection, at) or 0
