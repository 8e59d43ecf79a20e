"""Inbox and host: what is accepted, who works it, and when a run may let go.

Small because everything above relies on it: these functions decide, each within one
transaction, that an accepted message is worked exactly once by exactly one host.
"""

import hashlib
from typing import Any

import sqlalchemy as sa

from everturn.agents import AgentSpec
from everturn.errors import IdempotencyConflict, UsageError
from everturn.events import Draft
from everturn.messages import (
    PromptInvocation,
    ResourceMention,
    SkillInvocation,
    Text,
    UserMessage,
)
from everturn.session import BeginTurn, InboxHead, SessionKey
from everturn.views import AcceptedView
from everturn_activities.store import (
    Accepted,
    Inbound,
    TakeoverNeeded,
    Wake,
    approvals,
    asks,
    schema,
)
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.statement import Statement, insert
from everturn_activities.wakeups import cancels

PREVIEW_CHARACTERS = 200

STOPPING = {"interrupt": "interrupt", "rollback": "roll back"}
"""Modes of messages that end the open turn, and what they do to it."""

_inbox = schema.inbox
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_BY_SENDER = Statement(
    sa.select(_inbox).where(_inbox.c.sid == _sid, _inbox.c.sender_id == sa.bindparam("of_sender"))
)
_WAITING = Statement(
    sa.select(_inbox)
    .where(_inbox.c.sid == _sid, _inbox.c.state == "waiting")
    .order_by(_inbox.c.position)
)
_HOW_MANY = Statement(
    sa.select(sa.func.count()).where(
        _inbox.c.sid == _sid, _inbox.c.state == "waiting", _inbox.c.kind == "message"
    )
)
_WORKER_OF = Statement(
    sa.select(schema.turns.c.agent, schema.specs.c.body)
    .join(schema.specs, schema.specs.c.hash == schema.turns.c.spec_hash)
    .where(schema.turns.c.sid == _sid, schema.turns.c.turn == sa.bindparam("of_turn"))
)
_INSERT = insert(_inbox)
_SETTLE = Statement(
    sa.update(_inbox)
    .where(_inbox.c.sid == _sid, _inbox.c.position == sa.bindparam("of_position"))
    .values(state=sa.bindparam("state"), turn=sa.bindparam("turn"))
)


def accept(tx: Tx, key: SessionKey, inbound: Inbound, tokens: int) -> Accepted:
    """Commit `inbound` to the inbox under its sender's id, once.

    Only the sender that sets `wake_at` has to signal, so a thousand messages to a busy
    session make one signal. A message that interrupts or rolls back stops the open turn
    here. Raises IdempotencyConflict when the id was used for another content.
    """
    session = LockedSession(tx, key)
    if session.swarm_sid == session.sid and inbound.kind != "budget":
        raise UsageError(
            f"{key.session!r} is a swarm, which nobody speaks with; name the session of one of its"
            f" items, such as {key.session}:1, or use 'everturn swarm'."
        )
    accepted = put(session, inbound, tokens)
    if not accepted.view.duplicate:
        session.save()
    return accepted


def put(session: LockedSession, inbound: Inbound, tokens: int) -> Accepted:
    """As `accept`, in a session that the caller saves."""
    tx = session.tx
    digest = _digest(inbound)
    known = _BY_SENDER.first(tx.connection, {"of_sid": session.sid, "of_sender": inbound.id})
    if known is not None:
        if known.digest != digest:
            raise IdempotencyConflict(
                f"Id {inbound.id!r} was used for another content in session"
                f" {session.key.session!r};"
                " give each new message an id of its own."
            )
        waits = known.state == "waiting" and session.wake_at is not None
        return Accepted(_view(known._asdict(), True), wake_of(session) if waits else None)

    session.inbox_pos += 1
    row: dict[str, Any] = {
        "sid": session.sid,
        "position": session.inbox_pos,
        "sender_id": inbound.id,
        "kind": inbound.kind,
        "mode": inbound.mode,
        "body": inbound.message.model_dump_json() if inbound.message else None,
        "digest": digest,
        "agent": inbound.agent,
        "model": inbound.model,
        "target": inbound.target,
        "tokens": tokens,
        "renders": int(inbound.message is not None and inbound.message.is_due),
        "state": "waiting",
        "turn": None,
        "created_at": tx.now,
        "newest_turn": session.turn,
        # Where a watcher starts to see all that follows from this.
        "cursor": f"{session.event_epoch}.{session.event_seq}",
        "queued": 0,
        "note": None,
    }
    if inbound.kind == "cancel":
        _aim_cancel(session, row)
    elif inbound.budget is not None:
        asks.answer(session, row, inbound.budget)
    elif inbound.approval is not None:
        approvals.answer(session, row, inbound.approval)
    else:
        _place(session, row)
    session.tell(_announced(session, inbound, row))
    _INSERT.run(tx.connection, row)
    answered = inbound.kind in ("budget", "approval") and row["state"] == "consumed"
    wakes = row["state"] == "waiting" or answered
    return Accepted(_view(row, False), rouse(session) if wakes else None)


