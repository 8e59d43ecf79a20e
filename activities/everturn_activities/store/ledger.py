"""The ledger: a model call is reserved before it begins, and settled, refunded or lost after it.

An attempt has one entry, which is closed once. What has no limit has no entry either, but
for attempts that left nothing else: their steps keep the usage of the reply only.

- `settled`: the reply is there; what the provider told, or our count, is spent.
- `refunded`: it failed before anything was answered; nothing is spent.
- `cut`: it failed after something was answered; its input and what was streamed are spent.
- `lost`: its worker died. Nobody knows how far it came, so its input is spent, and what
  reached the event log.
"""

import json
from dataclasses import dataclass
from statistics import median
from typing import Any

import sqlalchemy as sa

from everturn.budgets import UNITS, Amount, Budget, shown, whole
from everturn.events import DELTAS
from everturn.session import ContextHead
from everturn_activities.gateways import Usage
from everturn_activities.store import Blocked, accounts, asks, schema
from everturn_activities.store.accounts import Account, day_of
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.metering import Terms
from everturn_activities.store.statement import Statement, insert

UNKNOWN_SECONDS = 10.0
"""What a session's first call is expected to take."""

_e, _v, _st = schema.entries, schema.events, schema.steps
_TOOK = Statement(
    sa.select((_st.c.ended_at - _st.c.started_at).label("seconds"))
    .where(_st.c.sid == sa.bindparam("of_sid"), _st.c.state == "done")
    .order_by(_st.c.turn.desc(), _st.c.step.desc())
    .limit(9)
)
_one_entry = sa.and_(
    _e.c.sid == sa.bindparam("of_sid"),
    _e.c.turn == sa.bindparam("of_turn"),
    _e.c.step == sa.bindparam("of_step"),
    _e.c.attempt == sa.bindparam("of_attempt"),
    _e.c.what == sa.bindparam("of_what"),
)
_CLOSING = (
    *("model", "state", "estimated", "ended_at", "usd", "input_tokens", "output_tokens"),
    *("cached_tokens", "reasoning_tokens", "steps", "milliseconds"),
)
_ENTRY = Statement(sa.select(_e).where(_one_entry))
_INSERT = insert(_e)
_CLOSE = Statement(
    sa.update(_e).where(_one_entry).values({name: sa.bindparam(name) for name in _CLOSING})
)
_STREAMED = Statement(
    sa.select(_v.c.body, _v.c.time)
    .where(
        _v.c.sid == sa.bindparam("of_sid"),
        _v.c.turn == sa.bindparam("of_turn"),
        _v.c.step == sa.bindparam("of_step"),
        _v.c.attempt == sa.bindparam("of_attempt"),
        sa.or_(*(_v.c.type == kind for kind in sorted(DELTAS))),
    )
    .order_by(_v.c.epoch, _v.c.seq)
)


def open_session(session: LockedSession, budget: Budget | None) -> None:
    """Give the session the limits of its agent, where they are not those it was given last.

    So a limit that a person raised stays, until the agent's own is changed.
    """
    applied = "" if budget is None else budget.model_dump_json(exclude_none=True)
    tenant = session.key.tenant
    account = accounts.one(session.tx, tenant, session.sid, "session")
    if account is None and not applied:
        return
    if account is None or account.applied != applied:
        account = accounts.put(
            session.tx, tenant, session.sid, "session", budget if budget is not None else Budget()
        )
        account.applied = applied
        accounts.save(session.tx, account)
    session.budgeted = 1


def reserve(
    session: LockedSession,
    context: ContextHead,
    attempt: int,
    model: str,
    worker: str,
    terms: Terms,
) -> Blocked | None:
    """Reserve what the attempt may take at most, from every account; or why that cannot be."""
    wanted = terms.most(session.tx.connection, model, context.tokens)
    call = Call(context.turn, context.step, attempt, model, worker, session.tx.now, context.tokens)
    return reserve_call(session, call, wanted)


def reserve_call(session: LockedSession, call: "Call", wanted: Amount) -> Blocked | None:
    """Reserve `wanted` for a call, from every account; or why that cannot be."""
    mine = _accounts(session)
    wanted = _timed(session, mine, wanted)
    if (blocked := _blocked(session, call.turn, mine, call.model, wanted)) is not None:
        return blocked
    _open_entry(session, call, mine, wanted)
    return None


