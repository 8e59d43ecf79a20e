"""The journal of tool calls: intents before effects, the first result of a call stands."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from everturn.errors import Fenced
from everturn.events import Draft
from everturn.messages import AssistantMessage, ToolResult
from everturn.session import ContextHead, Gated, RunTools, SessionKey, ToolHead
from everturn_activities.store import (
    EVERY,
    Caller,
    CompletedTool,
    StoredCall,
    ToolInterrupted,
    ToolStarted,
    grants,
    ledger,
    loop_guard,
    recordings,
    schema,
    snapshots,
)
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.recordings import Answer
from everturn_activities.store.results import result_of, with_note
from everturn_activities.store.statement import Statement, insert

ARGUMENTS_PREVIEW_CHARACTERS = 300
RESULT_PREVIEW_CHARACTERS = 500
ATTEMPTS_MAX = 5
"""Beginnings of a call that left no result: it may be what ends the workers."""

_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_calls = schema.tool_calls
_of_step = sa.and_(
    _calls.c.sid == _sid,
    _calls.c.turn == sa.bindparam("of_turn"),
    _calls.c.step == sa.bindparam("of_step"),
)
_one_call = sa.and_(_of_step, _calls.c.idx == sa.bindparam("of_index"))

_CALLS = Statement(
    sa.select(_calls)
    .where(_of_step, _calls.c.idx.between(sa.bindparam("first"), sa.bindparam("last")))
    .order_by(_calls.c.idx)
)
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
_GIVE_LEAVE = Statement(sa.update(_calls).where(_one_call).values(asks=0))
_REWRITE = Statement(
    sa.update(_calls)
    .where(_one_call, _calls.c.state == "proposed")
    .values(arguments=sa.bindparam("arguments"), gated=sa.bindparam("gated"), edited=1)
)
_SETTLE_HOOKS = Statement(
    sa.update(_calls)
    .where(_one_call)
    .values({name: sa.bindparam(name) for name in ("gated", "followed", "note", "tokens")})
)
_WHOLE = Statement(
    sa.select(_calls.c.whole, schema.blobs.c.body)
    .join_from(_calls, schema.blobs, _calls.c.whole == schema.blobs.c.digest, isouter=True)
    .where(_one_call, _calls.c.whole.is_not(None))
)
_KEEP_WHOLE = Statement(sa.update(_calls).where(_one_call).values(whole=sa.bindparam("digest_of")))
_BOUNDARY = Statement(
    sa.select(schema.turns.c.boundary).where(
        schema.turns.c.sid == _sid, schema.turns.c.turn == sa.bindparam("of_turn")
    )
)


def tool_calls(
    connection: sa.Connection, sid: int, turn: int, step: int, first: int, last: int
) -> list[StoredCall]:
    at = {"of_sid": sid, "of_turn": turn, "of_step": step, "first": first, "last": last}
    return [_stored(row) for row in _CALLS.all(connection, at)]


def propose(
    session: LockedSession,
    context: ContextHead,
    message: AssistantMessage,
    heads: list[ToolHead],
    changing: frozenset[str],
) -> list[ToolHead]:
    """Journal a reply's calls before any runs, and return those that are to run.

    Calls beyond `heads` are answered here, and so are those that would fail once more;
    `changing` names the tools whose success may mend a failure.
    """
    runs: list[ToolHead] = []
    for index, call in enumerate(message.tool_calls):
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        row = {
            "sid": session.sid,
            "turn": context.turn,
            "step": context.step,
            "idx": index,
            "call_id": call.id,
            "name": call.name,
            "arguments": arguments,
            "malformed": call.malformed,
        }
        if index >= len(heads):
            answered = _answered(_beyond(len(heads)))
            _PROPOSE.run(session.tx.connection, {**row, **answered})
            continue
        head = heads[index]
        answer = recordings.answer(session, call, changing) if session.replays else None
        if answer is not None:
            _replay(session, context, row, head, answer)
            continue
        digest = loop_guard.digest(call.name, call.malformed or arguments)
        found = loop_guard.repeated(
            session.tx.connection, session.sid, context.turn, digest, head, changing
        )
        if found is not None and found.refusal is not None:
            # Without a digest: a refusal says nothing new of the call.
            _PROPOSE.run(session.tx.connection, {**row, **_answered(found.refusal)})
            result = ToolResult(call_id=call.id, name=call.name, text=found.refusal, failed=True)
            ended = CompletedTool(index, 0, result, 0.0)
            session.tell(_finished(context.turn, context.step, ended))
            continue
        if head.asks and grants.given(session, call.name, call.arguments):
            head = replace(head, asks=False)
        if found is not None:
            head = replace(head, placement="queued", delay_seconds=found.delay_seconds)
            session.tell(_waits(context, head, found.times))
        proposed = {
            "digest": digest,
            "placement": head.placement,
            "state": "proposed",
            "asks": int(head.asks),
            "gated": int(head.before_seconds > 0),
            "followed": int(head.after_seconds > 0),
        }
        _PROPOSE.run(session.tx.connection, {**row, **proposed})
        runs.append(head)
    return runs


def _replay(
    session: LockedSession,
    context: ContextHead,
    row: dict[str, Any],
    head: ToolHead,
    answer: Answer,
) -> None:
    """Answer a call of a turn that is worked again, without running it."""
    ended_at = {"started_at": session.tx.now, "ended_at": session.tx.now, "duration_seconds": 0.0}
    values = {**_answered(answer.text), **ended_at, "attempt": 1, "tokens": answer.tokens}
    values |= {"failed": int(answer.failed), "recorded": int(answer.recorded)}
    _PROPOSE.run(session.tx.connection, {**row, **values})
    result = ToolResult(
        call_id=row["call_id"],
        name=row["name"],
        text=answer.text,
        failed=answer.failed,
        recorded=answer.recorded,
    )
    call = StoredCall(
        head.index, result.call_id, result.name, json.loads(row["arguments"]), row["malformed"],
        "done", 1, None, None, result,
    )  # fmt: skip
    session.tell(_started(context.turn, context.step, 1, call))
    session.tell(_finished(context.turn, context.step, CompletedTool(head.index, 1, result, 0.0)))


def answer_call(
    session: LockedSession,
    turn: int,
    step: int,
    index: int,
    text: str,
    *,
    failed: bool = True,
    tokens: int | None = None,
    whole: str | None = None,
) -> None:
    """Answer a call that no tool runs; `whole` is what `text` was cut from."""
    at = {"of_sid": session.sid, "of_turn": turn, "of_step": step, "of_index": index}
    row = _CALL.one(session.tx.connection, at)
    if row.state == "done":
        return
    now = session.tx.now
    result = ToolResult(call_id=row.call_id, name=row.name, text=text, failed=failed)
    ended = CompletedTool(index, row.attempt, result, now - (row.started_at or now))
    # Nobody's seconds: those of an executor are counted with its own calls.
    values = {**_answered(text), "failed": int(failed), "duration_seconds": 0.0}
    if tokens is not None:
        values["tokens"] = tokens
    _END_CALL.run(session.tx.connection, {**at, **values, "ended_at": now})
    if whole is not None:
        digest = snapshots.keep(session.tx.connection, whole)
        _KEEP_WHOLE.run(session.tx.connection, {**at, "digest_of": digest})
    if row.followed and row.state != "started":
        _settle(session, at, row, gated=row.gated, followed=0, tokens=values["tokens"])
    session.tell(_finished(turn, step, ended))


def begin_delegated(session: LockedSession, turn: int, step: int, index: int) -> None:
    """Tell that a call has begun which an executor works: no worker of ours runs it."""
    at = {"of_sid": session.sid, "of_turn": turn, "of_step": step, "of_index": index}
    row = _CALL.one(session.tx.connection, at)
    if row.state != "proposed":
        return
    nobody = {"worker": None, "nonce": None, "task_token": None}
    begun = {**nobody, "state": "started", "attempt": 1, "started_at": session.tx.now}
    _BEGIN_CALL.run(session.tx.connection, {**at, **begun})
    session.tell(_started(turn, step, 1, _stored(row)))


def give_leave(session: LockedSession, turn: int, step: int, index: int) -> None:
    """Let a call run that was proposed to a person first, or needs no leave after all."""
    at = {"of_sid": session.sid, "of_turn": turn, "of_step": step, "of_index": index}
    _GIVE_LEAVE.run(session.tx.connection, at)


def rewrite(
    session: LockedSession,
    turn: int,
    step: int,
    index: int,
    arguments: dict[str, Any],
    gated: bool,
) -> None:
    """Let a call that has not begun run with other arguments than the model's."""
    at = {"of_sid": session.sid, "of_turn": turn, "of_step": step, "of_index": index}
    text = json.dumps(arguments, ensure_ascii=False)
    _REWRITE.run(session.tx.connection, {**at, "arguments": text, "gated": int(gated)})


