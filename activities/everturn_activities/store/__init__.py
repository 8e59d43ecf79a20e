"""The store: the truth about sessions. One interface, whatever database stands behind it.

Everything that can change between two processes is decided in one transaction here, with
the session's row locked. Callers pass time in (seconds since 1970) through the store's clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from everturn.agents import AgentSpec
from everturn.approvals import ApprovalState, AskKind, ToolVerdict
from everturn.budgets import Budget, BudgetVerdict, Scope
from everturn.context.compaction import Plan
from everturn.context.conversation import Conversation
from everturn.context.cuts import Cut, Extent
from everturn.context.manifest import Manifest
from everturn.context.window import Frame
from everturn.events import Draft
from everturn.executors import Delegation, ExecutorRules
from everturn.folders import FolderKind
from everturn.forks import ForkSession
from everturn.hooks import Hook
from everturn.mcp import Server
from everturn.memory import USER
from everturn.messages import (
    AssistantMessage,
    SkillInvocation,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from everturn.session import (
    Approved,
    AwaitHome,
    BeginTurn,
    Blocking,
    CheckInbox,
    Compact,
    Compacted,
    ContextHead,
    Delegated,
    EndHooks,
    Finished,
    FinishTurn,
    Gated,
    GatherTools,
    InboxHead,
    Mode,
    Placement,
    PrepareStep,
    RunTools,
    SessionKey,
    StepHead,
    Stop,
    TurnHead,
)
from everturn.tasks import Output
from everturn.trajectories import Trajectory
from everturn.views import (
    AcceptedView,
    ApprovalView,
    BudgetView,
    ContextView,
    MessageView,
    SessionView,
    TurnView,
    UsageBy,
    UsageRow,
)
from everturn.webhooks import Webhook
from everturn_activities.gateways import Usage

EVERY = 2**31 - 1
"""The last of all numbers."""


@dataclass(frozen=True)
class SessionSettings:
    """What a session is created with. `agent` and `model` are defaults for its messages; `user`
    is whose facts its turns read and keep. `own_dir` is the folder, of that kind, in which it
    works in place of `working_dir`."""

    workspace: str
    working_dir: str
    agent: str = "default"
    model: str | None = None
    user: str = USER
    folder: FolderKind = "shared"
    own_dir: str | None = None
    webhook: Webhook | None = None
    """Who outside is told of it."""


@dataclass(frozen=True)
class ForkFolder:
    """Where a fork works: in `working_dir`, or in one of its own in place of it."""

    kind: FolderKind
    working_dir: str
    own_dir: str | None = None
    home: str | None = None
    """The home that has these, where they are another session's own or made of it."""


@dataclass(frozen=True)
class Inbound:
    """Something sent to a session, under the sender's id."""

    id: str
    kind: Literal["message", "cancel", "budget", "approval"]
    message: UserMessage | None = None
    mode: Mode = "queue"
    agent: str | None = None
    model: str | None = None
    target: int | None = None
    """The turn that a cancel is meant for; None means the open one. Messages name none."""
    budget: BudgetVerdict | None = None
    approval: ToolVerdict | None = None


@dataclass(frozen=True)
class Wake:
    """Whom to signal once the commit is done."""

    key: SessionKey
    host_workflow_id: str | None
    host_epoch: int
    priority: int | None = None
    """How urgent its turns are; None is a person's conversation."""


@dataclass(frozen=True)
class Accepted:
    view: AcceptedView
    wake: Wake | None


@dataclass(frozen=True)
class Assignment:
    """For whom the next turn would run: what the first waiting message, or the open turn, names."""

    agent: str
    model: str | None
    workspace: str
    working_dir: str
    pinned: str | None
    """The hash of the open turn's spec."""
    user: str = USER
    searched: bool = False
    """Whether its workspace has folders that are searched."""

    rules: ExecutorRules | None = None
    """What an executor's turns are held to."""

    useful: tuple[str, ...] | None = None
    """Tools that the session's turns have had as far as they are useful; None before the first."""

    own_dir: str | None = None
    """The folder in which it works in place of `working_dir`."""
    folder_due: bool = False
    """Whether that is still to be made."""
    home: str = ""
    """The home that has what it works in; empty where any worker comes to that."""
    here: bool = True
    """Whether whoever asks comes to that."""
    output: Output | None = None
    """What its answers must fit, whatever its agent says."""
    priority: int | None = None
    served: Mapping[str, int] = field(default_factory=dict)
    """How many MCP servers each agent had that has begun a turn in the session."""


