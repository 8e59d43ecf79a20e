"""The ledger of embeddings: calls that belong to a tenant and to no session.

As for replies: reserved before it begins, and settled or refunded after it; the budgets of
the tenant and of its day hold it back. What a call made is kept by the index of knowledge,
by content, so that it is not made again.
"""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from everturn.budgets import UNITS, Amount, Unit, whole
from everturn_activities.store import accounts, schema
from everturn_activities.store.accounts import Account, day_of
from everturn_activities.store.database import Database, Tx
from everturn_activities.store.statement import Statement

LOST_SECONDS = 600.0
"""A call that is open for so long has lost its process; perhaps it was answered."""

_COUNTED: tuple[Unit, ...] = ("usd", "tokens")
"""Nobody waits for the seconds of these calls, and none of them is a step."""

_e = schema.embeddings
_ONE = Statement(
    sa.select(_e).where(_e.c.id == sa.bindparam("of_id"), _e.c.state == "open").with_for_update()
)
_OWN = Statement(
    sa.select(_e.c.id).where(
        _e.c.tenant == sa.bindparam("of_tenant"),
        _e.c.state == "open",
        _e.c.nonce == sa.bindparam("of_nonce"),
    )
)
_LOST = Statement(
    sa.select(_e)
    .where(
        _e.c.tenant == sa.bindparam("of_tenant"),
        _e.c.state == "open",
        _e.c.started_at < sa.bindparam("before"),
    )
    .order_by(_e.c.id)
    .with_for_update()
)
_CLOSE = Statement(
    sa.update(_e)
    .where(_e.c.id == sa.bindparam("of_id"))
    .values({name: sa.bindparam(name) for name in ("state", "ended_at", "input_tokens", "usd")})
)


@dataclass(frozen=True)
class Embedding:
    """A call that wants to begin; `tokens` and `usd` are what it will take by our own count,
    `usd` None where the model has no price."""

    tenant: str
    workspace: str
    model: str
    texts: int
    tokens: int
    usd: float | None


@dataclass(frozen=True)
class Refused:
    """A budget is in the way, in a sentence."""

    reason: str


class SqlEmbeddings:
    """Each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, call: Embedding) -> int | Refused:
        """Reserve what the call will take; by the number it is settled or refunded."""
        return await self._database.write(lambda tx: _begin(tx, call))

    async def settle(self, number: int, tokens: int | None, usd: float | None) -> None:
        """Spend what the answer says that it took; our own count where it says nothing."""
        cost = None if usd is None else whole("usd", usd)
        await self._database.write(lambda tx: _close(tx, number, "done", tokens, cost))

    async def refund(self, number: int) -> None:
        """Spend nothing for a call that was answered nothing."""
        await self._database.write(lambda tx: _close(tx, number, "refunded", 0, 0))


def _begin(tx: Tx, call: Embedding) -> int | Refused:
    # The first run's COMMIT may still be on its way: what holds these locks is seen behind them.
    accounts.of_session(tx, call.tenant, 0)
    own: int | None = _OWN.scalar(tx.connection, {"of_tenant": call.tenant, "of_nonce": tx.nonce})
    if own is not None:
        return own  # The answer to the COMMIT was lost.
    for row in _LOST.all(
        tx.connection, {"of_tenant": call.tenant, "before": tx.now - LOST_SECONDS}
    ):
        _close_row(tx, row, "lost", row.reserved_tokens, row.reserved_usd)
    usd = None if call.usd is None else whole("usd", call.usd)
    wanted = Amount(usd, call.tokens)
    mine = accounts.of_session(tx, call.tenant, 0)
    for account in mine:
        if (reason := _in_the_way(account, call, wanted)) is not None:
            return Refused(reason)
    today = day_of(tx.now)
    for account in mine:
        if account.covers(today):
            for unit in _COUNTED:
                account.reserved[unit] += wanted.of(unit)
            accounts.save(tx, account)
    made = tx.connection.execute(
        sa.insert(_e),
        {
            "tenant": call.tenant,
            "workspace": call.workspace,
            "model": call.model,
            "texts": call.texts,
            "state": "open",
            "nonce": tx.nonce,
            "day": today,
            "started_at": tx.now,
            "reserved_tokens": call.tokens,
            "reserved_usd": usd,
        },
    )
    (number,) = made.inserted_primary_key or (None,)
    assert isinstance(number, int)
    return number


def _in_the_way(account: Account, call: Embedding, wanted: Amount) -> str | None:
    """It is no reason to ask a person: words are searched meanwhile."""
    name = account.name("")
    for unit in _COUNTED:
        if account.limit[unit] is None:
            continue
        if unit == "usd" and wanted.usd is None:
            return (
                f"{name} is in dollars, and no price of {call.model} is known; choose an"
                " embedding_model with a price, or set the budget in tokens."
            )
        if account.is_taken(unit, wanted) or account.is_marked(unit):
            return (
                f"{name} {account.left(unit)}, which leaves too little for the vectors of"
                f" {call.texts} texts; raise it by 'everturn budget', or wait."
            )
    return None


def _close(tx: Tx, number: int, state: str, tokens: int | None, usd: int | None) -> None:
    row = _ONE.first(tx.connection, {"of_id": number})
    if row is None:
        return  # It was taken for lost.
    if tokens is None:
        tokens, usd = row.reserved_tokens, row.reserved_usd
    _close_row(tx, row, state, tokens, usd)


def _close_row(tx: Tx, row: Any, state: str, tokens: int, usd: int | None) -> None:
    closing = {"state": state, "ended_at": tx.now, "input_tokens": tokens, "usd": usd}
    _CLOSE.run(tx.connection, {"of_id": row.id, **closing})
    spent, reserved = Amount(usd, tokens), Amount(row.reserved_usd, row.reserved_tokens)
    for account in accounts.of_session(tx, row.tenant, 0):
        if not account.covers(row.day):
            continue
        for unit in UNITS:
            # An account that was opened meanwhile has counted what was reserved.
            account.reserved[unit] -= reserved.of(unit)
            account.spent[unit] += spent.of(unit)
        accounts.save(tx, account)
