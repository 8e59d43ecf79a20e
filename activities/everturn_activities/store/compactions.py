"""A compaction as a recorded step: planned, attempted, and its cut made, each in a transaction."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sa

from everturn.budgets import Amount
from everturn.context.compaction import Plan, summary_tokens_max
from everturn.context.cuts import Cut
from everturn.context.summary import summary_message
from everturn.context.window import Frame
from everturn.errors import UsageError
from everturn.events import Draft, EventType
from everturn.messages import UserMessage
from everturn.session import Compact, Compacted, SessionKey
from everturn_activities.gateways import Usage
from everturn_activities.store import Caller, CompactionStarted, cuts, ledger, pinned, room, schema
from everturn_activities.store import side_journal as journal
from everturn_activities.store.database import Tx, asked_as
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.metering import Meter
from everturn_activities.store.model_journal import block
from everturn_activities.store.statement import Statement
from everturn_activities.store.steps import context_head, recorded

ATTEMPTS_MAX = 5
"""Attempts that ended with their worker; perhaps they are what ends it."""

_steps = schema.steps
_one_step = sa.and_(
    _steps.c.sid == sa.bindparam("of_sid"),
    _steps.c.turn == sa.bindparam("of_turn"),
    _steps.c.step == sa.bindparam("of_step"),
)
_STEP = Statement(sa.select(_steps).where(_one_step))
_PIN_AGAIN = Statement(
    sa.update(_steps)
    .where(_one_step)
    .values(
        context=sa.bindparam("context"),
        context_tokens=sa.bindparam("context_tokens"),
        state="prepared",
        error=None,
        failures=0,
        stalls=0,
        reruns=0,
    )
)


def begin(
    tx: Tx,
    request: Compact,
    frame: Frame,
    model: str,
    failures_max: int,
    caller: Caller,
    meter: Meter,
) -> CompactionStarted | Compacted:
    """Plan the compaction, or take up its plan; what came of it where it has ended, or that a
    budget does not let it begin."""
    session = _locked(tx, request)
    row = journal.call(session, request.turn, "compaction", request.ordinal)
    if row is not None and row.ended_at is not None:
        return Compacted(json.loads(row.reply)["cut"] if row.state == "done" else 0)
    session.demand_host(request.turn, request.epoch)
    if row is None:
        plan = room.plan(session, frame, request.forced)
        if plan is None:
            session.compact_asked = 0
            session.save()
            return Compacted(0)
    else:
        plan = Plan(**json.loads(row.plan))
        if journal.is_own(row, caller):
            return CompactionStarted(row.attempt, plan)
        if row.state == "started":
            journal.lose(session, row, meter)
        if row.attempt - row.failures >= ATTEMPTS_MAX:
            _give_up(session, request, "Its workers ended while it ran.", failures_max)
            session.save()
            return Compacted(0)
    tokens_max = summary_tokens_max(frame.window)
    written = Usage(input_tokens=plan.tokens + journal.PROMPT_TOKENS, output_tokens=tokens_max)
    wanted = Amount(meter.usd(model, written), written.input_tokens + tokens_max)
    if session.budgeted:
        attempt = 1 if row is None else row.attempt + 1
        at = (request.turn, request.ordinal, attempt, model, caller.worker, session.tx.now)
        blocked = ledger.reserve_call(session, ledger.Call(*at, plan.tokens, "compaction"), wanted)
        if blocked is not None:
            block(session, _step_row(session, request), blocked)
            return Compacted(0, blocked.how)
    if row is None:
        _tell(
            session,
            request,
            "started",
            "compaction_started",
            {"last": plan.last, "tokens": plan.tokens, "model": model},
        )
    attempt = journal.begin(
        session,
        request.turn,
        "compaction",
        request.ordinal,
        json.dumps(asdict(plan)),
        model,
        caller,
    )
    session.save()
    return CompactionStarted(attempt, plan)


def complete(
    tx: Tx,
    request: Compact,
    attempt: int,
    text: str,
    content: str,
    usage: Usage,
    cost_usd: float | None,
    frame: Frame,
    count: Callable[[UserMessage], int],
) -> Compacted:
    """Write the summary and let it stand for its messages: from here it is paid for.

    The step that waits for it reads the new context, if it had been prepared.
    """
    session = _locked(tx, request)
    over = journal.over(session, request.turn, "compaction", request.ordinal, attempt)
    if over is not None and over.state == "done":
        return Compacted(json.loads(over.reply)["cut"])
    row = journal.fence(session, request.turn, "compaction", request.ordinal, attempt)
    plan = Plan(**json.loads(row.plan))
    before = session.message_tokens
    body = "\n\n".join([text, *pinned.blocks(session)])
    tokens = count(summary_message(body))
    cut = cuts.cut(session, "compaction", 1, plan.last, request.turn, body, tokens)
    journal.end(
        session,
        request.turn,
        "compaction",
        request.ordinal,
        content=content,
        reply=json.dumps({"text": text, "cut": cut}, ensure_ascii=False),
        error=None,
        usage=usage,
        cost_usd=cost_usd,
    )
    ledger.settle(session, journal.metered(row), usage, cost_usd)
    session.compaction_failures = session.compact_asked = 0
    _tell(
        session,
        request,
        "done",
        "compacted",
        {
            "first": 1,
            "last": plan.last,
            "tokens_before": before,
            "tokens_after": session.message_tokens,
            "usage": {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens},
            "cost_usd": cost_usd,
        },
    )
    _pin_again(session, request, frame)
    session.save()
    return Compacted(cut)


def fail(
    tx: Tx,
    request: Compact,
    attempt: int,
    reason: str,
    attempts_max: int,
    failures_max: int,
    usage: Usage,
    cost_usd: float | None,
) -> bool:
    """Keep why an attempt failed; True where the compaction is given up."""
    session = _locked(tx, request)
    over = journal.over(session, request.turn, "compaction", request.ordinal, attempt)
    if over is not None and (over.state, over.error) == ("failed", reason):
        return over.ended_at is not None
    row = journal.fence(session, request.turn, "compaction", request.ordinal, attempt)
    failures = row.failures + 1
    if usage.input_tokens or usage.output_tokens:
        # What was answered is paid for, though it cannot be used.
        ledger.settle(session, journal.metered(row), usage, cost_usd)
    else:
        ledger.refund(session, journal.metered(row))
    journal.fail_attempt(session, request.turn, "compaction", request.ordinal, reason, failures)
    if failures >= attempts_max:
        _give_up(session, request, reason, failures_max, usage, cost_usd)
    session.save()
    return bool(failures >= attempts_max)


def cancel(tx: Tx, request: Compact, attempt: int, meter: Meter) -> None:
    """End a compaction whose turn was cancelled: it counts as no failure."""
    session = _locked(tx, request)
    if journal.over(session, request.turn, "compaction", request.ordinal, attempt) is not None:
        return
    row = journal.fence(session, request.turn, "compaction", request.ordinal, attempt)
    journal.lose(session, row, meter)
    _end(session, request, "The turn was cancelled.", Usage(), None)
    session.save()


def ask(tx: Tx, key: SessionKey) -> None:
    """Compact the session before its next step, whatever its level."""
    session = LockedSession(tx, key)
    session.compact_asked = 1
    session.save()


def undo(tx: Tx, key: SessionKey, id: str | None) -> Cut:  # noqa: A002
    """Send again what the newest compaction has left out; raises UsageError without one."""
    session = LockedSession(asked_as(tx, id), key)
    if (done := cuts.undone_before(session)) is not None:
        return done
    undone = cuts.undo(session)
    if undone is None:
        raise UsageError(f"Session {key.session!r} has no compaction that could be undone.")
    session.tell(
        Draft(
            id=f"compaction/{undone.n}/undone",
            type="compaction_undone",
            turn=session.open_turn or session.turn,
            body={"first": undone.first, "last": undone.last},
        )
    )
    session.save()
    return undone


def _give_up(
    session: LockedSession,
    request: Compact,
    reason: str,
    failures_max: int,
    usage: Usage | None = None,
    cost_usd: float | None = None,
) -> None:
    _end(session, request, reason, usage or Usage(), cost_usd)
    session.compact_asked = 0
    session.compaction_failures += 1
    text = f"The conversation could not be summarised: {reason}"
    if session.compaction_failures >= failures_max:
        text += (
            f" After {session.compaction_failures} failures the turn goes on without; its context"
            " grows towards the end of the model's window."
        )
    _tell(session, request, "failed", "status", {"text": text})


def _end(
    session: LockedSession, request: Compact, reason: str, usage: Usage, cost_usd: float | None
) -> None:
    journal.end(
        session,
        request.turn,
        "compaction",
        request.ordinal,
        content=None,
        reply=None,
        error=reason,
        usage=usage,
        cost_usd=cost_usd,
    )


def _pin_again(session: LockedSession, request: Compact, frame: Frame) -> None:
    """Let the step that is prepared, and has no reply, read what is in force now."""
    at = {"of_sid": session.sid, "of_turn": request.turn, "of_step": request.step}
    row = _step_row(session, request)
    if row is None or row.state == "done":
        return
    sections = room.sections(session, frame)
    head = replace(
        context_head(row.context),
        cuts=session.cut_n,
        upto=session.message_pos,
        first=session.sent_first,
        since=session.sent_since,
        tokens=sections.request,
        sections=sections,
        level=frame.level(sections.used),
    )
    _PIN_AGAIN.run(
        session.tx.connection,
        {**at, "context": recorded(head), "context_tokens": head.tokens},
    )


def _step_row(session: LockedSession, request: Compact) -> Any:
    at = {"of_sid": session.sid, "of_turn": request.turn, "of_step": request.step}
    return _STEP.first(session.tx.connection, at)


def _tell(
    session: LockedSession, request: Compact, what: str, kind: EventType, body: dict[str, object]
) -> None:
    session.tell(
        Draft(
            id=f"turn/{request.turn}/compaction/{request.ordinal}/{what}",
            type=kind,
            turn=request.turn,
            step=request.step,
            body=body,
        )
    )


def _locked(tx: Tx, request: Compact) -> LockedSession:
    return LockedSession(tx, SessionKey(request.tenant, request.session))