@dataclass(frozen=True)
class Handed:
    """A task on its way to an executor: the call of `delegate` that it stands for, and under
    which id the executor's inbox gets it."""

    parent: SessionKey
    turn: int
    step: int
    sender_id: str
    delegation: Delegation


@dataclass(frozen=True)
class Origin:
    """The session that another was forked from, and behind which step: the last of its turn where
    that is None."""

    key: SessionKey
    turn: int
    step: int | None


@dataclass(frozen=True)
class ExecutorTurn:
    """A turn of an executor, and the step `place` of the session above all for which it works;
    0 where no turn has taken the task up yet."""

    key: SessionKey
    turn: int
    place: tuple[int, int]
    works: bool


@dataclass(frozen=True)
class Rewound:
    """A session was taken back behind `step` of `turn`: so many `messages` are no longer sent."""

    turn: int
    step: int | None
    messages: int


@dataclass(frozen=True)
class FollowUp:
    """What is to be done once a turn's end is committed: hand over the tasks `begun`, cancel
    the executors `left`, and wake whoever waits for the session's own outcome."""

    finished: Finished
    begun: Sequence[Handed] = ()
    left: Sequence[SessionKey] = ()
    wake: Wake | None = None


@dataclass(frozen=True)
class TaskCame:
    """A task that was taken in, now or before, and whom to wake for it."""

    id: str
    wake: Wake | None


@dataclass(frozen=True)
class Delivery:
    """An attempt at telling somebody outside: `secret` names the one of `workspace` by which it
    is signed."""

    id: str
    attempt: int
    workspace: str
    url: str
    secret: str
    body: str


@dataclass(frozen=True)
class TakeoverNeeded:
    """Another run hosts the session: ask Temporal whether it is open; if not, call again with
    this, which is how a third run that took over meanwhile keeps the session."""

    workflow_id: str
    run_id: str


@dataclass(frozen=True)
class Idle:
    """Nothing waits: the run has nothing to do."""


@dataclass(frozen=True)
class SpecNeeded:
    """A message came in since the assignment was read: read it again."""


@dataclass(frozen=True)
class Snapshot:
    """What a step's prompt is composed of: a manifest, and the texts that it names by layer."""

    manifest: Manifest = field(default_factory=Manifest)
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StepLayers:
    """The digest of a step's manifest, and what is written with the step.

    `bodies` are texts by digest that may not be stored yet; `pinned` are digests by layer that
    stand for the session and `agent` from now on; `warnings` are told once a turn.
    """

    digest: str
    bodies: Mapping[str, str] = field(default_factory=dict)
    agent: str = ""
    pinned: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Caller:
    """Who runs a call: the worker instance, a nonce of this execution, and Temporal's task
    token where the call is a queued activity."""

    worker: str
    nonce: str
    task_token: bytes | None = None


@dataclass(frozen=True)
class CallStarted:
    """`model` is who is asked in this attempt."""

    attempt: int
    model: str


@dataclass(frozen=True)
class CallFailure:
    """Why an attempt at a model call failed, in plain words.

    `tries_max` attempts of one model may fail; stalls are counted apart from all else. Then
    `next_model` takes over, or the call has failed for good.
    """

    reason: str
    tries_max: int
    next_model: str | None = None
    stalled: bool = False
    refused: bool = False
    """Nobody can repair it by waiting."""


@dataclass(frozen=True)
class AfterFailure:
    """What follows a failed attempt, which was the last of so many `tries` of its model."""

    then: Literal["again", "switch", "end"]
    tries: int = 0


@dataclass(frozen=True)
class CompactionStarted:
    attempt: int
    plan: Plan


@dataclass(frozen=True)
class Blocked:
    """A model call that a budget does not let begin, and why, for a person."""

    how: Blocking
    reason: str


@dataclass(frozen=True)
class StepStanding:
    """Where a step stands: whether its reply is paid for, and which model is to answer."""

    replied: bool = False
    model: str | None = None


