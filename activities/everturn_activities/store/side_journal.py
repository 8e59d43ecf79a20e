"""The journal of side calls: model calls that are no step, such as compactions.

As for steps: attempts are counted, a reply is written once, late writers are fenced. A
reply is known by its content too, so that the same request of a tenant is paid once.
"""

import hashlib
import json
from typing import Any, Literal

import sqlalchemy as sa

from everturn.context.compose import Context
from everturn.errors import Fenced
from everturn_activities.gateways import Usage
from everturn_activities.store import Caller, ledger, schema
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.metering import Meter
from everturn_activities.store.statement import Statement, insert

SideKind = Literal["compaction", "title", "memory"]

PROMPT_TOKENS = 600
"""About what a request takes beside what it tells of the conversation."""

_side = schema.side_calls
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_one = sa.and_(
    _side.c.sid == _sid,
    _side.c.turn == sa.bindparam("of_turn"),
    _side.c.kind == sa.bindparam("of_kind"),
    _side.c.ordinal == sa.bindparam("of_ordinal"),
)
_CALL = Statement(sa.select(_side).where(_one))
_ENDED = Statement(
    sa.select(sa.func.count()).where(
        _side.c.sid == _sid,
        _side.c.turn == sa.bindparam("of_turn"),
        _side.c.kind == sa.bindparam("of_kind"),
        _side.c.ordinal > 0,
        _side.c.ended_at.is_not(None),
    )
)
_PAID = Statement(
    sa.select(
        sa.func.coalesce(sa.func.sum(_side.c.input_tokens), 0).label("input_tokens"),
        sa.func.coalesce(sa.func.sum(_side.c.output_tokens), 0).label("output_tokens"),
        sa.func.count(_side.c.ended_at).label("calls"),
        sa.func.count(_side.c.cost_usd).label("priced"),
        sa.func.sum(_side.c.cost_usd).label("cost_usd"),
    ).where(_side.c.sid == _sid, _side.c.turn == sa.bindparam("of_turn"), _side.c.output_tokens > 0)
)
_STARTED = Statement(
    sa.select(_side).where(
        _side.c.sid == _sid,
        _side.c.turn == sa.bindparam("of_turn"),
        _side.c.state == "started",
    )
)
_INSERT = insert(_side)
_BEGIN = Statement(
    sa.update(_side)
    .where(_one)
    .values(
        {
            name: sa.bindparam(name)
            for name in ("state", "attempt", "model", "worker", "nonce", "task_token", "started_at")
        }
    )
)
_USED = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
_END = Statement(
    sa.update(_side)
    .where(_one)
    .values(
        {
            name: sa.bindparam(name)
            for name in ("state", "ended_at", "content_key", "reply", "error", *_USED, "cost_usd")
        }
    )
)
_FAIL = Statement(
    sa.update(_side)
    .where(_one)
    .values(
        state="failed",
        error=sa.bindparam("error"),
        failures=sa.bindparam("failures"),
        task_token=None,
    )
)
_KNOWN = Statement(
    sa.select(_side.c.reply)
    .join(schema.sessions, schema.sessions.c.sid == _side.c.sid)
    .where(
        _side.c.content_key == sa.bindparam("of_content"),
        _side.c.state == "done",
        schema.sessions.c.tenant == sa.bindparam("of_tenant"),
    )
    .limit(1)
)


def content_key(request: Context) -> str:
    """Equal for requests that are equal in all that a model is sent."""
    how = {"stall_seconds", "tool_role", "cached", "steady", "stream"}
    sent = request.model_dump_json(exclude=how)
    return hashlib.sha256(sent.encode("utf-8", "replace")).hexdigest()


def next_ordinal(session: LockedSession, kind: SideKind) -> int:
    """The number in the open turn of the call that is under way or comes next."""
    at = {"of_sid": session.sid, "of_turn": session.open_turn, "of_kind": kind}
    return int(_ENDED.scalar(session.tx.connection, at)) + 1


def call(session: LockedSession, turn: int, kind: SideKind, ordinal: int) -> Any:
    """The call's row, or None."""
    return _CALL.first(session.tx.connection, _at(session, turn, kind, ordinal))


