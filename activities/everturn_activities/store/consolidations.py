"""A consolidation as a recorded call: attempted, and its facts put in place, each in a
transaction. It belongs to the turn after which it was due, which is over by then."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from everturn.budgets import Amount
from everturn.context.consolidation import PROMPT_TOKENS, Merged, Told, dumped, oldest
from everturn.errors import Fenced
from everturn.events import Draft
from everturn.memory import FactSource
from everturn.session import SessionKey
from everturn_activities.gateways import Usage
from everturn_activities.store import Caller, ledger, memories, schema
from everturn_activities.store import side_journal as journal
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.memories import LockedMemory
from everturn_activities.store.metering import Meter
from everturn_activities.store.statement import Statement

ATTEMPTS_MAX = 5
"""Attempts that ended with their worker; perhaps they are what ends it."""

_m, _s = schema.memories, schema.sessions
_DUE_FOR = Statement(
    sa.select(_s.c.tenant, _s.c.id, _m.c.due_turn)
    .join(_s, _s.c.sid == _m.c.due_sid)
    .where(_m.c.id == sa.bindparam("of_memory"))
)


@dataclass(frozen=True)
class Due:
    """The turn after which a memory is to be consolidated."""

    memory: int
    key: SessionKey
    turn: int


@dataclass(frozen=True)
class ConsolidationStarted:
    attempt: int
    facts: list[Told]


def due_for(connection: sa.Connection, memory: int) -> Due | None:
    """For whom the memory's consolidation is due; None where none is."""
    row = _DUE_FOR.first(connection, {"of_memory": memory})
    return None if row is None else Due(memory, SessionKey(row.tenant, row.id), row.due_turn)


def begin(
    tx: Tx, due: Due, tokens_max: int, model: str, caller: Caller, meter: Meter
) -> ConsolidationStarted | None:
    """Count an attempt; None where there is nothing to do, or a budget is in the way."""
    session = LockedSession(tx, due.key)
    memory = memories.by_id(tx, due.memory)
    if memory is None or (memory.due_sid, memory.due_turn) != (session.sid, due.turn):
        return None
    row = journal.call(session, due.turn, "memory", due.memory)
    facts = oldest([Told(fact.n, fact.text, fact.tokens) for fact in memory.in_force()])
    if journal.is_own(row, caller):
        return ConsolidationStarted(row.attempt, facts)
    if row is not None and row.state == "started":
        journal.lose(session, row, meter)
    if memory.tokens <= tokens_max or len(facts) < 2:
        _settle(memory)
        return None
    if row is not None and row.attempt - row.failures >= ATTEMPTS_MAX:
        _give_up(session, memory, due, "Its workers ended while it ran.", Usage(), None)
        return None
    tokens = sum(fact.tokens for fact in facts)
    if session.budgeted:
        asked = Usage(input_tokens=tokens + PROMPT_TOKENS, output_tokens=tokens)
        attempt = 1 if row is None else row.attempt + 1
        at = (due.turn, due.memory, attempt, model, caller.worker, tx.now, tokens, "memory")
        wanted = Amount(meter.usd(model, asked), asked.input_tokens + asked.output_tokens)
        if not ledger.reserve_if_free(session, ledger.Call(*at), wanted):
            _not_due(memory)
            return None
    plan = json.dumps({"tokens": tokens})
    attempt = journal.begin(session, due.turn, "memory", due.memory, plan, model, caller)
    return ConsolidationStarted(attempt, facts)