@dataclass(frozen=True)
class StoredCall:
    """A tool call as journaled. One that `asks` waits for a person's leave; one that is `edited`
    runs with arguments that a person gave it. Hooks have not let pass one that is `gated`, and
    are to be told of the result of one that is `followed`."""

    index: int
    call_id: str
    name: str
    arguments: dict[str, Any]
    malformed: str | None
    state: Literal["proposed", "started", "done"]
    attempt: int
    worker: str | None
    started_at: float | None
    result: ToolResult | None
    asks: bool = False
    edited: bool = False
    gated: bool = False
    followed: bool = False

    @property
    def waits(self) -> bool:
        """Whether it must not run yet."""
        return self.asks or self.gated


@dataclass(frozen=True)
class Question:
    """A call that a person is to decide about, and what it would do, as its tool tells."""

    call: StoredCall
    preview: str | None = None
    kind: AskKind = "approval"


@dataclass(frozen=True)
class AskPerson:
    """A question of a call that runs, `name`'s: its `part`-th, from 1. A `schema`, of an object,
    says what an answer must fit."""

    turn: int
    step: int
    index: int
    part: int
    name: str
    question: str
    schema: dict[str, Any] | None = None
    expires_seconds: float | None = None


@dataclass(frozen=True)
class Answer:
    """How a question stands: what was said, as `text`, or as `content` where it has a schema; or
    the `reason` why nobody answers."""

    state: ApprovalState
    text: str | None = None
    content: dict[str, Any] | None = None
    reason: str = ""


@dataclass(frozen=True)
class ToolStarted:
    attempt: int
    call: StoredCall


@dataclass(frozen=True)
class ToolInterrupted:
    """A `once` call whose earlier attempt began and left no result; `seconds` ago, by the
    database's clock."""

    attempt: int
    call: StoredCall
    seconds: float = 0.0


@dataclass(frozen=True)
class CompletedTool:
    """An ended call; `attempt` fences it, 0 for one that was recorded without an intent row."""

    index: int
    attempt: int
    result: ToolResult
    duration_seconds: float
    whole: str | None = None
    """The result's whole text, where that is too long to be shown."""
    blob: str | None = None
    """The digest of that text, where it is kept outside of the store."""


@dataclass(frozen=True)
class HookStarted:
    """The intent of a hook is written, and it is ours to run."""


@dataclass(frozen=True)
class HookInterrupted:
    """An earlier execution began the hook and left no result; `seconds` ago, by the database's
    clock."""

    worker: str
    seconds: float
    attempt: int = 1


@dataclass(frozen=True)
class HookEnd:
    """What came of a hook: `problem` says so to a person where it is no good; without an
    `exit_code` it did not come to its end."""

    exit_code: int | None
    output: str
    problem: str | None = None


@dataclass(frozen=True)
class SessionFolder:
    """Where a session works: `own_dir`, of that kind, in place of `working_dir`, or there itself
    where it is None. `due`: it is still to be made. The files that turns since `restore_turn`
    changed are still to be put back; 0 for none. Only workers of `home` come to all that; where
    it is None any does."""

    workspace: str
    working_dir: str
    kind: FolderKind
    own_dir: str | None
    due: bool
    restore_turn: int = 0
    restore_step: int = 0
    home: str | None = None


@dataclass(frozen=True)
class UnfinishedCall:
    """A call that some worker began as a queued activity and did not end."""

    worker: str
    task_token: bytes


class Forks(Protocol):
    """Sessions that begin with what another has said and done."""

    async def fork(
        self, origin: SessionKey, made: SessionKey, wanted: ForkSession, folder: ForkFolder
    ) -> Wake | None:
        """Make the session `made`, once; whom to wake. UsageError for a step that is not
        finished, IdempotencyConflict where another session has that id."""
        ...

    async def origin(self, key: SessionKey) -> Origin | None:
        """Where the session was forked from, None where from nowhere."""
        ...

    async def rewind(
        self,
        key: SessionKey,
        turn: int,
        step: int | None,
        id: str | None = None,  # noqa: A002
    ) -> Rewound:
        """Take a session that rests back behind a step; its files are due to go back, too.

        Done once for each `id`, as undoing is.
        """
        ...

    async def undo_rewind(self, key: SessionKey, id: str | None = None) -> Cut:  # noqa: A002
        """Send again what the newest rewind left out; UsageError where there is none."""
        ...

    async def trajectory(self, key: SessionKey, turn: int | None) -> Trajectory:
        """What the session did, or one turn of it; UsageError where there is none, or too much."""
        ...

    async def executor_turns(
        self, key: SessionKey, since: tuple[int, int] = (0, 0)
    ) -> list[ExecutorTurn]:
        """What executors worked for the session's steps from `since` on, and theirs."""
        ...