def begin(
    session: LockedSession,
    turn: int,
    kind: SideKind,
    ordinal: int,
    plan: str,
    model: str,
    caller: Caller,
) -> int:
    """Count an attempt at a call that has not ended; `plan` is kept by the first."""
    row = call(session, turn, kind, ordinal)
    attempt: int = 1 if row is None else row.attempt + 1
    begun = {
        "state": "started",
        "attempt": attempt,
        "model": model,
        "worker": caller.worker,
        "nonce": caller.nonce,
        "task_token": caller.task_token,
        "started_at": session.tx.now,
    }
    at = _at(session, turn, kind, ordinal)
    if row is None:
        key = {"sid": session.sid, "turn": turn, "kind": kind, "ordinal": ordinal}
        _INSERT.run(session.tx.connection, {**key, "plan": plan, **begun})
    else:
        _BEGIN.run(session.tx.connection, {**at, **begun})
    return attempt


def is_own(row: Any, caller: Caller) -> bool:
    """Whether the attempt under way is this very execution's: it began, and the COMMIT was not
    heard of, so nothing has been sent yet."""
    return bool(row is not None and row.state == "started" and row.nonce == caller.nonce)


def fence(session: LockedSession, turn: int, kind: SideKind, ordinal: int, attempt: int) -> Any:
    """The call's row if `attempt` is the one under way, else Fenced."""
    session.demand_open(turn)
    row = call(session, turn, kind, ordinal)
    if row is None or row.attempt != attempt or row.state != "started":
        raise Fenced(f"Attempt {attempt} of {kind} {ordinal} in turn {turn} is over.")
    return row


def over(session: LockedSession, turn: int, kind: SideKind, ordinal: int, attempt: int) -> Any:
    """The call's row where `attempt` has been recorded as ended already, else None: what an
    execution recorded whose COMMIT was not heard of stands, and is its answer."""
    row = call(session, turn, kind, ordinal)
    if row is None or row.attempt != attempt or row.state == "started":
        return None
    return row


def end(
    session: LockedSession,
    turn: int,
    kind: SideKind,
    ordinal: int,
    *,
    content: str | None,
    reply: str | None,
    error: str | None,
    usage: Usage,
    cost_usd: float | None,
) -> None:
    """Write what came of a call, once and for good: a `reply`, or the `error` of a failure."""
    _END.run(
        session.tx.connection,
        {
            **_at(session, turn, kind, ordinal),
            "state": "failed" if reply is None else "done",
            "ended_at": session.tx.now,
            "content_key": content,
            "reply": reply,
            "error": error,
            **{name: getattr(usage, name) for name in _USED},
            "cost_usd": cost_usd,
        },
    )


def fail_attempt(
    session: LockedSession, turn: int, kind: SideKind, ordinal: int, error: str, failures: int
) -> None:
    """Keep why an attempt failed; another may follow."""
    at = _at(session, turn, kind, ordinal)
    _FAIL.run(session.tx.connection, {**at, "error": error, "failures": failures})


def metered(row: Any) -> ledger.Call:
    """The attempt in a call's row as the ledger knows it."""
    tokens: int = json.loads(row.plan)["tokens"] + PROMPT_TOKENS
    at = (row.turn, row.ordinal, row.attempt, row.model, row.worker, row.started_at)
    return ledger.Call(*at, tokens, row.kind)


def lose(session: LockedSession, row: Any, meter: Meter) -> None:
    """Spend the input of an attempt whose end nobody saw."""
    call = metered(row)
    usage = Usage(input_tokens=call.context_tokens, estimated=True)
    ledger.lose_call(session, call, usage, meter.usd(row.model, usage))


def close(session: LockedSession, turn: int, meter: Meter) -> None:
    """End the calls of a turn that is over: nobody will hear of them any more."""
    at = {"of_sid": session.sid, "of_turn": turn}
    for row in _STARTED.all(session.tx.connection, at):
        lose(session, row, meter)
        end(
            session,
            turn,
            row.kind,
            row.ordinal,
            content=None,
            reply=None,
            error="The turn ended.",
            usage=Usage(),
            cost_usd=None,
        )


def paid(connection: sa.Connection, sid: int, turn: int) -> Any:
    """What the side calls of a turn took that were answered: sums, as of a turn's steps."""
    return _PAID.one(connection, {"of_sid": sid, "of_turn": turn})


def known_reply(connection: sa.Connection, tenant: str, content: str) -> str | None:
    """The reply that the tenant has paid for by a request of the same content."""
    found = _KNOWN.scalar(connection, {"of_tenant": tenant, "of_content": content})
    return found if found is None else str(found)


def _at(session: LockedSession, turn: int, kind: SideKind, ordinal: int) -> dict[str, Any]:
    return {"of_sid": session.sid, "of_turn": turn, "of_kind": kind, "of_ordinal": ordinal}
