"""What a person is asked about a tool call: once for each call, answered once, or expired."""

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from everturn.agents import AgentSpec
from everturn.approvals import ToolVerdict, digest_of
from everturn.errors import UsageError
from everturn.events import Draft
from everturn.session import Approved, RunTools, SessionKey
from everturn.views import ApprovalView
from everturn_activities.store import Question, asks, grants, questions, schema, tool_journal
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.statement import Statement, insert
from everturn_activities.toolbox import wrong_arguments

_q = schema.approvals
_keepers = schema.sessions.alias()
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_OF_STEP = Statement(
    sa.select(_q)
    .where(
        _q.c.sid == _sid,
        _q.c.turn == sa.bindparam("of_turn"),
        _q.c.step == sa.bindparam("of_step"),
        _q.c.part == 0,
    )
    .order_by(_q.c.idx)
)
_ONE = Statement(sa.select(_q).where(_q.c.sid == _sid, _q.c.n == sa.bindparam("of_n")))
_DENIED = Statement(
    sa.select(_q)
    .where(
        _q.c.sid == _sid,
        _q.c.turn == sa.bindparam("of_turn"),
        _q.c.kind == "approval",
        sa.or_(_q.c.state == "denied", _q.c.state == "expired"),
    )
    .order_by(_q.c.n)
)
_OPEN = Statement(sa.select(_q).where(_q.c.sid == _sid, _q.c.state == "open").order_by(_q.c.n))
_ANSWER = Statement(
    sa.update(_q)
    .where(_q.c.sid == _sid, _q.c.n == sa.bindparam("of_n"))
    .values({name: sa.bindparam(name) for name in ("state", "reason", "answer", "answered_at")})
)
_CLOSE = Statement(
    sa.update(_q)
    .where(_q.c.sid == _sid, _q.c.state == "open")
    .values(state="closed", answered_at=sa.bindparam("answered_at"))
)
_SPEC = Statement(
    sa.select(schema.specs.c.body)
    .join(schema.turns, schema.specs.c.hash == schema.turns.c.spec_hash)
    .where(schema.turns.c.sid == _sid, schema.turns.c.turn == sa.bindparam("of_turn"))
)
_INSERT = insert(_q)


def ask(
    tx: Tx,
    request: RunTools,
    spec: AgentSpec,
    questions: Sequence[Question],
    passed: Sequence[int],
) -> Approved:
    """Ask about the calls of a step that nothing was asked about yet; where all stand then.

    Those that `passed` run without leave: they cannot run at all, and only tell why.
    """
    session = LockedSession(tx, SessionKey(request.tenant, request.session))
    session.demand_host(request.turn, request.epoch)
    for index in passed:
        tool_journal.give_leave(session, request.turn, request.step, index)
    known = {row.idx for row in _rows(session, request.turn, request.step)}
    for question in questions:
        if question.call.index not in known:
            _ask(session, request.turn, request.step, spec, question)
    stands = _stand(session, request.turn, request.step, spec)
    session.save()
    return stands


def check(tx: Tx, request: RunTools, spec: AgentSpec) -> Approved:
    """Where a step's questions stand; those whose time is over expire here."""
    session = LockedSession(tx, SessionKey(request.tenant, request.session))
    if session.open_turn != request.turn:
        return Approved(0)
    stands = _stand(session, request.turn, request.step, spec)
    session.save()
    return stands


def answer(session: LockedSession, row: dict[str, Any], verdict: ToolVerdict) -> None:
    """Let a person's verdict take effect; one on a question that is closed is too late.

    Raises UsageError where there is no such question, or the verdict is for another call
    than the one that was shown, or its arguments do not fit the tool's parameters.
    """
    at = {"of_sid": session.sid, "of_n": verdict.approval}
    asked = _ONE.first(session.tx.connection, at)
    name = session.key.session
    if asked is None:
        raise UsageError(
            f"Session {name!r} has no approval {verdict.approval};"
            " 'everturn approvals list' shows those that wait."
        )
    row["target"], row["turn"] = verdict.approval, asked.turn
    if asked.state == "open" and asked.turn == session.open_turn:
        expired = asked.expires_at is not None and asked.expires_at <= session.tx.now
        if session.cancel_turn != asked.turn and not expired:
            (_decide if asked.kind == "approval" else _take)(session, asked, verdict)
            row["state"] = "consumed"
            return
    row["state"] = "too_late"
    row["note"] = f"Approval {verdict.approval} {_WAS[asked.state]}."


