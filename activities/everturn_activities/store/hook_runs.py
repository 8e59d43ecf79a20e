"""The journal of hooks: an intent before each, and what came of it, once at each place."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from everturn.agents import AgentSpec
from everturn.events import Draft
from everturn.hooks import Hook, HookMoment
from everturn.session import EndHooks, SessionKey
from everturn_activities.store import Caller, HookEnd, HookInterrupted, HookStarted, reads, schema
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.statement import Statement, insert

_runs, _s = schema.hook_runs, schema.sessions
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_one = sa.and_(
    _runs.c.sid == _sid,
    _runs.c.place == sa.bindparam("of_place"),
    _runs.c.digest == sa.bindparam("of_digest"),
)
_RUN = Statement(sa.select(_runs).where(_one))
_DONE = Statement(
    sa.select(_runs.c.digest, _runs.c.exit_code, _runs.c.output).where(
        _runs.c.sid == _sid, _runs.c.place == "", _runs.c.state == "done"
    )
)
_INSERT = insert(_runs)
_AGAIN = Statement(
    sa.update(_runs)
    .where(_one)
    .values(
        {
            name: sa.bindparam(name)
            for name in ("state", "attempt", "worker", "nonce", "task_token", "started_at")
        }
    )
)
_END = Statement(
    sa.update(_runs)
    .where(_one, _runs.c.state == "started")
    .values(
        due_at=None,
        **{name: sa.bindparam(name) for name in ("state", "ended_at", "exit_code", "output")},
    )
)
_DUE = Statement(
    sa.select(_s.c.tenant, _s.c.id, _s.c.home, _runs.c.turn)
    .join(_s, _s.c.sid == _runs.c.sid)
    .where(_runs.c.due_at <= sa.bindparam("upto"))
    .distinct()
    .limit(sa.bindparam("most"))
)
_PUT_OFF = Statement(
    sa.update(_runs)
    .where(
        _runs.c.sid == _sid,
        _runs.c.place == sa.bindparam("of_place"),
        _runs.c.due_at.is_not(None),
    )
    .values(due_at=sa.bindparam("due_at"))
)
BEGUN_SECONDS = 600.0
"""After which hooks of a turn's end that were begun, and did not end, are begun again."""


def beside(turn: int, step: int, index: int, moment: HookMoment, edited: bool) -> str:
    """The place of a hook beside a call; what a person has edited is another call to it."""
    return f"{turn}.{step}.{index} {moment}{' edited' if edited else ''}"


def at_end(turn: int) -> str:
    return f"{turn} TurnEnd"


def mark_due(session: LockedSession, turn: int, hooks: Sequence[Hook]) -> None:
    """Have the hooks of the turn's end run, in the transaction that ends it."""
    now = session.tx.now
    named = {"sid": session.sid, "place": at_end(turn), "turn": turn, "state": "due"}
    for hook in hooks:
        begun = {"attempt": 0, "worker": "", "nonce": "", "started_at": now, "due_at": now}
        _INSERT.run(session.tx.connection, {**named, **begun, "digest": hook.digest})


def due(connection: sa.Connection, upto: float, limit: int) -> list[EndHooks]:
    """Turns whose last hooks are to be begun."""
    rows = _DUE.all(connection, {"upto": upto, "most": limit})
    return [EndHooks(row.tenant, row.id, row.turn, row.home or "") for row in rows]


def begun(tx: Tx, request: EndHooks) -> None:
    """Let nobody begin them again before their time has come: they are begun."""
    sid = reads.sid_of(tx.connection, SessionKey(request.tenant, request.session))
    at = {"of_sid": sid, "of_place": at_end(request.turn)}
    _PUT_OFF.run(tx.connection, {**at, "due_at": tx.now + BEGUN_SECONDS})


def seconds_due(session: LockedSession, spec: AgentSpec) -> float:
    """How long the hooks may take at most that the session has not run yet; 0 for none."""
    hooks = spec.agent.hooks.agent_spawn
    if not hooks:
        return 0.0
    done = {row.digest for row in _DONE.all(session.tx.connection, {"of_sid": session.sid})}
    return sum(hook.timeout_seconds for hook in hooks if hook.digest not in done)


def begin(
    tx: Tx,
    key: SessionKey,
    turn: int,
    epoch: int | None,
    hook: Hook,
    caller: Caller,
    place: str,
    after_attempt: int,
) -> HookStarted | HookInterrupted | HookEnd:
    """Write the intent of a hook, or say how it has ended at that place.

    `epoch` is None where no run hosts what the hook belongs to: its turn is over.
    """
    session = LockedSession(tx, key)
    if epoch is not None:
        session.demand_host(turn, epoch)
    at = {"of_sid": session.sid, "of_place": place, "of_digest": hook.digest}
    row = _RUN.first(tx.connection, at)
    if row is not None and row.state == "done":
        return HookEnd(row.exit_code, row.output)
    begun = {
        "state": "started",
        "attempt": 1,
        "worker": caller.worker,
        "nonce": caller.nonce,
        "task_token": caller.task_token,
        "started_at": tx.now,
    }
    if row is None:
        named = {"sid": session.sid, "place": place, "digest": hook.digest, "turn": turn}
        _INSERT.run(tx.connection, {**named, **begun})
    elif row.nonce == caller.nonce:
        return HookStarted()
    elif row.attempt == after_attempt:
        _AGAIN.run(tx.connection, {**at, **begun, "attempt": row.attempt + 1})
    else:
        return HookInterrupted(row.worker, session.tx.now - row.started_at, row.attempt)
    return HookStarted()


def complete(
    tx: Tx,
    key: SessionKey,
    turn: int,
    hook: Hook,
    end: HookEnd,
    place: str,
    told: Draft | None,
) -> HookEnd:
    """Write what came of a hook, and tell it; the first to say so wins, and comes back."""
    session = LockedSession(tx, key)
    at = {"of_sid": session.sid, "of_place": place, "of_digest": hook.digest}
    row = _RUN.first(tx.connection, at)
    if row is None:
        return end
    if row.state == "done":
        return HookEnd(row.exit_code, row.output)
    ended = {"state": "done", "ended_at": tx.now}
    _END.run(tx.connection, {**at, **ended, "exit_code": end.exit_code, "output": end.output})
    if told is not None and (session.open_turn == turn or place == at_end(turn)):
        session.tell(told)
    session.save()
    return end


def outputs(connection: sa.Connection, key: SessionKey, hooks: Sequence[Hook]) -> list[str]:
    """What the hooks printed that succeeded, in their order; empty for the others."""
    at: dict[str, Any] = {"of_sid": reads.sid_of(connection, key)}
    printed = {row.digest: row.output for row in _DONE.all(connection, at) if row.exit_code == 0}
    return [printed.get(hook.digest, "") for hook in hooks]
