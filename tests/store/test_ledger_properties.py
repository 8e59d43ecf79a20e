"""Calls of two sessions on one budget: begun, answered, failed, lost and late in any order."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from kept_books import Kept, KeptInMemory, kept_in_postgres
from postgres_servers import PostgresServer
from stories import SPEC, anew, count, delta, price

from everturn.budgets import UNITS, Budget
from everturn.errors import Fenced
from everturn.messages import AssistantMessage, Text
from everturn.session import ContextHead, SessionKey, StepHead
from everturn_activities.gateways import Usage
from everturn_activities.store import (
    Blocked,
    CallFailure,
    CallStarted,
    budgets,
    model_journal,
    schema,
)
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.metering import Meter, Terms

T = TypeVar("T")
NAMES = ("a", "b")
AGENT = SPEC.agent.model_copy(update={"tokens_max": 20})
TERMS = Terms(Meter(count, price), lambda connection: SPEC.model_copy(update={"agent": AGENT}))
LIMIT = Budget(tokens=150, steps=5, usd=0.14)
WHOLE = {unit: LIMIT.amount(unit) for unit in UNITS}
which = st.sampled_from(NAMES)


@dataclass
class Session:
    step: int = 0
    attempts: list[int] = field(default_factory=list)
    done: bool = True


class Ledger(RuleBasedStateMachine):
    def __init__(self, opens: Callable[[], Kept] = KeptInMemory) -> None:
        super().__init__()
        self.opens = opens

    @initialize()
    def create(self) -> None:
        self.kept = self.opens()
        self.now = 1000.0
        at = {"tenant": "t", "created_at": 0.0, "updated_at": 0.0, "agent": "x", "workspace": "/"}
        for name in NAMES:
            row = {**at, "id": name, "working_dir": "/", "turn": 1, "open_turn": 1}
            self.write(sa.insert(schema.sessions).values({**row, "host_epoch": 1}))
        self.sessions = {name: Session() for name in NAMES}
        self.do(lambda tx: budgets.put(tx, "t", "tenant", None, LIMIT))

    def teardown(self) -> None:
        if hasattr(self, "kept"):
            self.kept.close()

    def do(self, change: Any) -> Any:
        self.now += 0.01
        return self.kept.do(change, self.now)

    def write(self, statement: sa.Insert) -> None:
        self.kept.do(lambda tx: tx.connection.execute(statement), self.now)

    def context(self, name: str) -> ContextHead:
        step = self.sessions[name].step
        return ContextHead("t", name, 1, step, 1, 0, 7, "inline")

    @rule(name=which)
    def begins(self, name: str) -> None:
        """The next call, or the one under way anew, whose worker is then lost."""
        mine = self.sessions[name]
        if mine.done:
            mine.step, mine.attempts, mine.done = mine.step + 1, [], False
            row = {"sid": NAMES.index(name) + 1, "turn": 1, "step": mine.step, "context": "{}"}
            more = {"state": "prepared", "placement": "inline", "context_tokens": 7}
            self.write(sa.insert(schema.steps).values({**row, **more}))
        begun = self.do(
            lambda tx: model_journal.begin_model_call(tx, self.context(name), "m", anew(), TERMS)
        )
        if isinstance(begun, CallStarted):
            mine.attempts.append(begun.attempt)
        else:
            assert isinstance(begun, Blocked)

    @rule(name=which)
    def streams(self, name: str) -> None:
        mine = self.sessions[name]
        if not mine.attempts:
            return

        def change(tx: Tx) -> None:
            session = LockedSession(tx, SessionKey("t", name))
            try:
                model_journal.fence_model_call(session, 1, mine.step, mine.attempts[-1])
            except Fenced:
                return
            number = session.event_seq
            session.tell(delta("word", number, mine.attempts[-1], mine.step))
            session.save()

        self.do(change)

    @rule(name=which, late=st.integers(0, 2), written=st.integers(0, 20))
    def is_answered(self, name: str, late: int, written: int) -> None:
        """By the newest attempt or by one that was overtaken."""
        mine = self.sessions[name]
        if len(mine.attempts) <= late:
            return
        context, attempt = self.context(name), mine.attempts[-1 - late]
        usage = Usage(7, written)
        message = AssistantMessage(parts=(Text(text="x"),))
        reply = StepHead(mine.step, "end_turn")
        try:
            self.do(
                lambda tx: model_journal.complete_model_call(
                    *(tx, context, attempt, message, 1, "end_turn", usage),
                    *(price("m", usage), reply, []),
                )
            )
            mine.done = True
        except Fenced:
            assert late or mine.attempts

    @rule(name=which, late=st.integers(0, 2))
    def fails(self, name: str, late: int) -> None:
        mine = self.sessions[name]
        if len(mine.attempts) > late:
            failure = CallFailure("Overloaded.", 99)
            context, attempt = self.context(name), mine.attempts[-1 - late]
            self.do(lambda tx: model_journal.fail_model_call(tx, context, attempt, failure, TERMS))

    def rows(self, table: sa.Table) -> list[Any]:
        return self.kept.look(lambda connection: list(connection.execute(sa.select(table))))

    @invariant()
    def the_account_is_the_sum_of_its_entries_and_within_its_limit(self) -> None:
        if not hasattr(self, "kept"):
            return
        [account] = [row._asdict() for row in self.rows(schema.accounts)]
        entries = self.rows(schema.entries)
        spent = {
            "usd": sum(e.usd for e in entries if e.usd is not None),
            "tokens": sum(e.input_tokens + e.output_tokens for e in entries),
            "steps": sum(e.steps for e in entries),
        }
        waiting = [e._asdict() for e in entries if e.state == "open"]
        for unit, amount in spent.items():
            reserved = sum(entry[f"reserved_{unit}"] for entry in waiting)
            assert (account[f"spent_{unit}"], account[f"reserved_{unit}"]) == (amount, reserved)
            assert amount >= 0
            assert amount + reserved <= WHOLE[unit]
        assert len({entry["sid"] for entry in waiting}) == len(waiting)

    @invariant()
    def each_attempt_has_one_entry(self) -> None:
        if not hasattr(self, "kept"):
            return
        begun = sum(row.attempt for row in self.rows(schema.steps))
        assert len(self.rows(schema.entries)) == begun


TestLedger = Ledger.TestCase
TestLedger.settings = settings(
    max_examples=120,
    stateful_step_count=30,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_the_same_holds_on_postgres(postgres: PostgresServer) -> None:
    """Fewer of them: each takes half a second there. The rules are the same functions; what differs
    is the SQL, how rows are locked, and in which order they come."""
    on_postgres = settings(TestLedger.settings, max_examples=12)
    with kept_in_postgres(postgres) as opens:
        run_state_machine_as_test(lambda: Ledger(opens), settings=on_postgres)
