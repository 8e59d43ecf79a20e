"""What a person is asked about a budget: once for each limit and turn, answered once."""

import sqlalchemy as sa

from everturn.budgets import Unit, shown
from everturn.events import Draft
from everturn_activities.store import Blocked, schema
from everturn_activities.store.accounts import Account
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.statement import Statement, insert

_q = schema.budget_asks
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_KNOWN = Statement(
    sa.select(_q).where(
        _q.c.sid == _sid,
        _q.c.turn == sa.bindparam("of_turn"),
        _q.c.account == sa.bindparam("of_account"),
        _q.c.unit == sa.bindparam("of_unit"),
        _q.c.limit == sa.bindparam("of_limit"),
    )
)
_LAST = Statement(sa.select(sa.func.max(_q.c.n)).where(_q.c.sid == _sid))
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
    if known is None:
        _ask(session, turn, account, unit, limit, text)
        return Blocked("asked", text)
    if known.state == "denied":
        return Blocked("over", f"{text} A person was asked and did not raise it.")
    # It was allowed up to this limit, and this limit is now reached.
    return Blocked("over" if known.state == "raised" and over else "asked", text)


def _ask(
    session: LockedSession, turn: int, account: Account, unit: Unit, limit: int, text: str
) -> None:
    n = (_LAST.scalar(session.tx.connection, {"of_sid": session.sid}) or 0) + 1
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