def rouse(session: LockedSession) -> Wake | None:
    """Whom to signal once this is committed: nobody where another sender is about to."""
    if session.wake_at is not None:
        return None
    session.wake_at = session.tx.now
    return wake_of(session)


def _aim_cancel(session: LockedSession, row: dict[str, Any]) -> None:
    """Fix the turn that a cancel is meant for: a control for a closed one is too late.

    Raises UsageError for a turn that what waits cannot come to: it would end it one day.
    """
    waits = sum(message["kind"] == "message" for message in waiting(session))
    if row["target"] is None:
        row["target"] = session.open_turn or (session.turn + 1 if waits else session.turn)
    if row["target"] > session.turn + waits:
        raise UsageError(
            f"Session {session.key.session!r} has no turn {row['target']}; its newest is"
            f" {session.turn}."
        )
    if row["target"] == session.open_turn:
        _stop_open_turn(session)
    elif row["target"] <= session.turn:
        row["state"] = "too_late"
    # Any other waits for its turn, which finds it when it opens.


def _stop_open_turn(session: LockedSession) -> None:
    assert session.open_turn is not None
    session.cancel_turn = session.open_turn
    session.tx.told.add(cancels(session.key))


def _place(session: LockedSession, row: dict[str, Any]) -> None:
    """Say where a message stands: its place among those that wait, and what it stops."""
    waits: int = _HOW_MANY.scalar(session.tx.connection, {"of_sid": session.sid})
    row["queued"] = waits + 1
    turn, mode = session.open_turn, row["mode"]
    if mode in STOPPING and turn is None:
        row["note"] = f"No turn is open that it could {STOPPING[mode]}; it is queued."
    elif mode in STOPPING:
        row["target"] = turn
        _stop_open_turn(session)
    elif mode == "steer" and turn is not None and not can_join(session, row, turn):
        row["note"] = (
            f"Turn {turn} runs another agent or model than it names; it is queued for a turn"
            " of its own."
        )


def can_join(session: LockedSession, row: dict[str, Any], turn: int) -> bool:
    """Whether `turn` may work a steered message: it names no agent and no model but the turn's."""
    if row["agent"] is None and row["model"] is None:
        return True
    runs = _WORKER_OF.one(session.tx.connection, {"of_sid": session.sid, "of_turn": turn})
    model = AgentSpec.model_validate_json(runs.body).agent.model
    return row["agent"] in (None, runs.agent) and row["model"] in (None, model)


