"""The journal of calls: attempts counted, results written once, late writers fenced."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from everturn.errors import Fenced
from everturn.events import Draft
from everturn.messages import AssistantMessage, ToolResult
from everturn.session import ContextHead, SessionKey, StepHead, Stop, ToolHead
from everturn_activities.gateways import Usage
from everturn_activities.store import (
    Caller,
    CallStarted,
    CompletedTool,
    StoredCall,
    ToolInterrupted,
    ToolStarted,
    schema,
)
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.statement import Statement, insert
from everturn_activities.store.turns import ASSISTANT_PART, result_of

ARGUMENTS_PREVIEW_CHARACTERS = 300
RESULT_PREVIEW_CHARACTERS = 500

_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_steps, _calls = schema.steps, schema.tool_calls
_one_step = sa.and_(
    _steps.c.sid == _sid,
    _steps.c.turn == sa.bindparam("of_turn"),
    _steps.c.step == sa.bindparam("of_step"),
)
_of_step = sa.and_(
    _calls.c.sid == _sid,
    _calls.c.turn == sa.bindparam("of_turn"),
    _calls.c.step == sa.bindparam("of_step"),
)
_one_call = sa.and_(_of_step, _calls.c.idx == sa.bindparam("of_index"))

_STEP = Statement(sa.select(_steps).where(_one_step))
_BEGIN_STEP = Statement(
    sa.update(_steps)
    .where(_one_step)
    .values(
        {
            name: sa.bindparam(name)
            for name in ("state", "attempt", "model", "worker", "task_token", "started_at")
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
            )
        }
    )
)
_FAIL_STEP = Statement(
    sa.update(_steps)
    .where(_one_step)
    .values(state="failed", error=sa.bindparam("error"), task_token=None)
)
_KNOWN = Statement(
    sa.select(schema.events.c.event_id).where(
        schema.events.c.sid == _sid, schema.events.c.event_id == sa.bindparam("of_event")
    )
)
_CALLS = Statement(sa.select(_calls).where(_of_step).order_by(_calls.c.idx))
_CALL = Statement(sa.select(_calls).where(_one_call))
_PROPOSE = insert(_calls)
_BEGIN_CALL = Statement(
    sa.update(_calls)
    .where(_one_call)
    .values(
        {
            name: sa.bindparam(name)
            for name in ("state", "attempt", "worker", "nonce", "task_token", "started_at")
        }
    )
)
_END_CALL = Statement(
    sa.update(_calls)
    .where(_one_call)
    .values(
        {
            name: sa.bindparam(name)
            for name in ("state", "ended_at", "duration_seconds", "result", "failed", "tokens")
        }
    )
)


def begin_model_call(
    tx: Tx, context: ContextHead, model: str, caller: Caller
) -> CallStarted | StepHead:
    """Count an attempt, or return the reply that is already paid for."""
    session = LockedSession(tx, SessionKey(context.tenant, context.session))
    key = {"of_sid": session.sid, "of_turn": context.turn, "of_step": context.step}
    row = _STEP.one(tx.connection, key)
    if row.state == "done":
        return step_head(row.head)
    session.demand_host(context.turn, context.epoch)
    attempt = row.attempt + 1
    _BEGIN_STEP.run(
        tx.connection,
        {
            **key,
            "state": "started",
            "attempt": attempt,
            "model": model,
            "worker": caller.worker,
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
            },
        )
    )
    session.save()
    return CallStarted(attempt)


def fence_model_call(session: LockedSession, turn: int, step: int, attempt: int) -> Any:
    """The step's row if `attempt` is the one under way, else Fenced.

    An older host may still write: what it paid for stands as long as nobody began anew.
    """
    demand_open(session, turn)
    row = _STEP.one(
        session.tx.connection, {"of_sid": session.sid, "of_turn": turn, "of_step": step}
    )
    if row.attempt != attempt or row.state != "started":
        raise Fenced(
            f"Attempt {attempt} of turn {turn} step {step} is over:"
            f" attempt {row.attempt} is {row.state}."
        )
    return row


def demand_open(session: LockedSession, turn: int) -> None:
    """Raise Fenced where `turn` is over: its transcript and its events are closed."""
    if session.open_turn != turn:
        raise Fenced(f"Turn {turn} of session {session.key.session} is over.")


def tell_once(session: LockedSession, drafts: Sequence[Draft]) -> None:
    """Tell those of `drafts` that are not in the log: a write that failed may be there."""
    for draft in drafts:
        at = {"of_sid": session.sid, "of_event": draft.id}
        if _KNOWN.first(session.tx.connection, at) is None:
            session.tell(draft)


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
) -> StepHead:
    """Write the last deltas, reply, calls and usage in one transaction: from here it is paid."""
    session = LockedSession(tx, SessionKey(context.tenant, context.session))
    key = {"of_sid": session.sid, "of_turn": context.turn, "of_step": context.step}
    row = fence_model_call(session, context.turn, context.step, attempt)
    tell_once(session, deltas)
    if message.parts:
        session.append(message, context.turn, context.step, ASSISTANT_PART, tokens)
    if head.calls:
        _propose(session, context, message, head.calls)
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
        },
    )
    session.tell(
        Draft(
            id=f"turn/{context.turn}/step/{context.step}/finished",
            type="step_finished",
            turn=context.turn,
            step=context.step,
            attempt=attempt,
            body={
                "stop": stop,
                "calls": [call.name for call in head.calls],
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


def fail_model_call(tx: Tx, context: ContextHead, attempt: int, reason: str, final: bool) -> None:
    """Keep why an attempt failed, and tell it; a late attempt changes nothing."""
    session = LockedSession(tx, SessionKey(context.tenant, context.session))
    try:
        fence_model_call(session, context.turn, context.step, attempt)
    except Fenced:
        return
    at = {"of_sid": session.sid, "of_turn": context.turn, "of_step": context.step}
    _FAIL_STEP.run(tx.connection, {**at, "error": reason})
    session.tell(
        Draft(
            id=f"turn/{context.turn}/step/{context.step}/attempt/{attempt}/failed",
            type="status",
            turn=context.turn,
            step=context.step,
            attempt=attempt,
            body={"text": reason if final else f"{reason} Trying again."},
        )
    )
    session.save()


def _propose(
    session: LockedSession, context: ContextHead, message: AssistantMessage, heads: list[ToolHead]
) -> None:
    for index, call in enumerate(message.tool_calls):
        runs = index < len(heads)
        _PROPOSE.run(
            session.tx.connection,
            {
                "sid": session.sid,
                "turn": context.turn,
                "step": context.step,
                "idx": index,
                "call_id": call.id,
                "name": call.name,
                "arguments": json.dumps(call.arguments, ensure_ascii=False),
                "malformed": call.malformed,
                "placement": heads[index].placement if runs else "inline",
                "state": "proposed" if runs else "done",
                "result": None if runs else _beyond(len(heads)),
                "failed": 0 if runs else 1,
            },
        )


def _beyond(most: int) -> str:
    return f"The call did not run: one step runs {most} calls at most; ask for it in the next."


def step_head(text: str) -> StepHead:
    made = json.loads(text)
    return StepHead(**{**made, "calls": [ToolHead(**call) for call in made["calls"]]})


def tool_calls(connection: sa.Connection, sid: int, turn: int, step: int) -> list[StoredCall]:
    rows = _CALLS.all(connection, {"of_sid": sid, "of_turn": turn, "of_step": step})
    return [_stored(row) for row in rows]


def begin_tool(
    tx: Tx,
    key: SessionKey,
    turn: int,
    step: int,
    index: int,
    epoch: int,
    caller: Caller,
    once: bool,
) -> ToolStarted | ToolInterrupted | ToolResult:
    """Write the intent row of a call before its effect.

    A `once` call with an intent and no result never starts again: it is interrupted,
    unless the intent is this very execution's own, whose COMMIT was not acknowledged.
    """
    session = LockedSession(tx, key)
    at = {"of_sid": session.sid, "of_turn": turn, "of_step": step, "of_index": index}
    row = _CALL.one(tx.connection, at)
    if row.state == "done":
        return result_of(row)
    session.demand_host(turn, epoch)
    if row.state == "started" and row.nonce == caller.nonce:
        return ToolStarted(row.attempt, _stored(row))
    if once and row.state == "started":
        return ToolInterrupted(row.attempt, _stored(row))
    attempt = row.attempt + 1
    _BEGIN_CALL.run(
        tx.connection,
        {
            **at,
            "state": "started",
            "attempt": attempt,
            "worker": caller.worker,
            "nonce": caller.nonce,
            "task_token": caller.task_token,
            "started_at": tx.now,
        },
    )
    call = _stored(row)
    session.tell(_started(turn, step, attempt, call))
    session.save()
    return ToolStarted(attempt, call)


def complete_tools(
    tx: Tx,
    key: SessionKey,
    turn: int,
    step: int,
    epoch: int,
    done: Sequence[tuple[CompletedTool, int]],
) -> None:
    """Record ended calls with their token counts; the first result of a call stands.

    A call with attempt 0 had no intent row (it could be run again at no harm): its
    beginning is told here. Raises Fenced when a newer attempt of a call has begun or the
    turn is over.
    """
    session = LockedSession(tx, key)
    for completed, tokens in done:
        at = {"of_sid": session.sid, "of_turn": turn, "of_step": step, "of_index": completed.index}
        row = _CALL.one(tx.connection, at)
        if row.state == "done":
            continue
        demand_open(session, turn)
        if row.attempt != completed.attempt:
            raise Fenced(
                f"Attempt {completed.attempt} of call {completed.index} in turn {turn}"
                f" step {step} is over: attempt {row.attempt} has begun."
            )
        if completed.attempt == 0:
            session.demand_host(turn, epoch)
            session.tell(_started(turn, step, 1, _stored(row)))
        _END_CALL.run(
            tx.connection,
            {
                **at,
                "state": "done",
                "ended_at": tx.now,
                "duration_seconds": completed.duration_seconds,
                "result": completed.result.text,
                "failed": int(completed.result.failed),
                "tokens": tokens,
            },
        )
        session.tell(
            Draft(
                id=f"turn/{turn}/step/{step}/call/{completed.index}/finished",
                type="tool_finished",
                turn=turn,
                step=step,
                attempt=max(completed.attempt, 1),
                body={
                    "call_id": completed.result.call_id,
                    "index": completed.index,
                    "name": completed.result.name,
                    "failed": completed.result.failed,
                    "text": _short(completed.result.text, RESULT_PREVIEW_CHARACTERS),
                    "duration_seconds": round(completed.duration_seconds, 4),
                },
            )
        )
    session.save()


def _started(turn: int, step: int, attempt: int, call: StoredCall) -> Draft:
    arguments = call.malformed or json.dumps(call.arguments, ensure_ascii=False)
    return Draft(
        id=f"turn/{turn}/step/{step}/call/{call.index}/attempt/{attempt}/started",
        type="tool_started",
        turn=turn,
        step=step,
        attempt=attempt,
        body={
            "call_id": call.call_id,
            "index": call.index,
            "name": call.name,
            "arguments": _short(arguments, ARGUMENTS_PREVIEW_CHARACTERS),
        },
    )


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _stored(row: Any) -> StoredCall:
    return StoredCall(
        index=row.idx,
        call_id=row.call_id,
        name=row.name,
        arguments=json.loads(row.arguments),
        malformed=row.malformed,
        state=row.state,
        attempt=row.attempt,
        worker=row.worker,
        started_at=row.started_at,
        result=result_of(row) if row.state == "done" else None,
    )