_WAS = {
    "open": "is of a call that waits no more",
    "approved": "was approved before",
    "denied": "was denied before",
    "answered": "was answered before",
    "expired": "expired before",
    "closed": "was closed with its turn",
}


def _take(session: LockedSession, asked: Any, verdict: ToolVerdict) -> None:
    """Take a person's answer to a question, or that there is none."""
    if verdict.verdict == "deny":
        _deny(session, asked, "denied", verdict.reason)
        return
    answer = questions.answered_with(session, asked, verdict)
    if verdict.digest not in (None, asked.digest):
        raise UsageError(
            f"Question {asked.n} of session {session.key.session!r} is another than the one that"
            " this answer names; look at it again with 'everturn approvals list'."
        )
    _close(session, asked, "answered", "", answer)
    if asked.part == 0:
        questions.reply(session, asked, answer)


def _decide(session: LockedSession, asked: Any, verdict: ToolVerdict) -> None:
    if verdict.verdict == "answer":
        raise UsageError(
            f"Approval {asked.n} of session {session.key.session!r} asks whether a call may run;"
            " approve or deny it: no text answers that."
        )
    if verdict.verdict == "deny":
        _deny(session, asked, "denied", verdict.reason)
        return
    if verdict.digest != asked.digest:
        raise UsageError(
            f"Approval {asked.n} of session {session.key.session!r} is for another call than the"
            " one that this verdict names; look at it again with 'everturn approvals list'."
        )
    arguments = json.loads(asked.arguments)
    if verdict.arguments is not None and verdict.arguments != arguments:
        _replace(session, asked, verdict.arguments)
        arguments = verdict.arguments
    if verdict.verdict == "grant":
        pattern = verdict.pattern or {}
        unknown = sorted(pattern.keys() - arguments.keys())
        if unknown:
            raise UsageError(
                f"The pattern names the argument {unknown[0]!r}, which the call has not; its"
                f" arguments are {', '.join(arguments) or 'none'}."
            )
        grants.give(session, asked.n, asked.name, pattern)
    tool_journal.give_leave(session, asked.turn, asked.step, asked.idx)
    _close(session, asked, "approved", verdict.reason)


def _replace(session: LockedSession, asked: Any, arguments: dict[str, Any]) -> None:
    body = _SPEC.scalar(session.tx.connection, {"of_sid": session.sid, "of_turn": asked.turn})
    spec = AgentSpec.model_validate_json(body)
    described = spec.tool(asked.name)
    assert described is not None
    wrong = wrong_arguments(described, arguments, None)
    if wrong is not None:
        raise UsageError(wrong)
    # Hooks see what will run.
    gated = bool(spec.hooks_before(described))
    tool_journal.rewrite(session, asked.turn, asked.step, asked.idx, arguments, gated)


def answered(sender_id: str, row: dict[str, Any], verdict: ToolVerdict) -> Draft:
    """What watchers are told of a verdict."""
    too_late = row["state"] == "too_late"
    said = {
        "approve": "approved",
        "grant": "granted for the session",
        "deny": "denied",
        "answer": "answered",
    }
    text = f"Approval {verdict.approval} is {said[verdict.verdict]}."
    return Draft(
        id=f"approval/answer/{sender_id}",
        type="approval_answered",
        turn=row["turn"] or 0,
        body={
            "approval": verdict.approval,
            "verdict": verdict.verdict,
            "text": f"The verdict came too late. {row['note']}" if too_late else text,
            "too_late": too_late,
        },
    )


def close(session: LockedSession) -> None:
    """Close what the session's turn asked: it is over."""
    at = {"of_sid": session.sid, "answered_at": session.tx.now}
    _CLOSE.run(session.tx.connection, at)


def why_ended(connection: sa.Connection, sid: int, turn: int) -> str | None:
    """The first denial of a turn, in words."""
    rows = _DENIED.all(connection, {"of_sid": sid, "of_turn": turn})
    return f"{_text(rows[0])} The agent's turns end with a denial." if rows else None


def denied_in(connection: sa.Connection, sid: int, turn: int, step: int) -> bool:
    """Whether a call of the step was denied."""
    rows = _DENIED.all(connection, {"of_sid": sid, "of_turn": turn})
    return any(row.step == step for row in rows)


