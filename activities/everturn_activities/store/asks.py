"""What a person is asked about a budget: once for each limit and turn, answered once."""

from typing import Any

import sqlalchemy as sa

from everturn.budgets import BudgetVerdict, Limits, Unit, shown
from everturn.errors import UsageError
from everturn.events import Draft
from everturn.session import SessionKey
from everturn.views import BudgetAskView
from everturn_activities.store import Blocked, Wake, accounts, schema
from everturn_activities.store.accounts import Account
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.statement import Statement, insert

_q = schema.budget_asks
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_KNOWN = Statement(
    sa.select(_q)
    .where(
        _q.c.sid == _sid,
        _q.c.turn == sa.bindparam("of_turn"),
        _q.c.account == sa.bindparam("of_account"),
        _q.c.unit == sa.bindparam("of_unit"),
        _q.c.limit == sa.bindparam("of_limit"),
    )
    .order_by(_q.c.n.desc())
    .limit(1)
)
_LAST = Statement(
    sa.union_all(
        sa.select(sa.func.max(_q.c.n)).where(_q.c.sid == _sid),
        sa.select(sa.func.max(schema.approvals.c.n)).where(schema.approvals.c.sid == _sid),
    )
)
_ANSWER = Statement(
    sa.update(_q)
    .where(_q.c.sid == _sid, _q.c.n == sa.bindparam("of_n"))
    .values(state=sa.bindparam("state"))
)
_OPEN = Statement(sa.select(_q).where(_q.c.sid == _sid, _q.c.state == "open").order_by(_q.c.n))
_CLOSE = Statement(
    sa.update(_q).where(_q.c.sid == _sid, _q.c.state == "open").values(state="closed")
)
_INSERT = insert(_q)


def about(
    session: LockedSession, turn: int, account: Account, unit: Unit, needs: int, over: bool
) -> Blocked:
    """What becomes of a turn whose next call an account stops.

    `over`: the limit itself is reached, and not only its soft share. A person is asked
    where the account has one.
    """
    limit = account.limit[unit]
    assert limit is not None
    text = _text(account, session.key.session, unit, needs)
    if account.soft is None:
        return Blocked("over", text)
    at = {
        "of_sid": session.sid,
        "of_turn": turn,
        "of_account": account.id,
        "of_unit": unit,
        "of_limit": limit,
    }
    known = _KNOWN.first(session.tx.connection, at)
    if known is None or (known.state == "raised" and not over):
        # A limit that was let stand is asked about anew where its share was set lower since.
        _ask(session, turn, account, unit, limit, text)
        return Blocked("asked", text)
    if known.state == "denied":
        return Blocked("over", f"{text} A person was asked and did not raise it.")
    # What was allowed up to this limit ends where it is reached.
    return Blocked("over" if known.state == "raised" else "asked", text)


def answer(session: LockedSession, row: dict[str, Any], verdict: BudgetVerdict) -> None:
    """Let a person's verdict take effect; one on a question that is closed is too late.

    Without a question, a raise raises the session's own budget. Raises UsageError where the
    limits are not those that are asked for, or lower than they are.
    """
    asked = _OPEN.all(session.tx.connection, {"of_sid": session.sid})
    mine = [ask for ask in asked if verdict.approval in (None, ask.n)]
    ask = mine[0] if mine else None
    row["target"] = verdict.approval if ask is None else ask.n
    row["turn"] = session.open_turn
    if ask is None and (verdict.approval is not None or verdict.verdict == "deny"):
        row["state"] = "too_late"
        return
    row["state"] = "consumed"
    if verdict.verdict == "raise":
        _raise(session, ask, verdict)
    if ask is not None:
        state = "raised" if verdict.verdict == "raise" else "denied"
        _ANSWER.run(session.tx.connection, {"of_sid": session.sid, "of_n": ask.n, "state": state})


def _raise(session: LockedSession, ask: Any, limits: Limits) -> None:
    name = session.key.session
    if ask is None:
        account = accounts.one(session.tx, session.key.tenant, session.sid, "session")
    else:
        account = accounts.by_id(session.tx, ask.account)
    if account is None:
        raise UsageError(
            f"Session {name!r} has no budget of its own; set one with 'everturn budget set {name}'."
        )
    if ask is not None and ask.unit not in limits.units:
        raise UsageError(f"Question {ask.n} is about {ask.unit}; give a new limit in {ask.unit}.")
    for unit in limits.units:
        new, old = limits.amount(unit), account.limit[unit]
        if old is None or new is None or new < old:
            now = "no limit" if old is None else shown(unit, old)
            raise UsageError(
                f"{account.name(name)} has {now} in {unit}; a raise names what is not below"
                " a limit that is there."
            )
        account.raise_to(unit, new)
    accounts.save(session.tx, account)