def complete(
    tx: Tx,
    due: Due,
    attempt: int,
    changes: Sequence[Merged],
    content: str,
    usage: Usage,
    cost_usd: float | None,
    count: Callable[[str], int],
) -> int:
    """Put the new facts in place of the old: from here they are paid for. How many there are.

    A change that stands for a fact which was forgotten meanwhile is left out.
    """
    session, memory, row = _attempted(tx, due, attempt)
    if row.state == "done":
        return memory.facts
    _demand_started(row, due, attempt)
    facts, tokens = memory.facts, memory.tokens
    standing = {fact.n: fact for fact in memory.in_force()}
    for change in changes:
        old = [standing[n] for n in change.of if n in standing]
        if len(old) < len(change.of):
            continue
        sources: dict[FactSource, None] = {}
        for fact in old:
            sources.update(dict.fromkeys(memories.sources_of(fact)))
        key = f"consolidation/{due.key.session}/{due.turn}/{change.of[0]}"
        n = memory.add(change.text, count(change.text), key, tuple(sources))
        for fact in old:
            memory.replace(fact, n)
    journal.end(
        session,
        due.turn,
        "memory",
        due.memory,
        content=content,
        reply=dumped(changes),
        error=None,
        usage=usage,
        cost_usd=cost_usd,
    )
    ledger.settle(session, journal.metered(row), usage, cost_usd)
    _settle(memory)
    session.tell(
        Draft(
            id=f"memory/{memory.id}/{due.turn}",
            type="memory_consolidated",
            turn=due.turn,
            body={
                "scope": memory.scope,
                "facts_before": facts,
                "facts_after": memory.facts,
                "tokens_before": tokens,
                "tokens_after": memory.tokens,
                "cost_usd": cost_usd,
            },
        )
    )
    session.save()
    return memory.facts


def fail(
    tx: Tx,
    due: Due,
    attempt: int,
    reason: str,
    attempts_max: int,
    usage: Usage,
    cost_usd: float | None,
) -> bool:
    """Keep why an attempt failed; True where the consolidation is given up, and the facts stay."""
    session, memory, row = _attempted(tx, due, attempt)
    if (row.state, row.error) == ("failed", reason):
        return row.ended_at is not None
    _demand_started(row, due, attempt)
    failures = row.failures + 1
    if usage.input_tokens or usage.output_tokens:
        ledger.settle(session, journal.metered(row), usage, cost_usd)
    else:
        ledger.refund(session, journal.metered(row))
    journal.fail_attempt(session, due.turn, "memory", due.memory, reason, failures)
    if failures >= attempts_max:
        _give_up(session, memory, due, reason, usage, cost_usd)
    return bool(failures >= attempts_max)


def _attempted(tx: Tx, due: Due, attempt: int) -> tuple[LockedSession, LockedMemory, Any]:
    """The call's row, and what it changes, if `attempt` is its newest; else Fenced.

    It may be over: its end was committed, and nobody heard of that.
    """
    session = LockedSession(tx, due.key)
    memory = memories.by_id(tx, due.memory)
    row = journal.call(session, due.turn, "memory", due.memory)
    if memory is None or row is None or row.attempt != attempt:
        raise _fenced(due, attempt)
    return session, memory, row


def _demand_started(row: Any, due: Due, attempt: int) -> None:
    if row.state != "started":
        raise _fenced(due, attempt)


def _fenced(due: Due, attempt: int) -> Fenced:
    return Fenced(f"Attempt {attempt} of the consolidation of memory {due.memory} is over.")


def _give_up(
    session: LockedSession,
    memory: LockedMemory,
    due: Due,
    reason: str,
    usage: Usage,
    cost_usd: float | None,
) -> None:
    journal.end(
        session,
        due.turn,
        "memory",
        due.memory,
        content=None,
        reply=None,
        error=reason,
        usage=usage,
        cost_usd=cost_usd,
    )
    _settle(memory)
    text = f"The memory of this {memory.scope} could not be made smaller, and stays: {reason}"
    at = {"id": f"memory/{memory.id}/{due.turn}/failed", "turn": due.turn}
    session.tell(Draft(type="status", body={"text": text}, **at))
    session.save()


def _settle(memory: LockedMemory) -> None:
    """Ask for the next one only when the memory has grown by a quarter."""
    memory.quiet_tokens = memory.tokens * 5 // 4
    _not_due(memory)


def _not_due(memory: LockedMemory) -> None:
    memory.due_at = memory.due_sid = memory.due_turn = None
    memory.save()
