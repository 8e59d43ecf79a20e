"""What becomes of each time of a schedule: decided once, in the transaction that sends its message.

Overlap is about the turn that works a message, so it is the rows of the last message's session
that tell whether an earlier run still works.
"""

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa

from everturn.errors import IdempotencyConflict, UnknownSession, UsageError
from everturn.messages import user_text
from everturn.schedules import SENDER, Definition, RunState, shown_seconds
from everturn.session import Mode, SessionKey
from everturn_activities import cron
from everturn_activities.store import (
    Inbound,
    SessionSettings,
    Wake,
    budgets,
    inbox,
    new_sessions,
    runs,
    schedules,
    schema,
)
from everturn_activities.store.database import Tx
from everturn_activities.store.metering import Count

KEPT = 200
"""So many of a schedule's newest times are remembered."""

_f, _s, _i = schema.firings, schema.sessions, schema.inbox


@dataclass(frozen=True)
class Firing:
    """A time of a schedule, or a run that a person asked for by `key`. `own_dir` is where a new
    session would work, as was found for `version` of the schedule, or a `problem` was."""

    tenant: str
    name: str
    at: float
    version: int
    key: str = ""
    own_dir: str | None = None
    problem: str = ""

    @property
    def by_hand(self) -> bool:
        return bool(self.key)

    @property
    def sender_id(self) -> str:
        """Under which id the message is sent: one for each time."""
        return f"{SENDER}{self.name}:{self.key or cron.name_of(self.at)}"

    @property
    def new_session(self) -> str:
        stamp = f"{self.name}-{cron.name_of(self.at)}"
        if not self.by_hand:
            return stamp
        # Two within a second are two.
        return f"{stamp}-{hashlib.sha256(self.key.encode()).hexdigest()[:6]}"


@dataclass(frozen=True)
class Fired:
    """What became of it, and whom to wake. `unknown`: there is no such schedule; `ignored`: that
    is no time of it; `again`: it was changed meanwhile, look anew."""

    state: RunState | Literal["unknown", "ignored", "again"]
    wakes: tuple[Wake, ...] = ()


def fire(tx: Tx, firing: Firing, count: Count) -> Fired:
    """Decide about a time of a schedule, once, and send its message where it is to be sent."""
    row = schedules.locked(tx, firing.tenant, firing.name)
    if row is None or row.state == "removed":
        return Fired("unknown")
    key = firing.key or cron.name_of(firing.at)
    known = tx.connection.execute(
        sa.select(_f.c.state).where(_f.c.schedule == row.id, _f.c.key == key)
    ).scalar()
    if known is not None:
        return Fired(known)
    if row.version != firing.version:
        return Fired("again")
    definition = schedules.definition_of(row)
    if not firing.by_hand:
        if row.state != "active" or not _is_its(definition, firing.at):
            return Fired("ignored")
        late = _too_late(definition, firing.at, tx.now)
        if late is not None:
            return _note(tx, row, firing, key, "missed", late)
    busy = runs.working(tx.connection, row.id)
    why = None if busy is None else _overlap(definition, busy)
    if why is not None:
        return _note(tx, row, firing, key, "skipped", why)
    if firing.problem:
        return _note(tx, row, firing, key, "failed", firing.problem)
    try:
        with tx.connection.begin_nested():
            return _send(tx, row, firing, key, definition, busy, count)
    except (IdempotencyConflict, UnknownSession, UsageError) as error:
        return _note(tx, row, firing, key, "failed", str(error))


def _is_its(definition: Definition, at: float) -> bool:
    return at >= definition.since and cron.is_time(definition, at, definition.since)


def _too_late(definition: Definition, at: float, now: float) -> str | None:
    """Why a time is not made up for, in words; None where its message is to be sent."""
    if now - at > definition.catch_up_seconds:
        return (
            f"The runtime was down, and came back more than"
            f" {shown_seconds(definition.catch_up_seconds)} later."
        )
    later = cron.times(definition, at, 1, definition.since)
    if definition.overlap != "queue" and definition.overlap != "all" and later and later[0] <= now:
        # Otherwise a week of times would be worked one after the other.
        return "The runtime was down, and the run of a later time stands for this one."
    return None