def reserve_if_free(session: LockedSession, call: "Call", wanted: Amount) -> bool:
    """Reserve `wanted` for a call that nobody waits for, unless any account is in the way:
    it is no reason to ask a person."""
    mine = _accounts(session)
    for account in mine:
        for unit in UNITS:
            unpriced = unit == "usd" and wanted.usd is None and account.limit[unit] is not None
            if unpriced or account.is_taken(unit, wanted) or account.is_marked(unit):
                return False
    _open_entry(session, call, mine, wanted)
    return True


def _accounts(session: LockedSession) -> list[Account]:
    session.lock_above()
    return accounts.of_session(session.tx, session.key.tenant, session.sid)


def _timed(session: LockedSession, mine: list[Account], wanted: Amount) -> Amount:
    """`wanted` with the seconds that the call is expected to take, where they have a limit.

    That is no maximum, so all that is left lets a call begin; one beside it waits.
    """
    left = [
        limit - account.spent["seconds"]
        for account in mine
        if (limit := account.limit["seconds"]) is not None
    ]
    if not left:
        return wanted
    took = _TOOK.all(session.tx.connection, {"of_sid": session.sid})
    expected = median(row.seconds for row in took) if took else UNKNOWN_SECONDS
    return wanted._replace(seconds=max(0, min(whole("seconds", max(expected, 0.0)), *left)))


def _open_entry(session: LockedSession, call: "Call", mine: list[Account], wanted: Amount) -> None:
    today = day_of(session.tx.now)
    for account in mine:
        # Another may have begun the next day while we waited for its row.
        if account.covers(today):
            _add(account.reserved, wanted)
            accounts.save(session.tx, account)
    _INSERT.run(
        session.tx.connection,
        {
            "sid": session.sid,
            "turn": call.turn,
            "step": call.step,
            "attempt": call.attempt,
            "what": call.what,
            "model": call.model,
            "worker": call.worker,
            "day": day_of(session.tx.now),
            "state": "open",
            "created_at": session.tx.now,
            **{f"reserved_{unit}": wanted.of(unit) for unit in UNITS},
        },
    )


def check(session: LockedSession, context: ContextHead, model: str, terms: Terms) -> Blocked | None:
    """As `reserve`, and reserve nothing: for a call that another activity begins."""
    mine = _accounts(session)
    wanted = _timed(session, mine, terms.most(session.tx.connection, model, context.tokens))
    return _blocked(session, context.turn, mine, model, wanted)


@dataclass(frozen=True)
class Call:
    """An attempt at a model call that is no step, named as a step's row names its own; `step`
    is its number among those of `what`."""

    turn: int
    step: int
    attempt: int
    model: str
    worker: str | None
    started_at: float
    context_tokens: int
    what: str = "model"


def settle(session: LockedSession, row: Any, usage: Usage, cost_usd: float | None) -> None:
    """Spend what the reply of the attempt in the step's `row`, or of a `Call`, took."""
    if session.budgeted:
        usd = None if cost_usd is None else whole("usd", cost_usd)
        steps = int(not isinstance(row, Call))
        _close(session, row, "settled", usage, usd, steps, session.tx.now)


def refund(session: LockedSession, call: Call) -> None:
    """Spend nothing for an attempt that was answered nothing."""
    if session.budgeted:
        _close(session, call, "refunded", Usage(), 0, 0, call.started_at)


def lose_call(session: LockedSession, call: Call, usage: Usage, usd: int | None) -> None:
    """Spend what an attempt may have taken whose end nobody saw."""
    _close(session, call, "lost", usage, usd, 0, call.started_at)


def fail(session: LockedSession, row: Any, terms: Terms) -> None:
    """Refund the failed attempt in the step's `row`, or spend what it was answered so far."""
    text, until = _streamed(session, row)
    if text:
        _spend_streamed(session, row, "cut", text, until, terms)
    elif session.budgeted:
        _close(session, row, "refunded", Usage(), 0, 0, row.started_at)


def lose(session: LockedSession, row: Any, terms: Terms) -> None:
    """Spend what the attempt in the step's `row` may have taken: its worker is gone."""
    text, until = _streamed(session, row)
    _spend_streamed(session, row, "lost", text, until, terms)


def spend_tools(session: LockedSession, turn: int, step: int, seconds: float) -> None:
    """Spend the seconds that tool calls of a step took; they were not reserved."""
    if not session.budgeted or not seconds:
        return
    at = _at(session, turn, step, 0, "tools")
    known = _ENTRY.first(session.tx.connection, at)
    taken = whole("seconds", seconds)
    if known is None:
        _INSERT.run(session.tx.connection, {**_row(at, session), "milliseconds": taken})
    else:
        closing = {name: getattr(known, name) for name in _CLOSING}
        closing["milliseconds"] += taken
        _CLOSE.run(session.tx.connection, {**at, **closing})
    for account in _accounts(session):
        _add(account.spent, Amount(seconds=taken))
        accounts.save(session.tx, account)