def settle_gates(
    tx: Tx, request: RunTools, passed: Sequence[int], blocked: Mapping[int, str]
) -> Gated:
    """Let calls run that hooks let pass, and answer the `blocked` by why they do not."""
    session = LockedSession(tx, SessionKey(request.tenant, request.session))
    session.demand_host(request.turn, request.epoch)
    for index in passed:
        at, row = _found(session, request.turn, request.step, index)
        _settle(session, at, row, gated=0, followed=row.followed)
    for index, text in blocked.items():
        answer_call(session, request.turn, request.step, index, text)
    session.save()
    calls = tool_calls(tx.connection, session.sid, request.turn, request.step, 0, EVERY)
    return Gated([call.index for call in calls if call.result is not None])


def note_results(
    tx: Tx, request: RunTools, notes: Mapping[int, str], count: Callable[[ToolResult], int]
) -> None:
    """Put what hooks say behind the results of calls, once; an empty note says nothing."""
    session = LockedSession(tx, SessionKey(request.tenant, request.session))
    session.demand_host(request.turn, request.epoch)
    for index, note in notes.items():
        at, row = _found(session, request.turn, request.step, index)
        if not row.followed:
            continue
        tokens = row.tokens
        if note:
            noted = result_of(row)
            tokens = count(noted.model_copy(update={"text": with_note(noted.text, note)}))
        _settle(session, at, row, gated=row.gated, followed=0, note=note or None, tokens=tokens)


