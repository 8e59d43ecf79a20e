"""Forks: a new session takes over the transcript of another up to a step, as its own.

Rows are copied, by statements that no message passes through: so compactions, cuts, exports and
the end of the origin treat the fork as they treat any session, and no read has two of them to ask.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from everturn.errors import IdempotencyConflict, UsageError
from everturn.events import Draft
from everturn.forks import EditedResult, ForkSession
from everturn.messages import (
    AssistantMessage,
    ToolMessage,
    UserMessage,
    message_from_json,
    user_text,
)
from everturn.session import SessionKey
from everturn_activities.store import (
    ForkFolder,
    Inbound,
    SessionSettings,
    Wake,
    cuts,
    inbox,
    new_sessions,
    recordings,
    replay_plans,
    replays,
    schema,
)
from everturn_activities.store.database import StaleError, Tx
from everturn_activities.store.fork_points import Point, behind, end_of
from everturn_activities.store.locked import TOOL_PART, LockedSession
from everturn_activities.store.origins import fork_of
from everturn_activities.store.statement import Statement, insert

Count = Callable[[UserMessage | AssistantMessage | ToolMessage], int]

_s, _m, _c, _f = schema.sessions, schema.messages, schema.cuts, schema.forks
_SESSION = Statement(
    sa.select(_s).where(_s.c.tenant == sa.bindparam("of_tenant"), _s.c.id == sa.bindparam("of_id"))
)
_RESULTS = Statement(
    sa.select(_m).where(
        _m.c.sid == sa.bindparam("of_sid"),
        _m.c.turn == sa.bindparam("of_turn"),
        _m.c.step == sa.bindparam("of_step"),
        _m.c.part == TOOL_PART,
    )
)
_REWRITE = Statement(
    sa.update(_m)
    .where(_m.c.sid == sa.bindparam("of_sid"), _m.c.position == sa.bindparam("of_position"))
    .values({name: sa.bindparam(name) for name in ("body", "tokens", "result_characters")})
)
_INSERT = insert(_f)


def fork(
    tx: Tx,
    origin: SessionKey,
    made: SessionKey,
    wanted: ForkSession,
    folder: ForkFolder,
    count: Count,
) -> Wake | None:
    """Make the session `made`, once, and say whom to wake. The origin is only read.

    Raises UsageError for a step that is not finished, IdempotencyConflict where `made` is another
    session already.
    """
    source = LockedSession(tx, origin)
    digest = _digest(origin, wanted)
    known = _SESSION.first(tx.connection, {"of_tenant": made.tenant, "of_id": made.session})
    if known is not None:
        return _again(tx, made, known.sid, digest)
    played = replay_plans.plan(source, wanted) if wanted.replay is not None else None
    if played is not None:
        point = played.behind
    elif wanted.turn is None:
        point = end_of(source)
    else:
        point = behind(source, wanted.turn, wanted.step)
    row = _SESSION.one(tx.connection, {"of_tenant": origin.tenant, "of_id": origin.session})
    _create(tx, row, made, wanted, point, folder, replaying=played is not None)
    session = LockedSession(tx, made)
    _copy(source, session, point, shares=folder.own_dir is None)
    if point.results is not None:
        step = point.step or 0
        session.append(point.results, point.turn, step, TOOL_PART, point.tokens)
        session.write_messages()
    carried = session.message_pos
    for edit in wanted.edits:
        if played is None or edit.turn <= point.turn:
            _edit(session, edit, count)
    cuts.count_again(session)
    _INSERT.run(
        tx.connection,
        {
            "sid": session.sid,
            "origin": source.sid,
            "origin_id": origin.session,
            "turn": point.turn,
            "step": point.step,
            "position": carried,
            "cuts": session.cut_n,
            "digest": digest,
            "unrecorded": None if played is None else wanted.unrecorded,
            "playing": None if played is None else played.turns[0],
            "plan": None if played is None else replay_plans.written(played, wanted),
        },
    )
    session.tell(_forked(origin, wanted, point, session))
    wake = None
    if played is not None:
        later = [edit for edit in wanted.edits if edit.turn > point.turn]
        recordings.record(session, source.sid, played.turns, later, count)
        wake = replays.send(session, played.turns[0])
    if wanted.message is not None:
        message = user_text(wanted.message)
        inbound = Inbound(id="fork", kind="message", message=message)
        wake = inbox.put(session, inbound, count(message)).wake or wake
    session.save()
    return wake


def _again(tx: Tx, made: SessionKey, sid: int, digest: str) -> Wake | None:
    """The fork was made before: wake it where nobody may have done so."""
    came = fork_of(tx.connection, sid)
    if came is None or came.digest != digest:
        raise IdempotencyConflict(
            f"There is a session {made.session!r} already, which is not this fork; give the fork"
            " another id."
        )
    session = LockedSession(tx, made)
    return inbox.wake_of(session) if session.wake_at is not None else None


def _digest(origin: SessionKey, wanted: ForkSession) -> str:
    said = f"{origin.tenant}/{origin.session}\n{wanted.model_dump_json(exclude={'id'})}"
    return hashlib.sha256(said.encode()).hexdigest()


def _create(
    tx: Tx,
    row: Any,
    made: SessionKey,
    wanted: ForkSession,
    point: Point,
    folder: ForkFolder,
    replaying: bool,
) -> None:
    """The session's row: what its origin's turns had, and none of what they spent."""
    settings = SessionSettings(
        workspace=row.workspace,
        working_dir=folder.working_dir,
        agent=wanted.agent or row.agent,
        model=wanted.model or (row.model if wanted.agent is None else None),
        user=row.user,
        folder=folder.kind,
        own_dir=folder.own_dir,
    )
    carried = {
        "title": row.title,
        "useful": row.useful,
        # What servers offer is pinned by agent, and stays so.
        "served": row.served,
        # A fork of an executor is held to the same rules, and reports to nobody.
        "rules": row.rules,
        "replays": int(replaying),
        "home": folder.home,
        "turn": point.turn,
        "message_pos": point.position,
        "cut_n": point.cuts,
    }
    if new_sessions.create(tx, made, settings, **carried) is None:
        raise StaleError


def _copy(source: LockedSession, made: LockedSession, point: Point, shares: bool) -> None:
    """Copy the messages up to the point, the cuts that were in force there, and what its prompts
    and its tools are composed of."""
    connection = made.tx.connection
    _copied(connection, _m, source.sid, made.sid, _m.c.position <= point.position)
    in_force = sa.or_(_c.c.undone_n.is_(None), _c.c.undone_n > point.cuts)
    there = (_c.c.n <= point.cuts, _c.c.last <= point.position, in_force)
    _copied(connection, _c, source.sid, made.sid, *there, undone_n=None, undone_at=None)
    _copied(connection, schema.served_tools, source.sid, made.sid, home=None)
    if shares:
        # The texts that stand for a session may tell of its folder.
        _copied(connection, schema.session_layers, source.sid, made.sid)
    calls = schema.tool_calls
    ran = sa.or_(
        calls.c.turn < point.turn,
        sa.and_(calls.c.turn == point.turn, calls.c.step <= _last_step(point)),
    )
    # So that `read_more` reads on in what was cut. Nobody's seconds, and no repeated call.
    nobodys = {"duration_seconds": 0.0, "ended_at": None, "digest": None}
    _copied(connection, calls, source.sid, made.sid, calls.c.whole.is_not(None), ran, **nobodys)


def _last_step(point: Point) -> int:
    return 2**31 - 1 if point.step is None else point.step


def _copied(
    connection: sa.Connection, table: sa.Table, old: int, new: int, *which: Any, **other: Any
) -> None:
    values = {"sid": new, **other}
    columns = [
        sa.literal(values[column.name], column.type) if column.name in values else column
        for column in table.columns
    ]
    rows = sa.select(*columns).where(table.c.sid == old, *which)
    connection.execute(sa.insert(table).from_select([c.name for c in table.columns], rows))


def _edit(session: LockedSession, edit: EditedResult, count: Count) -> None:
    """Put another text in place of a result that came along."""
    connection = session.tx.connection
    at = {"of_sid": session.sid, "of_turn": edit.turn, "of_step": edit.step}
    row = _RESULTS.first(connection, at)
    message = None if row is None else message_from_json(row.body)
    if not isinstance(message, ToolMessage) or edit.index >= len(message.results):
        raise UsageError(
            f"There is no result {edit.place} among what the fork begins with; name a call as"
            " TURN.STEP.INDEX, where the first of a step has the index 0."
        )
    for cut in cuts.in_force(connection, session.sid, session.cut_n):
        if cut.first <= row.position <= cut.last:
            raise UsageError(
                f"Result {edit.place} is no longer sent: a {cut.kind} left it out before that"
                " step; fork from an earlier step to edit it."
            )
    results = list(message.results)
    results[edit.index] = results[edit.index].model_copy(update={"text": edit.text})
    edited = ToolMessage(results=tuple(results))
    values = {
        "body": edited.model_dump_json(exclude_defaults=False),
        "tokens": count(edited),
        "result_characters": sum(len(result.text) for result in results),
    }
    _REWRITE.run(connection, {**values, "of_sid": session.sid, "of_position": row.position})


def _forked(origin: SessionKey, wanted: ForkSession, point: Point, session: LockedSession) -> Draft:
    return Draft(
        id="fork",
        type="session_forked",
        body={
            "session": origin.session,
            "at_turn": point.turn,
            "at_step": point.step,
            "messages": session.message_pos,
            "tokens": session.message_tokens,
            "edits": [edit.place for edit in wanted.edits],
            "replay": wanted.replay,
            "unrecorded": None if wanted.replay is None else wanted.unrecorded,
        },
    )