def _blocked(
    session: LockedSession, turn: int, mine: list[Account], model: str, wanted: Amount
) -> Blocked | None:
    """What stands most in the way of `wanted`: no price, a limit, a question, other calls."""
    limited = [(account, unit) for account in mine for unit in UNITS if account.limit[unit]]
    name = session.key.session
    for account, unit in limited:
        if unit == "usd" and wanted.usd is None:
            return Blocked(
                "unpriced",
                f"{account.name(name)} is in dollars, and no price of {model} is known; use a"
                " model with a price, or set the budget in tokens.",
            )
    asked = None
    for account, unit in limited:
        over = account.is_over(unit, wanted)
        if not over and not account.is_marked(unit):
            continue
        needs = account.needs(unit, wanted)
        found = asks.about(session, turn, account, unit, needs, over)
        if found.how == "over":
            return found
        asked = asked or found
    if asked is not None:
        return asked
    for account, unit in limited:
        if account.is_taken(unit, wanted):
            rest = f"{shown(unit, account.reserved[unit])} reserved by calls under way"
            return Blocked("waits", f"{account.name(name)} {account.left(unit)}, and {rest}.")
    return None


def _spend_streamed(
    session: LockedSession, row: Any, state: str, text: str, until: float, terms: Terms
) -> None:
    usage = terms.meter.streamed(row.context_tokens, text)
    _close(session, row, state, usage, terms.meter.usd(row.model, usage), 0, until)


def _close(
    session: LockedSession,
    row: Any,
    state: str,
    usage: Usage,
    usd: int | None,
    steps: int,
    until: float,
) -> None:
    """Close the entry of the attempt in the step's `row`; one that is closed stays as it is.

    A call that began before it had a limit has no entry: it gets one that reserved nothing.
    """
    connection = session.tx.connection
    at = _at(session, row.turn, row.step, row.attempt, _what(row))
    known = _ENTRY.first(connection, at)
    if known is not None and known.state != "open":
        return
    took = whole("seconds", max(until - row.started_at, 0.0))
    closing = {
        "model": row.model,
        "state": state,
        "estimated": int(usage.estimated),
        "ended_at": session.tx.now,
        "usd": usd,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "steps": steps,
        "milliseconds": took,
    }
    if known is None:
        made = _row(at, session) | {"worker": row.worker, "created_at": row.started_at}
        _INSERT.run(connection, {**made, "day": day_of(row.started_at), **closing})
    else:
        _CLOSE.run(connection, {**at, **closing})
    if not session.budgeted:
        return
    day = day_of(row.started_at) if known is None else known.day
    spent = Amount(usd, usage.input_tokens + usage.output_tokens, steps, took)
    for account in _accounts(session):
        if not account.covers(day):
            continue
        if known is not None:
            for unit in UNITS:
                account.reserved[unit] -= getattr(known, f"reserved_{unit}")
        _add(account.spent, spent)
        accounts.save(session.tx, account)


def _add(sums: dict[Any, int], amount: Amount) -> None:
    for unit in UNITS:
        sums[unit] += amount.of(unit)


def _streamed(session: LockedSession, row: Any) -> tuple[str, float]:
    """What an attempt has told of its reply, and when it last did."""
    if isinstance(row, Call):
        return "", row.started_at
    at = _at(session, row.turn, row.step, row.attempt, "model")
    told = _STREAMED.all(session.tx.connection, at)
    text = "".join(json.loads(each.body)["text"] for each in told)
    return text, told[-1].time if told else row.started_at


def _what(row: Any) -> str:
    return row.what if isinstance(row, Call) else "model"


def _at(session: LockedSession, turn: int, step: int, attempt: int, what: str) -> dict[str, Any]:
    return {
        "of_sid": session.sid,
        "of_turn": turn,
        "of_step": step,
        "of_attempt": attempt,
        "of_what": what,
    }


def _row(at: dict[str, Any], session: LockedSession) -> dict[str, Any]:
    """A closed entry at that place."""
    now = session.tx.now
    closed = {"day": day_of(now), "state": "settled", "created_at": now, "ended_at": now}
    return {name.removeprefix("of_"): value for name, value in at.items()} | closed