def _overlap(definition: Definition, busy: Any) -> str | None:
    """Why the message is not sent beside the run that works, in words; None where it is."""
    of = f"The run of {_when(busy.at)} in session {busy.session}"
    match definition.overlap:
        case "skip":
            return f"{of} {'has not begun' if busy.stands == 'waiting' else 'still works'}."
        case "cancel" if busy.stands == "waiting":
            return f"{of} has not begun, and does the same."
        case _:
            return None


def _send(
    tx: Tx,
    row: Any,
    firing: Firing,
    key: str,
    definition: Definition,
    busy: Any,
    count: Count,
) -> Fired:
    wakes: list[Wake | None] = []
    mode: Mode = "queue"
    if definition.session is not None:
        at = SessionKey(firing.tenant, definition.session)
        if busy is not None and definition.overlap == "cancel":
            mode = "interrupt"
    else:
        at = SessionKey(firing.tenant, firing.new_session)
        if busy is not None and definition.overlap == "cancel":
            wakes.append(_cancel(tx, SessionKey(firing.tenant, busy.session), busy, firing))
        _open(tx, at, definition, firing)
    message = user_text(_said(definition, firing))
    of_session = definition.session is not None
    inbound = Inbound(
        id=firing.sender_id,
        kind="message",
        message=message,
        mode=mode,
        agent=definition.agent if of_session else None,
        model=definition.model if of_session else None,
    )
    accepted = inbox.accept(tx, at, inbound, count(message))
    wakes.append(accepted.wake)
    fired = _note(tx, row, firing, key, "sent", "", at)
    if not accepted.view.duplicate:
        schedules.sent(tx, row, definition)
    return replace(fired, wakes=tuple(wake for wake in wakes if wake is not None))


def _cancel(tx: Tx, key: SessionKey, busy: Any, firing: Firing) -> Wake | None:
    cancel = Inbound(id=f"{firing.sender_id}:cancels", kind="cancel", target=busy.turn)
    return inbox.accept(tx, key, cancel, 0).wake


def _open(tx: Tx, key: SessionKey, definition: Definition, firing: Firing) -> None:
    """The session of this run; IdempotencyConflict where there is one of its name."""
    settings = SessionSettings(
        definition.workspace,
        definition.working_dir,
        definition.agent or "default",
        definition.model,
        definition.user,
        definition.folder,
        firing.own_dir,
    )
    if new_sessions.create(tx, key, settings) is None:
        raise IdempotencyConflict(f"There is a session {key.session!r} that no run began.")
    if definition.budget is not None:
        budgets.put(tx, key.tenant, "session", key.session, definition.budget)


def _said(definition: Definition, firing: Firing) -> str:
    if definition.made_by is None:
        return definition.prompt
    # No person says this, and the model must know.
    return f"[From schedule {firing.name}, which you have set yourself.]\n\n{definition.prompt}"


def _note(
    tx: Tx,
    row: Any,
    firing: Firing,
    key: str,
    state: RunState,
    why: str,
    session: SessionKey | None = None,
) -> Fired:
    sid = None
    if session is not None:
        named = sa.select(_s.c.sid).where(_s.c.tenant == session.tenant, _s.c.id == session.session)
        sid = tx.connection.execute(named).scalar_one()
    values = {
        "schedule": row.id,
        "key": key,
        "at": firing.at,
        "by_hand": int(firing.by_hand),
        "state": state,
        "why": why,
        "sid": sid,
        "sender_id": firing.sender_id if sid is not None else None,
    }
    tx.connection.execute(sa.insert(_f), values)
    _prune(tx, row.id)
    return Fired(state)


def _prune(tx: Tx, schedule: int) -> None:
    mine = _f.c.schedule == schedule
    oldest = sa.select(_f.c.at).where(mine).order_by(_f.c.at.desc()).offset(KEPT).limit(1)
    last = tx.connection.execute(oldest).scalar()
    if last is not None:
        # What still works is what a later time overlaps with, however old it is.
        works = sa.exists().where(
            _i.c.sid == _f.c.sid,
            _i.c.sender_id == _f.c.sender_id,
            sa.or_(
                _i.c.state == "waiting",
                sa.and_(_s.c.sid == _i.c.sid, _s.c.open_turn == _i.c.turn),
            ),
        )
        tx.connection.execute(sa.delete(_f).where(mine, _f.c.at <= last, ~works))


def _when(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