def next_up(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the waiting messages `rows` that the next turn works, in order of acceptance.

    They name the same agent and model as the first that stopped a turn, else as the first.
    What stopped a turn overtakes messages for other agents; what was accepted after it
    does not. A message that a server is asked for has a turn of its own, which ends where it is not
    to be had.
    """
    if not rows:
        return []
    lead = next((row for row in rows if row["target"] is not None), rows[0])
    taken, overtaken = [], False
    for row in rows:
        alike = row is lead or _joins(row, lead)
        if row["position"] > lead["position"] and (overtaken or not alike):
            break
        if alike:
            taken.append(row)
        else:
            overtaken = True
    return taken


def _joins(row: dict[str, Any], lead: dict[str, Any]) -> bool:
    alike = (row["agent"], row["model"]) == (lead["agent"], lead["model"])
    return alike and not (row["renders"] or lead["renders"])


def waiting(session: LockedSession) -> list[dict[str, Any]]:
    """What no turn has taken yet, in order of acceptance."""
    found = _WAITING.all(session.tx.connection, {"of_sid": session.sid})
    return [row._asdict() for row in found]


def settle(session: LockedSession, row: dict[str, Any], state: str, turn: int | None) -> None:
    _SETTLE.run(
        session.tx.connection,
        {"of_sid": session.sid, "of_position": row["position"], "state": state, "turn": turn},
    )


def withdraw(session: LockedSession, row: dict[str, Any]) -> None:
    """Take back a message that no turn has taken yet: none will."""
    settle(session, row, "rolled_back", None)
    message = UserMessage.model_validate_json(row["body"])
    session.tell(
        Draft(
            id=f"message/{row['sender_id']}/rolled_back",
            type="message_rolled_back",
            body={"message_id": row["sender_id"], "text": preview(message)},
        )
    )


def settle_controls(session: LockedSession, rows: list[dict[str, Any]]) -> None:
    """Consume cancels of turns that opened: they took effect when they were accepted."""
    for row in rows:
        if row["kind"] == "cancel" and row["target"] <= session.turn:
            took_effect = row["target"] == session.cancel_turn
            settle(session, row, "consumed" if took_effect else "too_late", row["target"])


def take_cancel(session: LockedSession) -> None:
    """Let a cancel that was accepted before its turn opened take effect."""
    for row in waiting(session):
        if row["kind"] == "cancel" and row["target"] == session.turn:
            session.cancel_turn = session.turn
            settle(session, row, "consumed", session.turn)


def check(tx: Tx, key: SessionKey, turn: int, cursor: int) -> InboxHead:
    """What arrived past `cursor`, and a clean `wake_at`, so that the next sender signals."""
    session = LockedSession(tx, key)
    # A run whose turn is over works nothing any more: a wake-up is not its to take.
    if session.wake_at is not None and session.open_turn == turn:
        session.wake_at = None
        session.save()
    cancelled = session.cancel_turn == turn
    return InboxHead(cursor=max(cursor, session.inbox_pos), cancelled=cancelled)


def take_host(session: LockedSession, request: BeginTurn, closed: TakeoverNeeded | None) -> str:
    """Make the run of `request` the session's host.

    `closed` is a host that Temporal says runs no more. Returns how: `free` (nobody
    hosted), `mine` (it did already), `successor` (its predecessor continued as it),
    `taken` (over from the closed one), or `refused`.
    """
    ours = (request.workflow_id, request.run_id)
    host = (session.host_workflow_id, session.host_run_id)
    if host == ours:
        return "mine"
    if session.host_run_id is None:
        how = "free"
    elif host == (request.workflow_id, request.previous_run_id):
        how = "successor"
    elif closed is not None and host == (closed.workflow_id, closed.run_id):
        how = "taken"
    else:
        return "refused"
    session.host_workflow_id, session.host_run_id = ours
    session.host_epoch += 1
    return how


def let_go(session: LockedSession, workflow_id: str, run_id: str) -> bool:
    """Release the host unless work waits; True where this run goes on with it.

    Decided anew at each execution: a run that had let go takes the session again when
    something arrived before the run ended.
    """
    host = (session.host_workflow_id, session.host_run_id)
    if session.host_run_id is not None and host != (workflow_id, run_id):
        return False
    rows = waiting(session)
    settle_controls(session, rows)
    if not any(row["kind"] == "message" for row in rows):
        session.host_workflow_id = session.host_run_id = None
        session.wake_at = None
        return False
    if session.host_run_id is None:
        session.host_workflow_id, session.host_run_id = workflow_id, run_id
        session.host_epoch += 1
    # Should this run be lost before its successor begins, the reconciler wakes another.
    session.wake_at = session.wake_at or session.tx.now
    return True


def wake_of(session: LockedSession) -> Wake:
    return Wake(session.key, session.host_workflow_id, session.host_epoch, session.priority)


def _view(row: dict[str, Any], duplicate: bool) -> AcceptedView:
    return AcceptedView(
        id=row["sender_id"],
        position=row["position"],
        duplicate=duplicate,
        turn=row["newest_turn"],
        cursor=row["cursor"],
        status=row["state"] if row["state"] in ("too_late", "rolled_back") else "accepted",
        queued=row["queued"],
        stops=row["target"] if row["kind"] == "message" else None,
        note=row["note"],
    )


def _announced(session: LockedSession, inbound: Inbound, row: dict[str, Any]) -> Draft:
    """What watchers are told; what means the open turn is told as an event of it."""
    turn = session.open_turn or 0
    if inbound.kind == "cancel":
        body = {"id": inbound.id, "target": row["target"], "too_late": row["state"] == "too_late"}
        turn = turn if row["target"] == turn else 0
        return Draft(id=f"cancel/{inbound.id}", type="cancel_accepted", turn=turn, body=body)
    if inbound.budget is not None:
        return asks.answered(inbound.id, row, inbound.budget)
    if inbound.approval is not None:
        return approvals.answered(inbound.id, row, inbound.approval)
    assert inbound.message is not None
    return Draft(
        id=f"message/{inbound.id}",
        type="message_accepted",
        turn=0 if inbound.mode == "queue" else turn,
        body={
            "message_id": inbound.id,
            "mode": inbound.mode,
            "queued": row["queued"],
            "stops": row["target"],
            "note": row["note"],
            "text": preview(inbound.message),
        },
    )


def preview(message: UserMessage) -> str:
    text = message.said
    return text if len(text) <= PREVIEW_CHARACTERS else text[: PREVIEW_CHARACTERS - 1] + "…"


def _digest(inbound: Inbound) -> str:
    body = ""
    if inbound.message is not None:
        # As it was written: a skill may have changed when the same message is sent again.
        parts = [
            Text(text=part.said) if isinstance(part, SkillInvocation | PromptInvocation) else part
            for part in inbound.message.parts
            if not isinstance(part, ResourceMention)
        ]
        body = inbound.message.model_copy(update={"parts": tuple(parts)}).model_dump_json()
    if inbound.budget is not None:
        body = inbound.budget.model_dump_json()
    if inbound.approval is not None:
        body = inbound.approval.model_dump_json()
    said = (inbound.kind, inbound.mode, body, inbound.agent, inbound.model, inbound.target)
    return hashlib.sha256(repr(said).encode()).hexdigest()