def _found(session: LockedSession, turn: int, step: int, index: int) -> tuple[dict[str, Any], Any]:
    at = {"of_sid": session.sid, "of_turn": turn, "of_step": step, "of_index": index}
    return at, _CALL.one(session.tx.connection, at)


def _settle(session: LockedSession, at: dict[str, Any], row: Any, **values: Any) -> None:
    """Write where a call stands with its hooks."""
    kept = {"note": row.note, "tokens": row.tokens}
    _SETTLE_HOOKS.run(session.tx.connection, {**at, **kept, **values})


def _answered(text: str) -> dict[str, Any]:
    """What a call's row holds that is not run."""
    tokens = len(text) // 4
    return {
        "placement": "inline", "state": "done", "result": text, "failed": 1, "tokens": tokens,
    }  # fmt: skip


def _waits(context: ContextHead, head: ToolHead, times: int) -> Draft:
    text = (
        f"The last {times} results of this call of {head.name} were the same; it waits"
        f" {head.delay_seconds:g} s before it is made again."
    )
    return Draft(
        id=f"turn/{context.turn}/step/{context.step}/call/{head.index}/waits",
        type="status",
        turn=context.turn,
        step=context.step,
        body={"text": text},
    )


def _beyond(most: int) -> str:
    return f"The call did not run: one step runs {most} calls at most; ask for it in the next."