def open_of(connection: sa.Connection, tenant: str, session: str | None) -> list[ApprovalView]:
    """The open questions of a session, of a swarm's items, or of all the tenant's."""
    query = (
        sa.select(_q, schema.sessions.c.id)
        .join(schema.sessions, schema.sessions.c.sid == _q.c.sid)
        .where(schema.sessions.c.tenant == tenant, _q.c.state == "open")
        .order_by(_q.c.created_at.desc(), _q.c.n.desc())
    )
    if session is not None:
        of_items = (
            schema.sessions.c.swarm_sid
            == sa.select(_keepers.c.sid)
            .where(_keepers.c.tenant == tenant, _keepers.c.id == session)
            .scalar_subquery()
        )
        query = query.where(sa.or_(schema.sessions.c.id == session, of_items))
    return [
        ApprovalView(
            session=row.id,
            approval=row.n,
            turn=row.turn,
            step=row.step,
            tool=row.name,
            arguments=json.loads(row.arguments),
            preview=row.preview,
            digest=row.digest,
            state=row.state,
            reason=row.reason,
            kind=row.kind,
            answer_schema=None if row.schema is None else json.loads(row.schema),
            created_at=row.created_at,
            expires_at=row.expires_at,
        )
        for row in connection.execute(query)
    ]


def _rows(session: LockedSession, turn: int, step: int) -> list[Any]:
    at = {"of_sid": session.sid, "of_turn": turn, "of_step": step}
    return _OF_STEP.all(session.tx.connection, at)


def _stand(session: LockedSession, turn: int, step: int, spec: AgentSpec) -> Approved:
    now = session.tx.now
    for row in _rows(session, turn, step):
        if row.state == "open" and row.expires_at is not None and row.expires_at <= now:
            _deny(session, row, "expired", "")
            session.tell(questions.expired(row))
    rows = _rows(session, turn, step)
    due = [row.expires_at - now for row in rows if row.state == "open" and row.expires_at]
    denied = [row for row in rows if row.state in ("denied", "expired") and row.kind == "approval"]
    return Approved(
        waiting=sum(row.state == "open" for row in rows),
        wait_seconds=max(min(due), 0.05) if due else None,
        answered=[row.idx for row in rows if row.state in ("denied", "expired", "answered")],
        ends=bool(denied) and spec.agent.approvals.on_denial == "end",
    )


def _ask(session: LockedSession, turn: int, step: int, spec: AgentSpec, question: Question) -> None:
    call, seconds = question.call, spec.agent.approvals.expires_seconds
    n = asks.next_number(session)
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    expires_at = None if seconds is None else session.tx.now + seconds
    row = {
        "sid": session.sid,
        "n": n,
        "turn": turn,
        "step": step,
        "idx": call.index,
        "kind": question.kind,
        "name": call.name,
        "arguments": arguments,
        "digest": digest_of(call.name, call.arguments),
        "preview": question.preview,
        "state": "open",
        "created_at": session.tx.now,
        "expires_at": expires_at,
    }
    _INSERT.run(session.tx.connection, row)
    session.tell(questions.asked_of(row, call.call_id))


def _deny(session: LockedSession, asked: Any, state: str, reason: str) -> None:
    """Answer the call in place of its tool."""
    _close(session, asked, state, reason)
    if asked.part == 0:
        text = _said(asked, state, reason)
        tool_journal.answer_call(session, asked.turn, asked.step, asked.idx, text)


def _close(
    session: LockedSession, asked: Any, state: str, reason: str, answer: str | None = None
) -> None:
    at = {"of_sid": session.sid, "of_n": asked.n, "answered_at": session.tx.now}
    _ANSWER.run(session.tx.connection, {**at, "state": state, "reason": reason, "answer": answer})


def _said(asked: Any, state: str, reason: str) -> str:
    """What the model reads in place of a result."""
    if asked.kind == "question":
        return questions.unanswered(state, reason)
    if state == "expired":
        return "The call did not run: it needs a person's leave, and nobody decided in time."
    because = f": {reason.rstrip('.')}." if reason.strip() else "."
    return f"The call did not run: a person denied it{because}"


def _text(asked: Any) -> str:
    said = _said(asked, asked.state, asked.reason)
    return f"{asked.name}: {said[0].lower()}{said[1:]}"
