"""The journal of hooks: an intent before each, and what came of it, once a session."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from everturn.agents import AgentSpec
from everturn.events import Draft
from everturn.hooks import Hook
from everturn.session import SessionKey
from everturn_activities.store import Caller, HookEnd, HookInterrupted, HookStarted, reads, schema
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.statement import Statement, insert

_runs = schema.hook_runs
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_one = sa.and_(_runs.c.sid == _sid, _runs.c.digest == sa.bindparam("of_digest"))
_RUN = Statement(sa.select(_runs).where(_one))
_DONE = Statement(
    sa.select(_runs.c.digest, _runs.c.exit_code, _runs.c.output).where(
        _runs.c.sid == _sid, _runs.c.state == "done"
    )
)
_INSERT = insert(_runs)
_END = Statement(
    sa.update(_runs)
    .where(_one, _runs.c.state == "started")
    .values({name: sa.bindparam(name) for name in ("state", "ended_at", "exit_code", "output")})
)


def seconds_due(session: LockedSession, spec: AgentSpec) -> float:
    """How long the hooks may take at most that the session has not run yet; 0 for none."""
    hooks = spec.agent.hooks.agent_spawn
    if not hooks:
        return 0.0
    done = {row.digest for row in _DONE.all(session.tx.connection, {"of_sid": session.sid})}
    return sum(hook.timeout_seconds for hook in hooks if hook.digest not in done)


def begin(
    tx: Tx, key: SessionKey, turn: int, epoch: int, hook: Hook, caller: Caller
) -> HookStarted | HookInterrupted | None:
    """Write the intent of a hook, the first time; None where it has ended already."""
    session = LockedSession(tx, key)
    session.demand_host(turn, epoch)
    at = {"of_sid": session.sid, "of_digest": hook.digest}
    row = _RUN.first(tx.connection, at)
    if row is not None and row.state == "done":
        return None
    if row is not None and row.nonce != caller.nonce:
        return HookInterrupted(row.worker, row.started_at)
    if row is None:
        _INSERT.run(
            tx.connection,
            {
                "sid": session.sid,
                "digest": hook.digest,
                "turn": turn,
                "state": "started",
                "worker": caller.worker,
                "nonce": caller.nonce,
                "task_token": caller.task_token,
                "started_at": tx.now,
            },
        )
    return HookStarted()


def complete(tx: Tx, key: SessionKey, turn: int, hook: Hook, end: HookEnd) -> None:
    """Write what came of a hook; the first to say so wins."""
    session = LockedSession(tx, key)
    at = {"of_sid": session.sid, "of_digest": hook.digest}
    row = _RUN.first(tx.connection, at)
    if row is None or row.state == "done":
        return
    _END.run(
        tx.connection,
        {
            **at,
            "state": "done",
            "ended_at": tx.now,
            "exit_code": end.exit_code,
            "output": end.output,
        },
    )
    if end.problem is not None and session.open_turn == turn:
        session.tell(
            Draft(
                id=f"turn/{turn}/hook/{hook.digest[:16]}",
                type="status",
                turn=turn,
                body={"text": end.problem},
            )
        )
    session.save()


def outputs(connection: sa.Connection, key: SessionKey, hooks: Sequence[Hook]) -> list[str]:
    """What the hooks printed that succeeded, in their order; empty for the others."""
    at: dict[str, Any] = {"of_sid": reads.sid_of(connection, key)}
    printed = {row.digest: row.output for row in _DONE.all(connection, at) if row.exit_code == 0}
    return [printed.get(hook.digest, "") for hook in hooks]
