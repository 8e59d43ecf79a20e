"""The store on a SQL database: each method one transaction or one read."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import sqlalchemy as sa

from everturn.agents import AgentSpec
from everturn.budgets import Budget, Scope
from everturn.context.conversation import AnyMessage, Conversation
from everturn.context.cuts import Cut, Extent
from everturn.context.window import Frame
from everturn.events import Draft
from everturn.executors import Delegation
from everturn.hooks import Hook
from everturn.mcp import Server
from everturn.messages import (
    AssistantMessage,
    SkillInvocation,
    ToolMessage,
    ToolResult,
)
from everturn.session import (
    Approved,
    AwaitHome,
    BeginTurn,
    CheckInbox,
    Compact,
    Compacted,
    ContextHead,
    Delegated,
    EndHooks,
    FinishTurn,
    Gated,
    GatherTools,
    InboxHead,
    Placement,
    PrepareStep,
    RunTools,
    SessionKey,
    StepHead,
    Stop,
    TurnHead,
)
from everturn.views import (
    ApprovalView,
    BudgetView,
    ContextView,
    MessageView,
    SessionView,
    TurnView,
    UsageBy,
    UsageRow,
)
from everturn_activities import prices
from everturn_activities.blobs import Blobs
from everturn_activities.bounded import Bounded
from everturn_activities.gateways import Usage
from everturn_activities.store import (
    EVERY,
    Accepted,
    AfterFailure,
    Answer,
    AskPerson,
    Assignment,
    Blocked,
    Caller,
    CallFailure,
    CallStarted,
    CompactionStarted,
    CompletedTool,
    FollowUp,
    Handed,
    HookEnd,
    HookInterrupted,
    HookStarted,
    Idle,
    Inbound,
    Question,
    SessionFolder,
    SessionSettings,
    Snapshot,
    SpecNeeded,
    StepLayers,
    StepStanding,
    StoredCall,
    TakeoverNeeded,
    ToolInterrupted,
    ToolStarted,
    UnfinishedCall,
    Wake,
    accounts,
    approvals,
    asks,
    budgets,
    compactions,
    contexts,
    cuts,
    endings,
    executors,
    folders,
    hook_runs,
    imports,
    inbox,
    large_texts,
    model_journal,
    new_sessions,
    questions,
    reads,
    record_homes,
    schema,
    served,
    side_journal,
    snapshots,
    specs,
    steps,
    tool_journal,
    turns,
    usage,
)
from everturn_activities.store.database import Database, Tx
from everturn_activities.store.histories import Histories
from everturn_activities.store.large_texts import LargeTexts
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.metering import Meter, Price, Terms
from everturn_activities.store.sql_forks import SqlForks

SPECS_KEPT = 1_000
PARSED_KEPT = 200


class SqlStore:
    """`Store` on `database`. `count_tokens` measures a message once, when it is written;
    `price` says what calls cost that budgets reserve, and those that were cut off. Texts that are
    too large for rows go to `blobs`, where there are any."""

    def __init__(
        self,
        database: Database,
        count_tokens: Callable[[AnyMessage], int],
        price: Price = prices.cost_usd,
        blobs: Blobs | None = None,
    ) -> None:
        self._database = database
        self._count = count_tokens
        self._meter = Meter(count_tokens, price)
        self._large = LargeTexts(blobs) if blobs is not None else None
        self.forks = SqlForks(database, count_tokens)
        self._histories = Histories()
        self._specs: OrderedDict[tuple[SessionKey, int], AgentSpec] = OrderedDict()
        self._parsed: Bounded[str, AgentSpec] = Bounded(PARSED_KEPT, 0)

    async def close(self) -> None:
        await self._database.close()

    # Sessions and their inboxes.

    async def create_session(self, key: SessionKey, settings: SessionSettings) -> SessionView:
        """Create the session; one that exists is returned as it is."""

        def change(tx: Tx) -> SessionView:
            new_sessions.create(tx, key, settings)
            return reads.session(tx.connection, key)

        return await self._database.write(change)

    async def session(self, key: SessionKey) -> SessionView:
        return await self._database.read(lambda connection: reads.session(connection, key))

    async def sessions(
        self, tenant: str, limit: int, before: str | None, parent: str | None = None
    ) -> list[SessionView]:
        return await self._database.read(
            lambda connection: reads.sessions(connection, tenant, limit, before, parent)
        )

    async def turns(self, key: SessionKey, first: int = 1) -> list[TurnView]:
        return await self._database.read(lambda connection: reads.turns(connection, key, first))

    async def messages(self, key: SessionKey, after: int, limit: int) -> list[MessageView]:
        return await self._database.read(
            lambda connection: reads.messages(connection, key, after, limit)
        )

    async def import_messages(self, key: SessionKey, messages: Sequence[AnyMessage]) -> int:
        counted = [(message, self._count(message)) for message in messages]
        return await self._database.write(lambda tx: imports.take_over(tx, key, counted))

    async def invocations(self, key: SessionKey, turn: int) -> list[SkillInvocation]:
        return await self._database.read(
            lambda connection: reads.invocations(connection, key, turn)
        )

    async def accept(self, key: SessionKey, inbound: Inbound) -> Accepted:
        tokens = self._count(inbound.message) if inbound.message is not None else 0
        return await self._database.write(lambda tx: inbox.accept(tx, key, inbound, tokens))

    async def clear_host(self, wake: Wake) -> None:
        """Forget a host that turned out not to run, unless another has taken over since."""

        def change(tx: Tx) -> None:
            session = LockedSession(tx, wake.key)
            if session.host_epoch == wake.host_epoch:
                session.host_workflow_id = session.host_run_id = None
                session.host_epoch += 1
                session.save()

        await self._database.write(change)

    async def left_asleep(self, older_than_seconds: float, limit: int) -> list[Wake]:
        """Sessions to wake again; each is put off, so that a broken one is not hammered."""
        before = self._database.now() - older_than_seconds
        found = await self._database.read(lambda seen: reads.left_asleep(seen, before, limit))

        def put_off(tx: Tx, wake: Wake) -> bool:
            session = LockedSession(tx, wake.key)
            if session.wake_at is None or session.wake_at >= tx.now - older_than_seconds:
                return False  # It has looked, or another process has put it off.
            session.wake_at = tx.now
            session.save()
            return True

        # One at a time: no transaction locks two sessions but one and those above it.
        wakes = []
        for wake in found:
            if await self._database.write(lambda tx, wake=wake: put_off(tx, wake)):  # type: ignore[misc]
                wakes.append(wake)
        return wakes

    async def open_hosts(
        self, idle_seconds: float, after: SessionKey | None, limit: int
    ) -> list[tuple[Wake, str]]:
        before = self._database.now() - idle_seconds
        return await self._database.read(
            lambda connection: reads.open_hosts(connection, before, after, limit)
        )

    # A turn.

    async def assignment(self, key: SessionKey) -> Assignment | None:
        return await self._database.read(lambda connection: reads.assignment(connection, key))

    async def begin_turn(
        self, request: BeginTurn, spec: AgentSpec | None, closed: TakeoverNeeded | None = None
    ) -> TurnHead | TakeoverNeeded | Idle | SpecNeeded:
        spec_hash = spec.hash if spec is not None else ""
        return await self._database.write(
            lambda tx: turns.begin(tx, request, spec, spec_hash, closed)
        )

    async def check_inbox(self, request: CheckInbox) -> InboxHead:
        key = SessionKey(request.tenant, request.session)
        return await self._database.write(
            lambda tx: inbox.check(tx, key, request.turn, request.cursor)
        )

    async def prepare_step(
        self,
        request: PrepareStep,
        placement: Placement,
        model: str = "",
        frame: Frame | None = None,
        layers: StepLayers | None = None,
    ) -> ContextHead:
        return await self._database.write(
            lambda tx: steps.prepare(tx, request, placement, model, frame, layers)
        )

    async def begin_inline_step(
        self,
        request: PrepareStep,
        model: str,
        caller: Caller,
        frame: Frame | None = None,
        layers: StepLayers | None = None,
    ) -> tuple[ContextHead, CallStarted | StepHead | Blocked | None]:
        key = SessionKey(request.tenant, request.session)
        known = self._histories.known(key)
        terms = self._terms(key, request.turn)

        def change(
            tx: Tx,
        ) -> tuple[ContextHead, CallStarted | StepHead | Blocked | None, int, Sequence[Any]]:
            context = steps.prepare(tx, request, "inline", model, frame, layers)
            after = known.upto(context.extent)
            if not context.ready or context.placement == "queued":
                return context, None, after, ()
            begun = model_journal.begin_model_call(tx, context, model, caller, terms)
            # What the call will read, while we are here: a read of its own costs as much again.
            sid = reads.sid_of(tx.connection, key)
            return context, begun, after, cuts.sent(tx.connection, sid, context.extent, after)

        context, begun, after, rows = await self._database.write(change)
        if begun is not None:
            self._histories.add(key, context.extent, after, rows)
        return context, begun

    async def prepared(self, key: SessionKey, turn: int, step: int) -> ContextHead | None:
        return await self._database.read(
            lambda connection: steps.prepared(connection, key, turn, step)
        )

    async def snapshot(self, digest: str) -> Snapshot:
        return await self._database.read(lambda connection: snapshots.snapshot(connection, digest))

    async def context(
        self, key: SessionKey, turn: int | None = None, step: int | None = None
    ) -> ContextView:
        return await self._database.read(
            lambda connection: contexts.context(connection, key, turn, step)
        )

    async def session_layers(self, key: SessionKey, agent: str) -> dict[str, str]:
        return await self._database.read(
            lambda connection: snapshots.of_session(connection, key, agent)
        )

    async def finish_turn(self, request: FinishTurn) -> FollowUp:
        key = SessionKey(request.tenant, request.session)
        terms = self._terms(key, request.turn)
        finished = await self._database.write(lambda tx: endings.finish(tx, request, terms))
        self._specs.pop((key, request.turn), None)
        return finished

    async def hand_over(
        self,
        request: RunTools,
        width: int,
        tasks: Sequence[Delegation],
        refused: Mapping[int, str],
    ) -> list[Handed]:
        return await self._database.write(
            lambda tx: executors.hand_over(tx, request, width, tasks, refused)
        )

    async def has_executor(self, key: SessionKey, name: str) -> bool:
        return await self._database.read(
            lambda found: executors.is_executor(found, reads.sid_of(found, key), name)
        )

    async def check_executors(self, request: RunTools) -> Delegated:
        key = SessionKey(request.tenant, request.session)
        return await self._database.read(
            lambda found: executors.check(
                found, reads.sid_of(found, key), request.turn, request.step
            )
        )

    async def open_executor(self, handed: Handed) -> Wake | None:
        return await self._database.write(lambda tx: executors.open_child(tx, handed, self._meter))

    async def undelivered(self, older_than_seconds: float) -> list[Handed]:
        before = self._database.now() - older_than_seconds
        return await self._database.read(lambda found: executors.undelivered(found, before))

    async def spec(self, key: SessionKey, turn: int) -> AgentSpec:
        known = self._specs.get((key, turn))
        if known is None:
            known = await self._database.read(lambda found: self._read_spec(found, key, turn))
            if known.is_pending:
                # Another takes its place once its servers have told what they offer.
                return known
            self._specs[(key, turn)] = known
            # Another process may finish the turn, and nobody tells us of it.
            if len(self._specs) > SPECS_KEPT:
                self._specs.popitem(last=False)
        self._specs.move_to_end((key, turn))
        return known

    def _read_spec(self, connection: sa.Connection, key: SessionKey, turn: int) -> AgentSpec:
        """From memory where some other turn ran under it: reading one costs milliseconds."""
        digest = specs.hash_of(connection, key, turn)
        known = self._parsed.get(digest)
        if known is None:
            known = specs.spec_by(connection, digest)
            self._parsed.put(digest, known)
        return known

    async def history(self, key: SessionKey, extent: Extent) -> Conversation:
        known = self._histories.known(key).upto(extent)
        while True:
            rows: Sequence[Any] = ()
            if known < extent.upto:
                rows = await self._sent(key, extent, known)
            history = self._histories.add(key, extent, known, rows)
            if history is not None:
                return history
            known = 0

    async def _sent(self, key: SessionKey, extent: Extent, after: int) -> Sequence[Any]:
        def look(connection: sa.Connection) -> Sequence[Any]:
            return cuts.sent(connection, reads.sid_of(connection, key), extent, after)

        return await self._database.read(look)

    async def context_tokens(self, key: SessionKey) -> int:
        row = schema.sessions
        query = sa.select(row.c.message_tokens).where(
            row.c.tenant == key.tenant, row.c.id == key.session
        )
        return await self._database.read(lambda connection: connection.execute(query).scalar() or 0)

    async def cancelled(self, key: SessionKey, turn: int) -> bool:
        row = schema.sessions
        query = sa.select(row.c.cancel_turn).where(
            row.c.tenant == key.tenant, row.c.id == key.session
        )
        found = await self._database.read(lambda connection: connection.execute(query).scalar())
        return bool(found == turn)

    # Budgets.

    async def put_budget(
        self, tenant: str, scope: Scope, session: str | None, budget: Budget
    ) -> BudgetView:
        return await self._database.write(
            lambda tx: budgets.put(tx, tenant, scope, session, budget)
        )

    async def budgets(self, tenant: str) -> list[BudgetView]:
        today = accounts.day_of(self._database.now())
        return await self._database.read(
            lambda connection: budgets.every(connection, tenant, today)
        )

    async def usage(self, tenant: str, by: UsageBy, since: float) -> list[UsageRow]:
        return await self._database.read(lambda connection: usage.by(connection, tenant, by, since))

    async def settle_asks(self, tenant: str) -> list[Wake]:
        keys = await self._database.read(lambda connection: asks.askers(connection, tenant))
        wakes = []
        # One at a time: no transaction locks two sessions.
        for key in keys:
            settled = await self._database.write(lambda tx, key=key: asks.settle(tx, key))  # type: ignore[misc]
            wakes += [settled] if settled is not None else []
        return wakes

    # The journal of model calls.

    async def begin_model_call(
        self, context: ContextHead, model: str, caller: Caller
    ) -> CallStarted | StepHead | Blocked:
        terms = self._terms(SessionKey(context.tenant, context.session), context.turn)
        return await self._database.write(
            lambda tx: model_journal.begin_model_call(tx, context, model, caller, terms)
        )

    async def check_budget(self, context: ContextHead, model: str) -> Blocked | None:
        terms = self._terms(SessionKey(context.tenant, context.session), context.turn)
        return await self._database.write(
            lambda tx: model_journal.check_budget(tx, context, model, terms)
        )

    async def complete_model_call(
        self,
        context: ContextHead,
        attempt: int,
        message: AssistantMessage,
        stop: Stop,
        usage: Usage,
        cost_usd: float | None,
        step: StepHead,
        deltas: Sequence[Draft],
        changing: frozenset[str] = frozenset(),
    ) -> StepHead:
        tokens = self._count(message)
        return await self._database.write(
            lambda tx: model_journal.complete_model_call(
                tx, context, attempt, message, tokens, stop, usage, cost_usd, step, deltas, changing
            )
        )

    async def fail_model_call(
        self, context: ContextHead, attempt: int, failure: CallFailure
    ) -> AfterFailure:
        terms = self._terms(SessionKey(context.tenant, context.session), context.turn)
        return await self._database.write(
            lambda tx: model_journal.fail_model_call(tx, context, attempt, failure, terms)
        )

    def _terms(self, key: SessionKey, turn: int) -> Terms:
        def spec(connection: sa.Connection) -> AgentSpec:
            known = self._specs.get((key, turn))
            return known or self._read_spec(connection, key, turn)

        return Terms(self._meter, spec)

    # Compactions.

    async def begin_compaction(
        self, request: Compact, frame: Frame, model: str, failures_max: int, caller: Caller
    ) -> CompactionStarted | Compacted:
        return await self._database.write(
            lambda tx: compactions.begin(
                tx, request, frame, model, failures_max, caller, self._meter
            )
        )

    async def known_reply(self, tenant: str, content: str) -> str | None:
        return await self._database.read(
            lambda connection: side_journal.known_reply(connection, tenant, content)
        )

    async def complete_compaction(
        self,
        request: Compact,
        attempt: int,
        text: str,
        content: str,
        usage: Usage,
        cost_usd: float | None,
        frame: Frame,
    ) -> Compacted:
        return await self._database.write(
            lambda tx: compactions.complete(
                tx, request, attempt, text, content, usage, cost_usd, frame, self._count
            )
        )

    async def fail_compaction(
        self,
        request: Compact,
        attempt: int,
        reason: str,
        attempts_max: int,
        failures_max: int,
        usage: Usage,
        cost_usd: float | None,
    ) -> bool:
        return await self._database.write(
            lambda tx: compactions.fail(
                tx, request, attempt, reason, attempts_max, failures_max, usage, cost_usd
            )
        )

    async def cancel_compaction(self, request: Compact, attempt: int) -> None:
        await self._database.write(lambda tx: compactions.cancel(tx, request, attempt, self._meter))

    async def ask_compaction(self, key: SessionKey) -> None:
        await self._database.write(lambda tx: compactions.ask(tx, key))

    async def undo_compaction(self, key: SessionKey, id: str | None = None) -> Cut:  # noqa: A002
        return await self._database.write(lambda tx: compactions.undo(tx, key, id))

    async def standing(self, key: SessionKey, turn: int, step: int) -> StepStanding:
        return await self._database.read(
            lambda connection: model_journal.standing(connection, key, turn, step)
        )

    async def tell_waiting(self, key: SessionKey, turn: int, step: int, text: str) -> None:
        await self._database.write(lambda tx: model_journal.tell_waiting(tx, key, turn, step, text))

    # The journal of tool calls.

    async def tool_calls(
        self, key: SessionKey, turn: int, step: int, first: int = 0, last: int = EVERY
    ) -> list[StoredCall]:
        return await self._database.read(
            lambda connection: tool_journal.tool_calls(
                connection, reads.sid_of(connection, key), turn, step, first, last
            )
        )

    async def begin_tool(
        self,
        key: SessionKey,
        turn: int,
        step: int,
        index: int,
        epoch: int,
        caller: Caller,
        once: bool,
        after: int = 0,
    ) -> ToolStarted | ToolInterrupted | ToolResult:
        return await self._database.write(
            lambda tx: tool_journal.begin_tool(
                tx, key, turn, step, index, epoch, caller, once, after
            )
        )

    async def whole_result(self, key: SessionKey, turn: int, step: int, index: int) -> str | None:
        found = await self._database.read(
            lambda connection: tool_journal.whole_result(
                connection, reads.sid_of(connection, key), turn, step, index
            )
        )
        if found is None:
            return None
        digest, text = found
        return text if text is not None else await large_texts.text_of(self._large, digest)

    async def boundary(self, key: SessionKey, turn: int) -> str:
        return await self._database.read(
            lambda connection: tool_journal.boundary(
                connection, reads.sid_of(connection, key), turn
            )
        )

    async def tell_output(
        self, key: SessionKey, turn: int, step: int, index: int, attempt: int, n: int, text: str
    ) -> None:
        await self._database.write(
            lambda tx: tool_journal.tell_output(tx, key, turn, step, index, attempt, n, text)
        )

    async def complete_tools(
        self, key: SessionKey, turn: int, step: int, epoch: int, done: Sequence[CompletedTool]
    ) -> None:
        if self._large is not None:
            done = await self._large.kept(done)
        counted = [(one, self._count(ToolMessage(results=(one.result,)))) for one in done]
        await self._database.write(
            lambda tx: tool_journal.complete_tools(tx, key, turn, step, epoch, counted)
        )

    # The journal of hooks.

    async def ask_approvals(
        self, request: RunTools, questions: Sequence[Question], passed: Sequence[int]
    ) -> Approved:
        spec = await self.spec(SessionKey(request.tenant, request.session), request.turn)
        return await self._database.write(
            lambda tx: approvals.ask(tx, request, spec, questions, passed)
        )

    async def check_approvals(self, request: RunTools) -> Approved:
        spec = await self.spec(SessionKey(request.tenant, request.session), request.turn)
        return await self._database.write(lambda tx: approvals.check(tx, request, spec))

    async def approvals(self, tenant: str, session: str | None) -> list[ApprovalView]:
        return await self._database.read(
            lambda connection: approvals.open_of(connection, tenant, session)
        )

    async def ask_person(self, key: SessionKey, asked: AskPerson) -> int:
        return await self._database.write(lambda tx: questions.ask(tx, key, asked))

    async def answer_of(self, key: SessionKey, approval: int) -> Answer:
        now = self._database.now()
        found = await self._database.read(
            lambda connection: questions.answer_of(connection, key, approval, now)
        )
        if found.state != "expired":
            return found
        return await self._database.write(lambda tx: questions.expire(tx, key, approval))

    async def begin_hook(
        self,
        key: SessionKey,
        turn: int,
        epoch: int | None,
        hook: Hook,
        caller: Caller,
        place: str = "",
        after_attempt: int = 0,
    ) -> HookStarted | HookInterrupted | HookEnd:
        return await self._database.write(
            lambda tx: hook_runs.begin(tx, key, turn, epoch, hook, caller, place, after_attempt)
        )

    async def complete_hook(
        self,
        key: SessionKey,
        turn: int,
        hook: Hook,
        end: HookEnd,
        place: str = "",
        told: Draft | None = None,
    ) -> HookEnd:
        return await self._database.write(
            lambda tx: hook_runs.complete(tx, key, turn, hook, end, place, told)
        )

    async def due_hooks(self, limit: int) -> list[EndHooks]:
        now = self._database.now()
        return await self._database.read(lambda connection: hook_runs.due(connection, now, limit))

    async def hooks_begun(self, request: EndHooks) -> None:
        await self._database.write(lambda tx: hook_runs.begun(tx, request))

    async def final_text(self, key: SessionKey, turn: int) -> str:
        return await self._database.read(
            lambda connection: endings.told_text(connection, reads.sid_of(connection, key), turn)
        )

    async def settle_gates(
        self, request: RunTools, passed: Sequence[int], blocked: Mapping[int, str]
    ) -> Gated:
        return await self._database.write(
            lambda tx: tool_journal.settle_gates(tx, request, passed, blocked)
        )

    async def note_results(self, request: RunTools, notes: Mapping[int, str]) -> None:
        def count(result: ToolResult) -> int:
            return self._count(ToolMessage(results=(result,)))

        await self._database.write(lambda tx: tool_journal.note_results(tx, request, notes, count))

    async def hook_outputs(self, key: SessionKey, hooks: Sequence[Hook]) -> list[str]:
        return await self._database.read(
            lambda connection: hook_runs.outputs(connection, key, hooks)
        )

    # Working folders.

    async def folder(self, key: SessionKey) -> SessionFolder:
        return await self._database.read(lambda connection: folders.of(connection, key))

    async def folder_made(
        self, key: SessionKey, turn: int, epoch: int, told: str | None = None
    ) -> None:
        await self._database.write(lambda tx: folders.made(tx, key, turn, epoch, told))

    async def claim_folder(self, key: SessionKey, home: str, own_dir: str) -> SessionFolder:
        return await self._database.write(lambda tx: folders.claim(tx, key, home, own_dir))

    async def home_away(self, request: AwaitHome, told: str) -> None:
        await self._database.write(lambda tx: folders.away(tx, request, told))

    async def note_record(self, key: SessionKey, turn: int, home: str) -> None:
        await self._database.write(lambda tx: record_homes.note(tx, key, turn, home))

    async def record_homes(self, works: Sequence[tuple[SessionKey, int]]) -> frozenset[str]:
        return await self._database.read(lambda connection: record_homes.since(connection, works))

    async def folder_failed(self, key: SessionKey, turn: int, epoch: int, problem: str) -> None:
        await self._database.write(lambda tx: folders.failed(tx, key, turn, epoch, problem))

    async def files_restored(
        self,
        key: SessionKey,
        turn: int,
        epoch: int | None,
        since: tuple[int, int],
        told: str | None,
    ) -> None:
        await self._database.write(lambda tx: folders.restored(tx, key, turn, epoch, since, told))

    async def release_folder(self, key: SessionKey) -> SessionFolder:
        return await self._database.write(lambda tx: folders.release(tx, key))

    # What MCP servers offer.

    async def served_tools(self, key: SessionKey, agent: str) -> tuple[Server, ...]:
        return await self._database.read(lambda connection: served.pinned(connection, key, agent))

    async def settle_servers(
        self, request: GatherTools, spec: AgentSpec, problems: Sequence[str], worker: str
    ) -> AgentSpec:
        settled = await self._database.write(
            lambda tx: served.settle(tx, request, spec, list(problems), worker)
        )
        self._specs.pop((SessionKey(request.tenant, request.session), request.turn), None)
        return settled

    async def home(self, key: SessionKey, agent: str, server: str) -> str | None:
        return await self._database.read(
            lambda connection: served.home(connection, key, agent, server)
        )

    async def move_home(
        self, key: SessionKey, agent: str, server: str, before: str | None, worker: str
    ) -> bool:
        return await self._database.write(
            lambda tx: served.move_home(tx, key, agent, server, before, worker)
        )

    async def accept_servers(self, key: SessionKey) -> None:
        await self._database.write(lambda tx: served.accept(tx, key))

    # What dead workers left.

    async def unfinished_calls(self) -> list[UnfinishedCall]:
        return await self._database.read(reads.unfinished_calls)

    async def durations(self, kind: Literal["model", "tool"], name: str, limit: int) -> list[float]:
        return await self._database.read(
            lambda connection: reads.durations(connection, kind, name, limit)
        )