class Store(Protocol):
    @property
    def forks(self) -> Forks: ...

    # Sessions and their inboxes.
    async def create_session(self, key: SessionKey, settings: SessionSettings) -> SessionView: ...
    async def session(self, key: SessionKey) -> SessionView: ...
    async def sessions(
        self, tenant: str, limit: int, before: str | None, parent: str | None = None
    ) -> list[SessionView]:
        """The tenant's sessions that are no executors, or the executors of `parent`."""
        ...

    async def turns(self, key: SessionKey, first: int = 1) -> list[TurnView]: ...
    async def messages(self, key: SessionKey, after: int, limit: int) -> list[MessageView]: ...
    async def import_messages(
        self, key: SessionKey, messages: Sequence[UserMessage | AssistantMessage | ToolMessage]
    ) -> int:
        """Give a new session a conversation from elsewhere; how many messages it has then."""
        ...

    async def invocations(self, key: SessionKey, turn: int) -> list[SkillInvocation]:
        """The skills that the messages of a turn ask for."""
        ...

    async def accept(self, key: SessionKey, inbound: Inbound) -> Accepted: ...
    async def clear_host(self, wake: Wake) -> None: ...
    async def left_asleep(self, older_than_seconds: float, limit: int) -> list[Wake]: ...
    async def open_hosts(
        self, idle_seconds: float, after: SessionKey | None, limit: int
    ) -> list[tuple[Wake, str]]:
        """Sessions with an open turn that changed nothing for that long, with the run that
        hosts them: the next ones after the session `after`, in the order of their keys."""
        ...

    # A turn.
    async def assignment(self, key: SessionKey) -> Assignment | None: ...
    async def begin_turn(
        self, request: BeginTurn, spec: AgentSpec | None, closed: TakeoverNeeded | None = None
    ) -> TurnHead | TakeoverNeeded | Idle | SpecNeeded: ...
    async def check_inbox(self, request: CheckInbox) -> InboxHead: ...
    async def prepare_step(
        self,
        request: PrepareStep,
        placement: Placement,
        model: str = "",
        frame: Frame | None = None,
        layers: StepLayers | None = None,
    ) -> ContextHead: ...
    async def begin_inline_step(
        self,
        request: PrepareStep,
        model: str,
        caller: Caller,
        frame: Frame | None = None,
        layers: StepLayers | None = None,
    ) -> tuple[ContextHead, CallStarted | StepHead | Blocked | None]:
        """Prepare a step and begin its model call at once; None where nothing is to begin."""
        ...

    async def prepared(self, key: SessionKey, turn: int, step: int) -> ContextHead | None:
        """What a step reads, as recorded; None where it is not prepared."""
        ...

    async def snapshot(self, digest: str) -> Snapshot:
        """What the manifest of that digest names."""
        ...

    async def context(
        self, key: SessionKey, turn: int | None = None, step: int | None = None
    ) -> ContextView:
        """What a step's request was composed of; raises UsageError where there is none."""
        ...

    async def session_layers(self, key: SessionKey, agent: str) -> dict[str, str]:
        """The texts that stand for the session and the agent, empty ones too."""
        ...

    async def finish_turn(self, request: FinishTurn) -> FollowUp: ...

    # Executors of a session.

    async def hand_over(
        self,
        request: RunTools,
        width: int,
        tasks: Sequence[Delegation],
        refused: Mapping[int, str],
    ) -> list[Handed]:
        """Write the tasks of a step's calls down, and begin as many as may be at once."""
        ...

    async def has_executor(self, key: SessionKey, name: str) -> bool: ...
    async def check_executors(self, request: RunTools) -> Delegated: ...
    async def open_executor(self, handed: Handed) -> Wake | None:
        """Give an executor its session and its task, once; whom to wake then."""
        ...

    async def undelivered(self, older_than_seconds: float) -> list[Handed]:
        """Tasks that were begun and may not have reached their executors."""
        ...

    async def spec(self, key: SessionKey, turn: int) -> AgentSpec: ...
    async def history(self, key: SessionKey, extent: Extent) -> Conversation:
        """What is sent of the transcript."""
        ...

    async def context_tokens(self, key: SessionKey) -> int:
        """How many tokens the session's messages take as they would be sent now."""
        ...

    # Budgets.
    async def put_budget(
        self, tenant: str, scope: Scope, session: str | None, budget: Budget
    ) -> BudgetView: ...
    async def budgets(self, tenant: str) -> list[BudgetView]: ...
    async def usage(self, tenant: str, by: UsageBy, since: float) -> list[UsageRow]: ...
    async def settle_asks(self, tenant: str) -> list[Wake]:
        """Close the questions whose limit was changed meanwhile; whom to wake."""
        ...

    async def cancelled(self, key: SessionKey, turn: int) -> bool: ...

    # The journal of model calls.
    async def begin_model_call(
        self, context: ContextHead, model: str, caller: Caller
    ) -> CallStarted | StepHead | Blocked: ...
    async def check_budget(self, context: ContextHead, model: str) -> Blocked | None:
        """What budget is in the way of the call, which another activity will begin."""
        ...

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
        """Record the reply; the head that comes back has the calls that are to run. `changing`
        names the tools that may change the world."""
        ...

    async def fail_model_call(
        self, context: ContextHead, attempt: int, failure: CallFailure
    ) -> AfterFailure: ...

    # Compactions.
    async def begin_compaction(
        self, request: Compact, frame: Frame, model: str, failures_max: int, caller: Caller
    ) -> CompactionStarted | Compacted: ...
    async def known_reply(self, tenant: str, content: str) -> str | None:
        """The reply to a side call of this content that the tenant has paid for, if any."""
        ...

    async def complete_compaction(
        self,
        request: Compact,
        attempt: int,
        text: str,
        content: str,
        usage: Usage,
        cost_usd: float | None,
        frame: Frame,
    ) -> Compacted: ...
    async def fail_compaction(
        self,
        request: Compact,
        attempt: int,
        reason: str,
        attempts_max: int,
        failures_max: int,
        usage: Usage,
        cost_usd: float | None,
    ) -> bool: ...
    async def cancel_compaction(self, request: Compact, attempt: int) -> None: ...
    async def ask_compaction(self, key: SessionKey) -> None: ...
    async def undo_compaction(self, key: SessionKey, id: str | None = None) -> Cut:  # noqa: A002
        """Send again what the newest compaction left out, once for each `id`."""
        ...

    async def standing(self, key: SessionKey, turn: int, step: int) -> StepStanding: ...

    async def tell_waiting(self, key: SessionKey, turn: int, step: int, text: str) -> None:
        """Tell why the step's next attempt waits, once."""
        ...

    # The journal of tool calls.
    async def tool_calls(
        self, key: SessionKey, turn: int, step: int, first: int = 0, last: int = EVERY
    ) -> list[StoredCall]:
        """The calls of a step, or those from the `first` to the `last`."""
        ...

    async def begin_tool(
        self, key: SessionKey, turn: int, step: int, index: int, epoch: int, caller: Caller,
        once: bool, after: int = 0,
    ) -> ToolStarted | ToolInterrupted | ToolResult: ...  # fmt: skip
    async def whole_result(self, key: SessionKey, turn: int, step: int, index: int) -> str | None:
        """The whole text of a result that was cut; None where there is none."""
        ...

    async def boundary(self, key: SessionKey, turn: int) -> str:
        """What frames the words of strangers in the turn's results."""
        ...

    async def tell_output(
        self, key: SessionKey, turn: int, step: int, index: int, attempt: int, n: int, text: str
    ) -> None:
        """Tell watchers the `n`th piece of what a call says while it runs; Fenced where the
        attempt is over."""
        ...

    async def complete_tools(
        self, key: SessionKey, turn: int, step: int, epoch: int, done: Sequence[CompletedTool]
    ) -> None: ...

    async def ask_approvals(
        self, request: RunTools, questions: Sequence[Question], passed: Sequence[int]
    ) -> Approved:
        """Ask a person about calls of a step, once each; those that `passed` need no leave."""
        ...

    async def check_approvals(self, request: RunTools) -> Approved: ...
    async def approvals(self, tenant: str, session: str | None) -> list[ApprovalView]:
        """The questions about tool calls that wait for a person, newest first."""
        ...

    async def ask_person(self, key: SessionKey, asked: AskPerson) -> int:
        """Ask a person for a call that runs; the number of the question, the same each time."""
        ...

    async def answer_of(self, key: SessionKey, approval: int) -> Answer: ...

    # The journal of hooks.
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
        """Write the intent of a hook at that place of the session, or say how it has ended there.

        One that was interrupted is begun again only where `after_attempt` names that attempt.
        """
        ...

    async def complete_hook(
        self,
        key: SessionKey,
        turn: int,
        hook: Hook,
        end: HookEnd,
        place: str = "",
        told: Draft | None = None,
    ) -> HookEnd:
        """Write what came of a hook, and tell it; the first to say so wins, and comes back."""
        ...

    async def due_hooks(self, limit: int) -> list[EndHooks]:
        """Turns that have ended, and whose last hooks are to be begun."""
        ...

    async def hooks_begun(self, request: EndHooks) -> None: ...
    async def final_text(self, key: SessionKey, turn: int) -> str:
        """What a turn that has ended said to its user."""
        ...

    async def settle_gates(
        self, request: RunTools, passed: Sequence[int], blocked: Mapping[int, str]
    ) -> Gated:
        """Let the calls run that hooks let pass, and answer the others by why they do not."""
        ...

    async def note_results(self, request: RunTools, notes: Mapping[int, str]) -> None:
        """Put what hooks have to say behind the results of these calls, once."""
        ...

    async def hook_outputs(self, key: SessionKey, hooks: Sequence[Hook]) -> list[str]:
        """What the hooks printed that succeeded in this session, empty for the others."""
        ...

    # Working folders.
    async def folder(self, key: SessionKey) -> SessionFolder: ...
    async def folder_made(
        self, key: SessionKey, turn: int, epoch: int, told: str | None = None
    ) -> None:
        """The session's own folder is made; watchers are told what there is to say of it."""
        ...

    async def claim_folder(self, key: SessionKey, home: str, own_dir: str) -> SessionFolder:
        """The session's own folder is to be made by that home, there; what stands afterwards:
        who comes first says so."""
        ...

    async def home_away(self, request: AwaitHome, told: str) -> None:
        """Tell, once a step, that nobody takes work where the session's files are."""
        ...

    async def note_record(self, key: SessionKey, turn: int, home: str) -> None:
        """File checkpoints of the turn's calls are kept at that home."""
        ...

    async def record_homes(self, works: Sequence[tuple[SessionKey, int]]) -> frozenset[str]:
        """The homes that have file checkpoints of these sessions, each from a turn on."""
        ...

    async def folder_failed(self, key: SessionKey, turn: int, epoch: int, problem: str) -> None:
        """Record why the session's own folder cannot be made: the turn ends with that."""
        ...

    async def files_restored(
        self,
        key: SessionKey,
        turn: int,
        epoch: int | None,
        since: tuple[int, int],
        told: str | None,
    ) -> None:
        """The files of rolled-back turns are put back, those that steps from `since` on changed:
        tell what became of them, once. Without an epoch it is no turn that did so. What is due
        from an earlier step by now stays so."""
        ...

    async def release_folder(self, key: SessionKey) -> SessionFolder:
        """The folder, to be removed: the next turn makes it anew. UsageError while a turn is
        open or waits, or where the session has none."""
        ...

    # What MCP servers offer.
    async def served_tools(self, key: SessionKey, agent: str) -> tuple[Server, ...]:
        """The agent's servers as they were pinned; none before they were."""
        ...

    async def settle_servers(
        self, request: GatherTools, spec: AgentSpec, problems: Sequence[str], worker: str
    ) -> AgentSpec:
        """Let a turn run under `spec`, which knows what its servers offer, and pin that, with the
        `worker` that has launched them; the spec of the first who did is the answer."""
        ...

    async def home(self, key: SessionKey, agent: str, server: str) -> str | None:
        """The worker that has a stateful server of the session."""
        ...

    async def move_home(
        self, key: SessionKey, agent: str, server: str, before: str | None, worker: str
    ) -> bool:
        """Let `worker` have it in place of `before`; False where that is no longer so."""
        ...

    async def accept_servers(self, key: SessionKey) -> None:
        """Let the session take its servers, from its next turn on, as they are then."""
        ...

    # What dead workers left.
    async def unfinished_calls(self) -> list[UnfinishedCall]: ...
    async def durations(
        self, kind: Literal["model", "tool"], name: str, limit: int
    ) -> list[float]: ...

    async def close(self) -> None: ...