def begin_tool(
    tx: Tx,
    key: SessionKey,
    turn: int,
    step: int,
    index: int,
    epoch: int,
    caller: Caller,
    once: bool,
    after: int = 0,
) -> ToolStarted | ToolInterrupted | ToolResult:
    """Write the intent row of a call before its effect.

    A `once` call with an intent and no result never starts again: it is interrupted,
    unless the intent is this very execution's own, whose COMMIT was not acknowledged, or a
    person has let the call run again `after` that attempt.
    """
    session = LockedSession(tx, key)
    at = {"of_sid": session.sid, "of_turn": turn, "of_step": step, "of_index": index}
    row = _CALL.one(tx.connection, at)
    if row.state == "done":
        return result_of(row)
    session.demand_host(turn, epoch)
    if row.asks:
        raise Fenced(f"Call {index} of turn {turn} step {step} waits for a person's leave.")
    if row.gated:
        raise Fenced(f"Call {index} of turn {turn} step {step} waits for its hooks.")
    if row.state == "started" and row.nonce == caller.nonce:
        return ToolStarted(row.attempt, _stored(row))
    stays = (once or row.attempt >= ATTEMPTS_MAX) and row.attempt != after
    if row.state == "started" and stays:
        return ToolInterrupted(row.attempt, _stored(row), tx.now - row.started_at)
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


def tell_output(
    tx: Tx, key: SessionKey, turn: int, step: int, index: int, attempt: int, n: int, text: str
) -> None:
    """Tell the `n`th piece of what a running call says. Raises Fenced where it is over."""
    session = LockedSession(tx, key)
    session.demand_open(turn)
    at = {"of_sid": session.sid, "of_turn": turn, "of_step": step, "of_index": index}
    row = _CALL.one(tx.connection, at)
    if row.attempt != attempt or row.state != "started":
        raise Fenced(f"Attempt {attempt} of call {index} in turn {turn} step {step} is over.")
    body = {"call_id": row.call_id, "index": index, "name": row.name, "text": text}
    said = Draft(
        id=f"turn/{turn}/step/{step}/call/{index}/attempt/{attempt}/output/{n}",
        type="tool_output",
        turn=turn,
        step=step,
        attempt=attempt,
        body=body,
    )
    session.tell_once([said])
    session.save()


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
    seconds = 0.0
    for completed, tokens in done:
        at = {"of_sid": session.sid, "of_turn": turn, "of_step": step, "of_index": completed.index}
        row = _CALL.one(tx.connection, at)
        if row.state == "done":
            continue
        session.demand_open(turn)
        if row.attempt != completed.attempt:
            raise Fenced(
                f"Attempt {completed.attempt} of call {completed.index} in turn {turn}"
                f" step {step} is over: attempt {row.attempt} has begun."
            )
        if completed.attempt == 0:
            session.demand_host(turn, epoch)
            session.tell(_started(turn, step, 1, _stored(row)))
        seconds += completed.duration_seconds
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
        digest = completed.blob
        if completed.whole is not None:
            digest = snapshots.keep(tx.connection, completed.whole)
        if digest is not None:
            _KEEP_WHOLE.run(tx.connection, {**at, "digest_of": digest})
        session.tell(_finished(turn, step, completed))
    ledger.spend_tools(session, turn, step, seconds)
    session.save()


def whole_result(
    connection: sa.Connection, sid: int, turn: int, step: int, index: int
) -> tuple[str, str | None] | None:
    """The digest of a cut result's whole text, and the text where the store itself has it."""
    at = {"of_sid": sid, "of_turn": turn, "of_step": step, "of_index": index}
    row = _WHOLE.first(connection, at)
    return None if row is None else (row.whole, row.body)


def boundary(connection: sa.Connection, sid: int, turn: int) -> str:
    text: str = _BOUNDARY.one(connection, {"of_sid": sid, "of_turn": turn}).boundary
    return text


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


def _finished(turn: int, step: int, ended: CompletedTool) -> Draft:
    return Draft(
        id=f"turn/{turn}/step/{step}/call/{ended.index}/finished",
        type="tool_finished",
        turn=turn,
        step=step,
        attempt=max(ended.attempt, 1),
        body={
            "call_id": ended.result.call_id,
            "index": ended.index,
            "name": ended.result.name,
            "failed": ended.result.failed,
            "text": _short(ended.result.text, RESULT_PREVIEW_CHARACTERS),
            "duration_seconds": round(ended.duration_seconds, 4),
            **({"recorded": True} if ended.result.recorded else {}),
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
        asks=bool(row.asks),
        edited=bool(row.edited),
        gated=bool(row.gated),
        followed=bool(row.followed),
    )
