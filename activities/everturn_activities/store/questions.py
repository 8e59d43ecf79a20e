"""What an agent, or a call that runs, asks a person: once, answered once, or expired."""

import json
from typing import Any

import sqlalchemy as sa

from everturn.approvals import ToolVerdict, digest_of
from everturn.errors import UsageError
from everturn.events import Draft
from everturn.session import SessionKey
from everturn_activities.store import Answer, AskPerson, asks, reads, schema, tool_journal
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.statement import Statement, insert
from everturn_activities.toolbox import misfit

_q = schema.approvals
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_PART = Statement(
    sa.select(_q.c.n).where(
        _q.c.sid == _sid,
        *(
            column == sa.bindparam(f"of_{column.name}")
            for column in (_q.c.turn, _q.c.step, _q.c.idx, _q.c.part)
        ),
    )
)
_ONE = Statement(sa.select(_q).where(_q.c.sid == _sid, _q.c.n == sa.bindparam("of_n")))
_EXPIRE = Statement(
    sa.update(_q)
    .where(_q.c.sid == _sid, _q.c.n == sa.bindparam("of_n"), _q.c.state == "open")
    .values(state="expired", answered_at=sa.bindparam("answered_at"))
)
_INSERT = insert(_q)


def ask(tx: Tx, key: SessionKey, asked: AskPerson) -> int:
    """Ask a person for a call that runs; the number of the question, the same each time."""
    session = LockedSession(tx, key)
    at = {
        "of_turn": asked.turn,
        "of_step": asked.step,
        "of_idx": asked.index,
        "of_part": asked.part,
    }
    known: int | None = _PART.scalar(tx.connection, {"of_sid": session.sid, **at})
    if known is not None:
        return known
    session.demand_open(asked.turn)
    n = asks.next_number(session)
    arguments = {"question": asked.question}
    expires_at = None if asked.expires_seconds is None else tx.now + asked.expires_seconds
    row = {
        "sid": session.sid,
        "n": n,
        "turn": asked.turn,
        "step": asked.step,
        "idx": asked.index,
        "part": asked.part,
        "kind": "question",
        "name": asked.name,
        "arguments": json.dumps(arguments, ensure_ascii=False),
        "digest": digest_of(asked.name, arguments),
        "schema": None if asked.schema is None else json.dumps(asked.schema),
        "state": "open",
        "created_at": tx.now,
        "expires_at": expires_at,
    }
    _INSERT.run(tx.connection, row)
    session.tell(asked_of(row, call_id=""))
    session.save()
    return n


def asked_of(row: dict[str, Any], call_id: str) -> Draft:
    """What watchers are told of a question, or of a call that needs leave."""
    preview = row.get("preview")
    return Draft(
        id=f"approval/{row['n']}/asked",
        type="approval_asked",
        turn=row["turn"],
        step=row["step"],
        body={
            "approval": row["n"],
            "kind": row["kind"],
            "call_id": call_id,
            "index": row["idx"],
            "name": row["name"],
            "arguments": _short(row["arguments"]),
            "preview": None if preview is None else _short(preview),
            "digest": row["digest"],
            "expires_at": row["expires_at"],
        },
    )


PREVIEW_CHARACTERS = 4_000
"""Of what is told as an event; the whole stands in the question."""


def answer_of(connection: sa.Connection, key: SessionKey, n: int, now: float) -> Answer:
    """How a question stands; one whose time is over counts as expired."""
    row = _ONE.one(connection, {"of_sid": reads.sid_of(connection, key), "of_n": n})
    if row.state == "open" and row.expires_at is not None and row.expires_at <= now:
        return Answer("expired")
    content = row.schema is not None and row.answer is not None
    return Answer(
        row.state,
        None if content else row.answer,
        json.loads(row.answer) if content else None,
        row.reason,
    )


def expire(tx: Tx, key: SessionKey, n: int) -> Answer:
    """Close a question whose time is over, and tell so; how it stands, for somebody may have
    answered just before."""
    session = LockedSession(tx, key)
    at = {"of_sid": session.sid, "of_n": n}
    row = _ONE.one(tx.connection, at)
    if row.state == "open" and row.expires_at is not None and row.expires_at <= tx.now:
        _EXPIRE.run(tx.connection, {**at, "answered_at": tx.now})
        session.tell(expired(row))
        session.save()
    return answer_of(tx.connection, key, n, tx.now)


def expired(row: Any) -> Draft:
    if row.kind == "question":
        text = f"Question {row.n} was answered by nobody in time."
    else:
        text = f"Call {row.n} was decided by nobody in time, and counts as denied."
    body = {"approval": row.n, "verdict": "expire", "text": text, "too_late": False}
    name = f"approval/{row.n}/expired"
    return Draft(id=name, type="approval_answered", turn=row.turn, step=row.step, body=body)


def answered_with(session: LockedSession, row: Any, verdict: ToolVerdict) -> str:
    """The answer in a verdict, as it is kept. UsageError where it does not answer this."""
    name = session.key.session
    if verdict.verdict != "answer":
        raise UsageError(
            f"Approval {row.n} of session {name!r} is a question: answer it with 'everturn"
            f" approvals answer {name} {row.n} TEXT', or refuse to with 'everturn approvals deny"
            f" {name} {row.n}'."
        )
    if row.schema is None:
        if verdict.answer is None:
            raise UsageError(f"Question {row.n} of session {name!r} is answered by a text.")
        return verdict.answer
    wanted = json.loads(row.schema)
    content = verdict.content
    if content is None:
        content = _content(verdict.answer or "", wanted)
    wrong = misfit(content, wanted)
    if wrong is not None:
        raise UsageError(f"Question {row.n} of session {name!r} asks for something else: {wrong}")
    return json.dumps(content, ensure_ascii=False)


def reply(session: LockedSession, row: Any, answer: str) -> None:
    """Make what a person said the result of the call that asked."""
    text = f"The user answers:\n{answer}"
    tool_journal.answer_call(session, row.turn, row.step, row.idx, text, failed=False)


def unanswered(state: str, reason: str) -> str:
    """What the model reads in place of an answer."""
    if state == "expired":
        return "Nobody answered in time. Go on without an answer, or say what you need."
    because = f": {reason.rstrip('.')}." if reason.strip() else "."
    return f"The user does not answer{because}"


def _content(answer: str, wanted: dict[str, Any]) -> Any:
    """What a text says where a schema asks: JSON, or the one text that is asked for."""
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        found = None
    properties = wanted.get("properties") or {}
    if not isinstance(found, dict) and len(properties) == 1:
        (name, described), *_ = properties.items()
        return {name: answer if described.get("type") == "string" else found}
    return found


def _short(text: str) -> str:
    return text if len(text) <= PREVIEW_CHARACTERS else text[: PREVIEW_CHARACTERS - 1] + "…"
