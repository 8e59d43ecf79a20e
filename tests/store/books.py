"""Sessions, calls and accounts as rows in memory, for what is plain functions over a connection.

The clock stands at noon of 2023-11-15 (UTC).
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import sqlalchemy as sa
from stories import ME

from everturn.budgets import UNITS, Amount, Budget
from everturn.session import SessionKey
from everturn.views import BudgetView
from everturn_activities.gateways import Usage
from everturn_activities.store import Blocked, accounts, budgets, ledger, schema
from everturn_activities.store.accounts import Account
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession

NOON = 1_700_049_600.0
DAY = 86_400.0
ONE = Amount(10**10, 10, 1)
"""What a call is reserved here: a cent, ten tokens, a step."""


class Books:
    """Sessions `a` and `b` of one tenant and `c` of another, in memory."""

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection
        self.now = NOON
        schema.metadata.create_all(connection)
        at = {"created_at": 0.0, "updated_at": 0.0, "agent": "x", "workspace": "/"}
        for name, tenant in (("a", "t"), ("b", "t"), ("c", "other")):
            row = {**at, "tenant": tenant, "id": name, "working_dir": "/", "turn": 1}
            self.insert(schema.sessions, **row, open_turn=1, host_epoch=1)

    def insert(self, table: sa.Table, **values: Any) -> None:
        self.connection.execute(sa.insert(table), values)

    def in_session(self, name: str, change: Callable[[LockedSession], Any]) -> Any:
        key = SessionKey("other" if name == "c" else "t", name)
        session = LockedSession(Tx(self.connection, self.now), key)
        result = change(session)
        session.save()
        return result

    def put(
        self, scope: Any, name: str | None = None, tenant: str = "t", **limits: Any
    ) -> BudgetView:
        return budgets.put(Tx(self.connection, self.now), tenant, scope, name, Budget(**limits))

    def account(self, scope: str, sid: int = 0, tenant: str = "t") -> Account:
        tx = Tx(self.connection, self.now)
        found = accounts.one(tx, tenant, sid, scope)  # type: ignore[arg-type]
        assert found is not None
        return found

    def row(self, step: int = 1, attempt: int = 1) -> Any:
        """An attempt that begins now, as the row of its step tells it."""
        at = {"turn": 1, "step": step, "attempt": attempt, "context_tokens": 7}
        return SimpleNamespace(**at, model="m", worker=ME.worker, started_at=self.now)

    def reserve(self, name: str, row: Any, wanted: Amount = ONE) -> Blocked | None:
        call = ledger.Call(1, row.step, row.attempt, "m", ME.worker, self.now, 7)
        return self.in_session(name, lambda s: ledger.reserve_call(s, call, wanted))

    def settle(self, name: str, row: Any, tokens: int = 5) -> None:
        usage = Usage(input_tokens=tokens)
        self.in_session(name, lambda s: ledger.settle(s, row, usage, tokens / 1000))


def fill(books: Books) -> None:
    """For each session calls of today, its turn 1, and of the day before, its turn 2.

    Session 1 took ones, 2 tens, 3 (of another tenant) hundreds; the day before counts double.
    In each turn of n one call of each kind is answered and one is not.
    """
    unused = {"spec_hash": "", "boundary": ""}
    for sid, some in ((1, 1), (2, 10), (3, 100)):
        for turn, at, n in ((1, NOON, some), (2, NOON - DAY, 2 * some)):
            where = {"sid": sid, "turn": turn}
            model, agent = {1: ("new", "x"), 2: ("old", "y")}[turn]
            books.insert(schema.turns, **where, agent=agent, **unused, started_at=at)
            tokens = {"input_tokens": n, "output_tokens": n, "cached_tokens": n}
            step = {**where, "context": "{}", "placement": "inline", "started_at": at}
            done = {**tokens, "model": model, "cost_usd": n / 4, "ended_at": at + n}
            books.insert(schema.steps, **step, **done, step=1, state="done")
            books.insert(schema.steps, **step, step=2, state="failed")
            entry = {**where, **tokens, "what": "model", "attempt": 1, "model": model}
            entry |= {"day": accounts.day_of(at), "created_at": at, "usd": n * 10**12}
            for number, state in enumerate(("settled", "refunded", "cut", "lost", "open")):
                held = {f"reserved_{unit}": n for unit in UNITS} if state == "open" else {}
                books.insert(
                    schema.entries, **entry, **held, milliseconds=n, step=number, state=state
                )
            call = {**where, "step": 1, "call_id": "c", "name": "x", "arguments": "{}"}
            call |= {"placement": "inline", "duration_seconds": float(n), "ended_at": at}
            books.insert(schema.tool_calls, **call, idx=0, state="done")
            books.insert(schema.tool_calls, **call, idx=1, state="started")
            side = {**where, "kind": "compaction", "plan": "{}", "model": "m", "started_at": at}
            side |= {"state": "done", "cost_usd": n / 2, "reasoning_tokens": n, "ended_at": at}
            books.insert(schema.side_calls, **side, ordinal=1, input_tokens=n, output_tokens=n)
            books.insert(schema.side_calls, **side, ordinal=2, input_tokens=n, output_tokens=0)