def answered(sender_id: str, row: dict[str, Any], verdict: BudgetVerdict) -> Draft:
    """What watchers are told of a verdict."""
    limits = ", ".join(shown(unit, verdict.amount(unit) or 0) for unit in verdict.units)
    too_late = row["state"] == "too_late"
    text = f"raised to {limits}" if limits else "not raised"
    return Draft(
        id=f"budget/answer/{sender_id}",
        type="budget_answered",
        turn=row["turn"] or 0,
        body={
            "approval": row["target"],
            "verdict": verdict.verdict,
            "text": "The answer came too late." if too_late else f"The budget was {text}.",
            "too_late": too_late,
        },
    )


def close(session: LockedSession) -> None:
    """Close what the session's turn asked: it is over."""
    _CLOSE.run(session.tx.connection, {"of_sid": session.sid})


def open_of(connection: sa.Connection, sid: int) -> tuple[BudgetAskView, ...]:
    """The session's open questions."""
    rows = connection.execute(
        sa.select(_q, schema.accounts.c.scope)
        .join(schema.accounts, schema.accounts.c.id == _q.c.account)
        .where(_q.c.sid == sid, _q.c.state == "open")
        .order_by(_q.c.n)
    )
    return tuple(
        BudgetAskView(approval=r.n, turn=r.turn, budget=r.scope, unit=r.unit, text=r.text)
        for r in rows
    )


def askers(connection: sa.Connection, tenant: str) -> list[SessionKey]:
    """The tenant's sessions with an open question."""
    rows = connection.execute(
        sa.select(schema.sessions.c.id)
        .join(_q, _q.c.sid == schema.sessions.c.sid)
        .where(schema.sessions.c.tenant == tenant, _q.c.state == "open")
        .distinct()
    )
    return [SessionKey(tenant, row.id) for row in rows]


def settle(tx: Tx, key: SessionKey) -> Wake | None:
    """Close the session's questions about limits that were changed elsewhere; whom to wake."""
    session = LockedSession(tx, key)
    changed = False
    for ask in _OPEN.all(tx.connection, {"of_sid": session.sid}):
        account = accounts.by_id(tx, ask.account)
        if account is not None and account.limit[ask.unit] == ask.limit:
            continue
        changed = True
        at = {"of_sid": session.sid, "of_n": ask.n}
        _ANSWER.run(tx.connection, {**at, "state": "raised"})
        session.tell(
            Draft(
                id=f"budget/{ask.n}/settled",
                type="budget_answered",
                turn=ask.turn,
                body={
                    "approval": ask.n,
                    "verdict": "raise",
                    "text": "The budget was changed.",
                    "too_late": False,
                },
            )
        )
    if not changed:
        return None
    session.wake_at = session.wake_at or tx.now
    session.save()
    return Wake(key, session.host_workflow_id, session.host_epoch)


def next_number(session: LockedSession) -> int:
    """The number of the session's next question, about a budget or a tool call."""
    rows = _LAST.all(session.tx.connection, {"of_sid": session.sid})
    return max(row[0] or 0 for row in rows) + 1


def _ask(
    session: LockedSession, turn: int, account: Account, unit: Unit, limit: int, text: str
) -> None:
    n = next_number(session)
    _INSERT.run(
        session.tx.connection,
        {
            "sid": session.sid,
            "n": n,
            "turn": turn,
            "account": account.id,
            "unit": unit,
            "limit": limit,
            "state": "open",
            "text": text,
            "created_at": session.tx.now,
        },
    )
    session.tell(
        Draft(
            id=f"budget/{n}/asked",
            type="budget_asked",
            turn=turn,
            body={
                "approval": n,
                "budget": account.scope,
                "unit": unit,
                "limit": limit,
                "spent": account.spent[unit],
                "text": text,
            },
        )
    )


def _text(account: Account, session: str, unit: Unit, needs: int) -> str:
    text = f"{account.name(session)} {account.left(unit)}"
    left = (account.limit[unit] or 0) - account.spent[unit]
    if unit != "seconds" and 0 < left < needs:
        text += f", and the next call may take {shown(unit, needs)}"
    return f"{text}."
