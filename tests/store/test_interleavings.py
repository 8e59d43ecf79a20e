"""Senders, stops, runs, kills and zombies in any order: what must hold after each of their steps.

U4, B12: each accepted message is worked exactly once, or reported as rolled back.

Temporal is played by its promises: at most one open run of a workflow, a signal is never
lost, and a run cannot close over a signal that it has not seen.
"""

import functools
import itertools
import json
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
    precondition,
    rule,
    run_state_machine_as_test,
)
from kept_books import Kept, KeptInMemory, kept_in_postgres
from postgres_servers import PostgresServer
from stories import SPEC, anew, count, price

from everturn.agents import AgentSpec
from everturn.budgets import Budget
from everturn.errors import Fenced, StaleHost, UsageError
from everturn.messages import AssistantMessage, Text, ToolCall, user_text
from everturn.session import (
    BeginTurn,
    ContextHead,
    FinishTurn,
    PrepareStep,
    SessionKey,
    StepHead,
    ToolHead,
    TurnHead,
)
from everturn.views import AcceptedView
from everturn_activities.gateways import Usage
from everturn_activities.store import (
    Idle,
    Inbound,
    TakeoverNeeded,
    budgets,
    endings,
    inbox,
    model_journal,
    reads,
    schema,
    steps,
    turns,
)
from everturn_activities.store.database import Tx
from everturn_activities.store.metering import Meter, Terms

KEY = SessionKey("default", "s")
TERMS = Terms(Meter(count, price), lambda connection: SPEC)


@functools.cache
def spec_of(agent: str) -> AgentSpec:
    return SPEC.model_copy(update={"agent": SPEC.agent.model_copy(update={"name": agent})})


T = TypeVar("T")


@dataclass
class Run:
    """One run of the workflow, and how far it came."""

    id: str
    previous: str | None
    stage: str = "begin"  # begin, step, reply, ended, continuing, completing
    head: TurnHead | None = None
    context: ContextHead | None = None
    signaled: bool = False
    late: list[tuple[ContextHead, int]] = field(default_factory=list)


