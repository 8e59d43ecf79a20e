"""The journal of model calls: attempts counted, replies written once, late writers fenced."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sa

from everturn.context.window import Level, Sections
from everturn.errors import Fenced
from everturn.events import Draft
from everturn.messages import AssistantMessage
from everturn.session import ContextHead, SessionKey, StepHead, Stop, ToolHead
from everturn_activities.gateways import Usage
from everturn_activities.store import (
    AfterFailure,
    Blocked,
    Caller,
    CallFailure,
    CallStarted,
    StepStanding,
    ledger,
    reads,
    schema,
    tool_journal,
)
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import ASSISTANT_PART, LockedSession
from everturn_activities.store.metering import Terms
from everturn_activities.store.statement import Statement

_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_steps = schema.steps
_one_step = sa.and_(
    _steps.c.sid == _sid,
    _steps.c.turn == sa.bindparam("of_turn"),
    _steps.c.step == sa.bindparam("of_step"),
)

_STEP = Statement(sa.select(_steps).where(_one_step))
_BEGIN_STEP = Statement(
    sa.update(_steps)
    .where(_one_step)
    .values(
        {
            name: sa.bindparam(name)
            for name in (
                "state",
                "attempt",
                "model",
                "worker",
                "nonce",
                "task_token",
                "started_at",
            )
        }
    )
)
_END_STEP = Statement(
    sa.update(_steps)
    .where(_one_step)
    .values(
        {
            name: sa.bindparam(name)
            for name in (
                "state",
                "ended_at",
                "stop",
                "head",
                "error",
                "input_tokens",
                "output_tokens",
                "cached_tokens",
                "reasoning_tokens",
                "cost_usd",
                "estimated",
            )
        }
    )
)
_BLOCK_STEP = Statement(
    sa.update(_steps)
    .where(_one_step)
    .values(state=sa.bindparam("state"), error=sa.bindparam("error"), task_token=None)
)
_FAIL_STEP = Statement(
    sa.update(_steps)
    .where(_one_step)
    .values(
        state="failed",
        error=sa.bindparam("error"),
        refused=sa.bindparam("refused"),
        failures=sa.bindparam("failures"),
        stalls=sa.bindparam("stalls"),
        model=sa.bindparam("model"),
        task_token=None,
    )
)


def begin_model_call(
    tx: Tx, context: ContextHead, model: str, caller: Caller, terms: Terms
) -> CallStarted | StepHead | Blocked:
    """Count an attempt, or return the reply that is already paid for, or what bars it.

    `model` is asked unless another was chosen for this step already.
    """
    session = LockedSession(tx, SessionKey(context.tenant, context.session))
    key = {"of_sid": session.sid, "of_turn": context.turn, "of_step": context.step}
    row = _STEP.one(tx.connection, key)
    if row.state == "done":
        return step_head(row.head)
    session.demand_host(context.turn, context.epoch)
    attempt = row.attempt + 1
    model = row.model or model
    if row.state == "started" and row.nonce == caller.nonce:
        # Its own, where the answer to the COMMIT was lost: nothing has been sent yet.
        return CallStarted(row.attempt, row.model)
    if row.state == "started":
        ledger.lose(session, row, terms)
    if session.budgeted:
        blocked = ledger.reserve(session, context, attempt, model, caller.worker, terms)
        if blocked is not None:
            block(session, row, blocked)
            return blocked
    _BEGIN_STEP.run(
        tx.connection,
        {
            **key,
            "state": "started",
            "attempt": attempt,
            "model": model,
            "worker": caller.worker,
            "nonce": caller.nonce,
            "task_token": caller.task_token,
            "started_at": tx.now,
        },
    )
    name = f"turn/{context.turn}/step/{context.step}/attempt/{attempt}"
    if attempt > 1:
        session.tell(
            Draft(
                id=f"{name}/superseded",
                type="superseded",
                turn=context.turn,
                step=context.step,
                attempt=attempt,
            )
        )
    session.tell(
        Draft(
            id=f"{name}/started",
            type="step_started",
            turn=context.turn,
            step=context.step,
            attempt=attempt,
            body={
                "model": model,
                "placement": context.placement,
                "context_tokens": context.tokens,
                **_room(context.level, context.sections),
            },
        )
    )
    session.save()
    return CallStarted(attempt, model)


def _room(level: Level, sections: Sections | None) -> dict[str, Any]:
    """How full the window is, for watchers."""
    if sections is None:
        return {}
    tokens = {**vars(sections), "budget": sections.budget, "remaining": sections.remaining}
    return {"level": level, "tokens": tokens}


def check_budget(tx: Tx, context: ContextHead, model: str, terms: Terms) -> Blocked | None:
    """What budget is in the way of a call that another activity begins."""
    session = LockedSession(tx, SessionKey(context.tenant, context.session))
    key = {"of_sid": session.sid, "of_turn": context.turn, "of_step": context.step}
    row = _STEP.one(tx.connection, key)
    if row.state == "done" or not session.budgeted:
        return None
    session.demand_host(context.turn, context.epoch)
    if row.state == "started":
        ledger.lose(session, row, terms)
    blocked = ledger.check(session, context, row.model or model, terms)
    if blocked is not None:
        block(session, row, blocked)
    return blocked


def block(session: LockedSession, row: Any, blocked: Blocked) -> None:
    """Keep why the step in `row` does not go on; an attempt that was lost is over from here."""
    key = {"of_sid": session.sid, "of_turn": row.turn, "of_step": row.step}
    state = "failed" if row.attempt else row.state
    _BLOCK_STEP.run(session.tx.connection, {**key, "state": state, "error": blocked.reason})
    if blocked.how == "waits":
        waits = Draft(
            id=f"turn/{row.turn}/step/{row.step}/waits",
            type="status",
            turn=row.turn,
            step=row.step,
            body={"text": f"{blocked.reason} The turn waits for them."},
        )
        session.tell_once([waits])
    session.save()


def fence_model_call(session: LockedSession, turn: int, step: int, attempt: int) -> Any:
    """The step's row if `attempt` is the one under way, else Fenced.

    An older host may still write: what it paid for stands as long as nobody began anew.
    """
    session.demand_open(turn)
    row = _STEP.one(
        session.tx.connection, {"of_sid": session.sid, "of_turn": turn, "of_step": step}
    )
    if row.attempt != attempt or row.state != "started":
        raise Fenced(
            f"Attempt {attempt} of turn {turn} step {step} is over:"
            f" attempt {row.attempt} is {row.state}."
        )
    return row


def complete_model_call(
    tx: Tx,
    context: ContextHead,
    attempt: int,
    message: AssistantMessage,
    tokens: int,
    stop: Stop,
    usage: Usage,
    cost_usd: float | None,
    head: StepHead,
    deltas: Sequence[Draft],
    changing: frozenset[str] = frozenset(),
) -> StepHead:
    """Write the last deltas, reply, calls and usage in one transaction: from here it is paid.

    A reply of that attempt that stands already is answered as it stands.
    """
    session = LockedSession(tx, SessionKey(context.tenant, context.session))
    key = {"of_sid": session.sid, "of_turn": context.turn, "of_step": context.step}
    try:
        row = fence_model_call(session, context.turn, context.step, attempt)
    except Fenced:
        found = _STEP.one(tx.connection, key)
        if found.attempt == attempt and found.state == "done":
            return step_head(found.head)
        raise
    session.tell_once(deltas)
    if message.parts:
        session.append(message, context.turn, context.step, ASSISTANT_PART, tokens)
    asked = [call.name for call in head.calls]
    if head.calls:
        runs = tool_journal.propose(session, context, message, head.calls, changing)
        head = replace(head, calls=runs)
    _END_STEP.run(
        tx.connection,
        {
            **key,
            "state": "done",
            "ended_at": tx.now,
            "stop": stop,
            "head": json.dumps(asdict(head)),
            "error": None,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "cost_usd": cost_usd,
            "estimated": int(usage.estimated),
        },
    )
    ledger.settle(session, row, usage, cost_usd)
    session.tell(
        Draft(
            id=f"turn/{context.turn}/step/{context.step}/finished",
            type="step_finished",
            turn=context.turn,
            step=context.step,
            attempt=attempt,
            body={
                "stop": stop,
                "calls": asked,
                "usage": {
                    "input_tokens": usage.input_tokens,
                    "output_tokens": usage.output_tokens,
                    "cached_tokens": usage.cached_tokens,
                    "reasoning_tokens": usage.reasoning_tokens,
                    "estimated": usage.estimated,
                },
                "cost_usd": cost_usd,
                "duration_seconds": round(tx.now - row.started_at, 4),
            },
        )
    )
    session.save()
    return head


def fail_model_call(
    tx: Tx, context: ContextHead, attempt: int, failure: CallFailure, terms: Terms
) -> AfterFailure:
    """Keep why an attempt failed, tell it, and decide what follows: the same model again, the
    next one, or the end.

    An attempt that was overtaken changes nothing, and is not the one to give up.
    """
    session = LockedSession(tx, SessionKey(context.tenant, context.session))
    try:
        row = fence_model_call(session, context.turn, context.step, attempt)
    except Fenced:
        return _decided(session, context, attempt, failure)
    ledger.fail(session, row, terms)
    failures = row.failures + (not failure.stalled)
    stalls = row.stalls + failure.stalled
    tries = stalls if failure.stalled else failures
    after = AfterFailure("again", tries)
    told = f"{failure.reason} Trying again."
    values = {"failures": failures, "stalls": stalls, "model": row.model}
    if tries >= failure.tries_max:
        after, told = AfterFailure("end", tries), failure.reason
        if failure.next_model is not None:
            after = AfterFailure("switch", tries)
            told = f"{failure.reason} Switching from {row.model} to {failure.next_model}."
            values = {"failures": 0, "stalls": 0, "model": failure.next_model}
    at = {"of_sid": session.sid, "of_turn": context.turn, "of_step": context.step}
    why = {"error": failure.reason, "refused": int(failure.refused)}
    _FAIL_STEP.run(tx.connection, {**at, **values, **why})
    session.tell(
        Draft(
            id=f"turn/{context.turn}/step/{context.step}/attempt/{attempt}/failed",
            type="status",
            turn=context.turn,
            step=context.step,
            attempt=attempt,
            body={"text": told},
        )
    )
    session.save()
    return after


def _decided(
    session: LockedSession, context: ContextHead, attempt: int, failure: CallFailure
) -> AfterFailure:
    """What was decided of the failure, where this was committed and nobody heard of it."""
    at = {"of_sid": session.sid, "of_turn": context.turn, "of_step": context.step}
    row = _STEP.one(session.tx.connection, at)
    if (row.attempt, row.state, row.error) != (attempt, "failed", failure.reason):
        return AfterFailure("again")
    tries = row.stalls if failure.stalled else row.failures
    if failure.next_model is not None and row.model == failure.next_model and not tries:
        return AfterFailure("switch", failure.tries_max)
    return AfterFailure("end" if tries >= failure.tries_max else "again", tries)


def standing(connection: sa.Connection, key: SessionKey, turn: int, step: int) -> StepStanding:
    """Whether the step's reply is paid for, and which model is to answer it."""
    at = {"of_sid": reads.sid_of(connection, key), "of_turn": turn, "of_step": step}
    row = _STEP.first(connection, at)
    if row is None:
        return StepStanding()
    return StepStanding(row.state == "done", row.model or None)


def tell_waiting(tx: Tx, key: SessionKey, turn: int, step: int, text: str) -> None:
    """Tell why the step's next attempt has not begun, once for each attempt."""
    session = LockedSession(tx, key)
    if session.open_turn != turn:
        return
    row = _STEP.first(tx.connection, {"of_sid": session.sid, "of_turn": turn, "of_step": step})
    attempt = row.attempt + 1 if row is not None else 1
    draft = Draft(
        id=f"turn/{turn}/step/{step}/attempt/{attempt}/waits",
        type="status",
        turn=turn,
        step=step,
        attempt=attempt,
        body={"text": text},
    )
    session.tell_once([draft])
    session.save()


def step_head(text: str) -> StepHead:
    made = json.loads(text)
    return StepHead(**{**made, "calls": [ToolHead(**call) for call in made["calls"]]})