class Session(RuleBasedStateMachine):
    def __init__(self, opens: Callable[[], Kept] = KeptInMemory) -> None:
        super().__init__()
        self.opens = opens

    @initialize()
    def create(self) -> None:
        self.kept = self.opens()
        self.now = 1000.0
        row = {
            "tenant": KEY.tenant,
            "id": KEY.session,
            "created_at": 0.0,
            "updated_at": 0.0,
            "agent": "default",
            "workspace": "/w",
            "working_dir": "/w",
        }
        self.kept.do(lambda tx: tx.connection.execute(sa.insert(schema.sessions), row), self.now)
        self.numbers = itertools.count(1)
        self.sent: list[Inbound] = []
        self.open: Run | None = None
        self.zombies: list[Run] = []
        self.calls_paid: dict[tuple[int, int], int] = {}
        self.read: dict[sa.Table, list[Any]] = {}
        self.do(lambda tx: budgets.put(tx, KEY.tenant, "tenant", None, Budget(usd=1e6)))
        self.to_roll_back: set[int] = set()
        self.outcomes: dict[int, str] = {}

    def teardown(self) -> None:
        if hasattr(self, "kept"):
            self.drain()
            self.kept.close()

    def do(self, change: Callable[[Tx], T]) -> T:
        self.now += 0.01
        self.read.clear()
        return self.kept.do(change, self.now)

    # Senders.

    @rule(
        mode=st.sampled_from(["queue", "steer", "interrupt", "rollback"]),
        agent=st.sampled_from([None, None, "default", "other"]),
        crashes=st.booleans(),
    )
    def send(self, mode: Any, agent: str | None, crashes: bool) -> None:
        self.say(mode, agent, crashes)

    @precondition(lambda self: self.open and self.open.stage in ("reply", "ended"))
    @rule(mode=st.sampled_from(["interrupt", "rollback"]))
    def stop_at_the_last_moment(self, mode: Any) -> None:
        self.say(mode, None, crashes=False)

    def say(self, mode: Any, agent: str | None, crashes: bool) -> None:
        name = f"m{next(self.numbers)}"
        self.sent.append(Inbound(name, "message", user_text(name), mode, agent))
        view = self.accept(self.sent[-1], crashes)
        stops = mode in inbox.STOPPING and self.session.open_turn is not None
        assert view.stops == (self.session.open_turn if stops else None)
        if mode == "rollback" and stops:
            self.to_roll_back.add(view.stops)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        self.accept(data.draw(st.sampled_from(self.sent)), crashes=False)

    @rule(ahead=st.sampled_from([None, -1, 0, 1]), crashes=st.booleans())
    def cancel(self, ahead: int | None, crashes: bool) -> None:
        target = None if ahead is None else max(self.session.turn + ahead, 0)
        try:
            self.accept(Inbound(f"c{next(self.numbers)}", "cancel", target=target), crashes)
        except UsageError:
            # Nothing waits that could become that turn.
            waits = [row for row in self.rows(schema.inbox) if row.state == "waiting"]
            assert target == self.session.turn + 1
            assert not any(row.kind == "message" for row in waits)

    def accept(self, inbound: Inbound, crashes: bool) -> AcceptedView:
        accepted = self.do(lambda tx: inbox.accept(tx, KEY, inbound, 1))
        if accepted.wake is not None and not crashes:
            self.signal_with_start()
        return accepted.view

    def signal_with_start(self) -> None:
        if self.open is None:
            self.open = Run(f"run-{next(self.numbers)}", None)
        else:
            self.open.signaled = True

    # The open run, one transaction at a time; each may run again.

    @precondition(lambda self: self.open)
    @rule(transactions=st.integers(1, 8))
    def run_goes_on(self, transactions: int) -> None:
        """Several at a time: one by one, few turns would come to their end."""
        for _ in range(transactions):
            if self.open is not None:
                self.advance(self.open)

    @precondition(lambda self: self.open and self.open.stage == "reply")
    @rule()
    def prepare_runs_again(self) -> None:
        run = self.open
        again = self.prepare(run)
        assert (again.upto, again.tokens) == (run.context.upto, run.context.tokens)

    @precondition(lambda self: self.open and self.open.stage == "step")
    @rule()
    def begin_runs_again(self) -> None:
        again = self.begin(self.open)
        if self.session.host_run_id == self.open.id and isinstance(again, TurnHead):
            assert again.turn == self.open.head.turn

    @precondition(lambda self: self.open and self.open.stage == "reply")
    @rule()
    def worker_stalls_in_a_model_call(self) -> None:
        """Its attempt begins, and may end long after another one began."""
        run = self.open
        try:
            begun = self.begin_call(run)
        except StaleHost:
            self.close(run)
            return
        if not isinstance(begun, StepHead):
            run.late.append((run.context, begun.attempt))

    @precondition(lambda self: self.open and self.open.head)
    @rule()
    def run_checks_its_inbox(self) -> None:
        turn = self.open.head.turn
        self.do(lambda tx: inbox.check(tx, KEY, turn, 0))
        self.open.signaled = False

    @precondition(lambda self: self.open)
    @rule()
    def run_is_lost(self) -> None:
        """Terminated, or gone with its database; its worker may still hold a piece of it."""
        self.close(self.open)

    def close(self, run: Run) -> None:
        self.zombies.append(run)
        if self.open is run:
            self.open = None

    # What workers of lost runs still do.

    @precondition(lambda self: self.zombies)
    @rule(data=st.data(), what=st.sampled_from(["begin", "check", "prepare", "finish", "late"]))
    def zombie_writes(self, data: st.DataObject, what: str) -> None:
        run = data.draw(st.sampled_from(self.zombies))
        try:
            if what == "begin":
                self.begin(run)
            elif run.head is None:
                return
            elif what == "check":
                self.do(lambda tx: inbox.check(tx, KEY, run.head.turn, 0))
            elif what == "prepare":
                self.prepare(run)
            elif what == "finish":
                self.finish(run)
            elif run.late:
                context, attempt = run.late.pop()
                self.reply(context, attempt, False)
        except (StaleHost, Fenced):
            pass

    # The reconciler.

    @rule()
    def reconciler_looks(self) -> None:
        self.now += 20.0
        row = self.session
        asleep = row.wake_at is not None and row.wake_at < self.now - 2
        hosted = self.open.id if self.open is not None else None
        lost = row.open_turn is not None and row.host_run_id != hosted
        if asleep or lost:
            self.signal_with_start()

    # A run's transactions.

    def begin(self, run: Run) -> Any:
        request = BeginTurn(*KEY, KEY.workflow_id, run.id, run.previous)
        named = self.kept.look(lambda connection: reads.assignment(connection, KEY))
        spec = spec_of(named.agent) if named is not None else SPEC
        begun = self.do(lambda tx: turns.begin(tx, request, spec, spec.hash, None))
        if isinstance(begun, TakeoverNeeded) and run is self.open:
            # Temporal says that the host is closed: this run is the open one.
            begun = self.do(lambda tx: turns.begin(tx, request, spec, spec.hash, begun))
        return begun

    def prepare(self, run: Run) -> ContextHead:
        head = run.head
        request = PrepareStep(*KEY, head.turn, head.step + 1, head.epoch)
        return self.do(lambda tx: steps.prepare(tx, request, "inline", "m"))

    def begin_call(self, run: Run) -> Any:
        return self.do(
            lambda tx: model_journal.begin_model_call(tx, run.context, "m", anew(), TERMS)
        )

    def reply(self, context: ContextHead, attempt: int, more: bool) -> StepHead:
        asked = (ToolCall(id="c", name="t"),) if more else ()
        message = AssistantMessage(parts=(Text(text="reply"), *asked))
        stop = "tool_use" if more else "end_turn"
        head = StepHead(context.step, stop, [ToolHead(0, "t", "inline", 1.0)] * len(asked))
        made = self.do(
            lambda tx: model_journal.complete_model_call(
                tx, context, attempt, message, 1, stop, Usage(3, 2), 0.005, head, []
            )
        )
        place = (context.turn, context.step)
        self.calls_paid[place] = self.calls_paid.get(place, 0) + 1
        return made

    def finish(self, run: Run) -> Any:
        head = run.head
        outcome = "cancelled" if head.cancelled else "failed" if head.failure else "completed"
        request = FinishTurn(
            *KEY, KEY.workflow_id, run.id, head.turn, head.epoch, head.step, outcome
        )
        return self.do(lambda tx: endings.finish(tx, request, TERMS).finished)

    def advance(self, run: Run) -> None:
        try:
            getattr(self, f"_{run.stage}")(run)
        except StaleHost:
            self.close(run)

    def _begin(self, run: Run) -> None:
        begun = self.begin(run)
        if isinstance(begun, Idle | TakeoverNeeded):
            run.stage = "idle"
            return
        run.head, run.stage = begun, "step"

    def _idle(self, run: Run) -> None:
        self._close_unless_signaled(run, "begin")

    def _step(self, run: Run) -> None:
        if run.head.cancelled or run.head.failure:
            run.stage = "ended"
            return
        run.context = self.prepare(run)
        if run.context.cancelled:
            run.head, run.stage = run.head.cancelling(), "ended"
        else:
            run.stage = "reply"

    def _reply(self, run: Run) -> None:
        begun = self.begin_call(run)
        if not isinstance(begun, StepHead):
            begun = self.reply(run.context, begun.attempt, run.context.step < 3)
        run.head = run.head.after(begun)
        run.stage = "step" if begun.calls else "ended"

    def _ended(self, run: Run) -> None:
        run.stage = "continuing" if self.finish(run).more else "completing"

    def _completing(self, run: Run) -> None:
        self._close_unless_signaled(run, "ended")

    def _continuing(self, run: Run) -> None:
        if self._close_unless_signaled(run, "ended"):
            self.open = Run(f"run-{next(self.numbers)}", run.id)

    def _close_unless_signaled(self, run: Run, again: str) -> bool:
        """A signal that meets the closing task makes the last activity run again."""
        if run.signaled:
            run.signaled, run.stage = False, again
            return False
        self.close(run)
        return True

    # What must hold.

    @property
    def session(self) -> Any:
        return self.rows(schema.sessions)[0]

    def rows(self, table: sa.Table) -> list[Any]:
        """All of `table`, read once after each transaction."""
        if table not in self.read:
            query = sa.select(table).order_by(*table.primary_key)
            self.read[table] = self.kept.look(lambda connection: list(connection.execute(query)))
        return self.read[table]

    @invariant()
    def a_message_is_in_the_transcript_exactly_when_it_is_admitted(self) -> None:
        texts = [text for _, text in self.users()]
        assert len(texts) == len(set(texts))
        inbox_rows = self.rows(schema.inbox)
        left_out = {text for position, text in self.users() if self.is_cut(position)}
        assert {r.sender_id for r in inbox_rows if r.state == "rolled_back"} == left_out
        admitted = {r.sender_id for r in inbox_rows if r.state == "admitted"}
        assert admitted == set(texts) - left_out

    @invariant()
    def what_is_rolled_back_is_told_once_and_with_the_whole_of_its_turn(self) -> None:
        told = [
            json.loads(e.body)["message_id"]
            for e in self.rows(schema.events)
            if e.type == "message_rolled_back"
        ]
        rows = {r.sender_id: r for r in self.rows(schema.inbox)}
        assert sorted(told) == sorted(n for n, r in rows.items() if r.state == "rolled_back")
        fallen = {t.turn for t in self.rows(schema.turns) if t.outcome == "rolled_back"}
        assert {row.turn for row in rows.values() if row.state == "rolled_back"} == fallen
        # Held or to be held: a rollback that was accepted in time is never lost.
        assert self.to_roll_back - fallen <= {self.session.open_turn}
        for message in self.rows(schema.messages):
            assert self.is_cut(message.position) == (message.turn in fallen)

    @invariant()
    def what_is_counted_is_what_is_sent(self) -> None:
        rows = self.rows(schema.messages)
        tokens = sum(row.tokens for row in rows if not self.is_cut(row.position))
        assert self.session.message_tokens == tokens

    @invariant()
    def a_turn_has_one_outcome_which_is_told_once(self) -> None:
        told = [e for e in self.rows(schema.events) if e.type == "turn_finished"]
        outcomes = {t.turn: t.outcome for t in self.rows(schema.turns) if t.outcome is not None}
        assert {e.turn: json.loads(e.body)["outcome"] for e in told} == outcomes
        assert len(told) == len(outcomes)
        assert outcomes.items() >= self.outcomes.items()
        self.outcomes = outcomes

    @invariant()
    def messages_alike_are_admitted_in_order_of_acceptance(self) -> None:
        known = {r.sender_id: r for r in self.rows(schema.inbox)}
        groups: dict[tuple[str, str | None], list[int]] = {}
        for _, text in self.users():
            row = known[text]
            groups.setdefault((row.mode, row.agent), []).append(row.position)
        assert all(places == sorted(places) for places in groups.values())

    @invariant()
    def a_message_is_worked_by_the_agent_that_it_names(self) -> None:
        workers = {t.turn: t.agent for t in self.rows(schema.turns)}
        for row in self.rows(schema.inbox):
            if row.kind == "message" and row.turn is not None and row.agent is not None:
                assert workers[row.turn] == row.agent

    def is_cut(self, position: int) -> bool:
        return any(cut.first <= position <= cut.last for cut in self.rows(schema.cuts))

    @invariant()
    def at_most_one_turn_is_open_and_the_session_names_it(self) -> None:
        rows = self.rows(schema.turns)
        open_turns = [row.turn for row in rows if row.outcome is None]
        assert open_turns == ([] if self.session.open_turn is None else [self.session.open_turn])
        assert [row.turn for row in rows] == list(range(1, self.session.turn + 1))

    @invariant()
    def numbers_have_no_gaps(self) -> None:
        row = self.session
        assert [e.seq for e in self.rows(schema.events)] == list(range(1, row.event_seq + 1))
        positions = [m.position for m in self.rows(schema.messages)]
        assert positions == list(range(1, row.message_pos + 1))

    @invariant()
    def no_accepted_message_is_forgotten(self) -> None:
        row = self.session
        waits = [r for r in self.rows(schema.inbox) if (r.state, r.kind) == ("waiting", "message")]
        if waits:
            assert row.wake_at is not None or row.open_turn is not None, row

    @invariant()
    def every_call_of_a_closed_step_is_answered(self) -> None:
        rows = self.rows(schema.messages)
        for asked, following in itertools.pairwise(rows):
            if asked.role == "assistant" and "tool_call" in asked.body:
                assert following.role == "tool"

    @invariant()
    def the_ledger_is_the_sum_of_its_entries(self) -> None:
        [account] = self.rows(schema.accounts)
        entries = self.rows(schema.entries)
        assert account.spent_tokens == sum(e.input_tokens + e.output_tokens for e in entries)
        assert account.spent_usd == sum(e.usd or 0 for e in entries)
        waiting = [e for e in entries if e.state == "open"]
        assert len(waiting) <= 1
        assert account.reserved_tokens == sum(e.reserved_tokens for e in waiting)
        assert account.reserved_usd == sum(e.reserved_usd for e in waiting)
        settled = [(e.turn, e.step) for e in entries if e.state == "settled"]
        steps = [row for row in self.rows(schema.steps) if row.state == "done"]
        assert sorted(settled) == sorted((row.turn, row.step) for row in steps)
        assert account.spent_steps == len(steps)

    @invariant()
    def a_model_call_is_paid_for_once(self) -> None:
        assert all(times == 1 for times in self.calls_paid.values())

    def users(self) -> list[tuple[int, str]]:
        return [
            (row.position, row.body.split('"text":"')[1].split('"')[0])
            for row in self.rows(schema.messages)
            if row.role == "user"
        ]

    def drain(self) -> None:
        """Left alone, the session comes to rest with every message worked."""
        for _ in range(400):
            if self.open is None:
                row = self.session
                if row.wake_at is None and row.open_turn is None:
                    break
                self.reconciler_looks()
            else:
                self.advance(self.open)
        row = self.session
        assert (row.open_turn, row.host_run_id) == (None, None)
        assert {m.id for m in self.sent} == {text for _, text in self.users()}
        states = {r.sender_id: r.state for r in self.rows(schema.inbox) if r.kind == "message"}
        assert set(states.values()) <= {"admitted", "rolled_back"}
        assert all(turn.outcome is not None for turn in self.rows(schema.turns))
        # What held after each step holds at rest too.
        self.a_message_is_in_the_transcript_exactly_when_it_is_admitted()
        self.what_is_rolled_back_is_told_once_and_with_the_whole_of_its_turn()
        self.what_is_counted_is_what_is_sent()
        self.a_turn_has_one_outcome_which_is_told_once()
        self.a_message_is_worked_by_the_agent_that_it_names()


TestSession = Session.TestCase
TestSession.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_the_same_holds_on_postgres(postgres: PostgresServer) -> None:
    """Fewer of them: each takes half a second there. The rules are the same functions; what differs
    is the SQL, how rows are locked, and in which order they come."""
    on_postgres = settings(TestSession.settings, max_examples=12)
    with kept_in_postgres(postgres) as opens:
        run_state_machine_as_test(lambda: Session(opens), settings=on_postgres)
