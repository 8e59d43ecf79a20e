"""Sessions, turns and messages as people and programs read them: the bodies of the HTTP API."""

from typing import Any, Literal

from pydantic import Field

from everturn.approvals import ApprovalState, AskKind, Decision
from everturn.budgets import Budget, BudgetVerdict, Scope, Unit
from everturn.context.window import Level
from everturn.folders import FolderKind
from everturn.forks import ForkedFrom
from everturn.memory import USER, FactScope, FactSource
from everturn.messages import AssistantMessage, Frozen, Message, ToolMessage, UserMessage
from everturn.session import Mode, OutcomeKind, Placement, Stop
from everturn.skills import Trust
from everturn.webhooks import Webhook


class UsageView(Frozen):
    """Sums over model calls: of `model_calls` that were answered, side calls among them, and of
    attempts that were cut or lost. `cost_usd` is of the calls whose price is known;
    `unpriced_calls` are the others."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    model_calls: int = 0
    cost_usd: float = 0.0
    unpriced_calls: int = 0


UsageBy = Literal["session", "agent", "model", "day"]


class UsageRow(UsageView):
    """Usage of one session, agent, model or UTC day, `key`: of `model_calls` replies.

    Attempts that were lost or cut are counted by estimate, side calls are compactions and
    the like, embedding calls are those of knowledge.
    """

    key: str
    lost_attempts: int = 0
    side_calls: int = 0
    embedding_calls: int = 0


class UsagePage(Frozen):
    """Answer of `GET /v1/usage`."""

    rows: tuple[UsageRow, ...]


class SectionsView(Frozen):
    """The tokens of a request by what they are: `ack` answers a context that is sent as a message,
    `memory` is what this turn has said so far. `generation` is what of the `window` is kept
    free for the reply."""

    system: int
    tools: int
    history: int
    memory: int
    ack: int = 0
    generation: int = 0
    window: int = 0
    estimated: bool = False
    """The model's own encoding is not known: tokens are counted with another."""


class BudgetAskView(Frozen):
    """A question that a turn waits with: may the limit of `budget` in `unit` be raised?"""

    approval: int
    turn: int
    budget: Scope
    unit: Unit
    text: str


class ApprovalView(Frozen):
    """A tool call that a person decides about: what would run, and what it would do.

    `preview` is the tool's own, None where it has none. `digest` is to be named by who
    approves. Where it is a question, that stands in `arguments` as `question`, with `choices`
    to choose from, and an answer must fit `answer_schema`. Times are in seconds since 1970.
    """

    session: str
    approval: int
    turn: int
    step: int
    tool: str
    arguments: dict[str, Any]
    preview: str | None
    digest: str
    state: ApprovalState
    reason: str = ""
    kind: AskKind = "approval"
    answer_schema: dict[str, Any] | None = None
    created_at: float
    expires_at: float | None = None

    @property
    def question(self) -> str:
        return str(self.arguments.get("question", ""))

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(map(str, self.arguments.get("choices") or ()))


class ApprovalPage(Frozen):
    """Answer of `GET /v1/approvals`, newest first."""

    approvals: tuple[ApprovalView, ...]


class AnswerApproval(Frozen):
    """Body of `POST /v1/sessions/{id}/approvals/{approval}`: the fields of a `ToolVerdict` but
    its number; the same `id` again changes nothing."""

    verdict: Decision
    digest: str | None = None
    arguments: dict[str, Any] | None = None
    pattern: dict[str, str] | None = None
    reason: str = ""
    answer: str | None = None
    content: dict[str, Any] | None = None
    id: str | None = None


class SessionView(Frozen):
    """`turn` is the number of the newest turn, 0 before the first; `waiting` counts accepted
    messages that no turn has admitted yet; `cursor` is the end of the event log. Times are in
    seconds since 1970."""

    id: str
    title: str
    agent: str
    model: str | None
    workspace: str
    working_dir: str
    status: Literal["idle", "running", "queued"]
    turn: int
    waiting: int
    last_outcome: OutcomeKind | None
    created_at: float
    updated_at: float
    usage: UsageView = UsageView()
    cursor: str = "0"
    asked: tuple[BudgetAskView, ...] = ()
    """Questions that the open turn waits with for a person."""
    user: str = USER
    """Whose facts its turns read and keep."""
    imported: int = 0
    """Messages of the transcript that it began with, and that no turn worked."""
    folder: FolderKind = "shared"
    own_dir: str | None = None
    """The folder, of that kind, in which it works in place of `working_dir`."""
    home: str | None = None
    """The id of the home that has what it works in; None where any worker comes to that."""
    parent: str | None = None
    """Of an executor: the session that hands its work to it."""
    forked: ForkedFrom | None = None


class StepView(Frozen):
    turn: int
    step: int
    model: str
    placement: Placement
    attempts: int
    stop: Stop | None
    context_tokens: int
    usage: UsageView
    duration_seconds: float | None
    tools: tuple[str, ...] = ()
    sections: SectionsView | None = None
    estimated: bool = False
    """The provider told no usage, or the reply was cut off: tokens are our own count."""


class LayerView(Frozen):
    """A layer of a prompt as it was sent: what its text stands for (`scope`), and whether a
    provider may keep it from step to step. `digest` is equal for equal texts."""

    id: str
    source: str
    scope: Literal["session", "turn", "step"]
    tokens: int
    digest: str
    cached: bool
    text: str


class ContextView(Frozen):
    """Answer of `GET /v1/sessions/{id}/context`: what the request of a step was composed of.

    `compacts_at` is the share of the window from which on a summary is made, None for never.
    """

    session: str
    turn: int
    step: int
    agent: str
    model: str
    profile: str
    mode: Literal["pair", "system"]
    level: Level
    compacts_at: float | None
    sections: SectionsView
    layers: tuple[LayerView, ...]
    tools: tuple[str, ...]
    history_messages: int
    memory_messages: int


class TurnView(Frozen):
    """A turn; its events come after `cursor`."""

    turn: int
    agent: str
    outcome: OutcomeKind | None
    reason: str | None
    started_at: float
    ended_at: float | None
    steps: tuple[StepView, ...] = ()
    usage: UsageView = UsageView()
    cursor: str = "0"


class MessageView(Frozen):
    """A message of the transcript; `position` counts from 1 without gaps."""

    position: int
    turn: int
    step: int
    message: UserMessage | AssistantMessage | ToolMessage
    tokens: int
    created_at: float


class AcceptedView(Frozen):
    """What became of something sent to a session.

    `duplicate`: this id was accepted before. `turn` is the newest turn's number when it
    was accepted. `cursor` is the end of the event log then: all that follows from the
    message comes after it. `queued` is a message's place among those that wait, 1 for the
    next; `stops` is the turn that it ends; `note` tells a message that does not join as
    its mode asks, and why.
    """

    id: str
    position: int
    duplicate: bool
    turn: int
    cursor: str
    status: Literal["accepted", "too_late", "rolled_back"] = "accepted"
    queued: int = 0
    stops: int | None = None
    note: str | None = None


class SpentView(Frozen):
    """An amount in each unit; `seconds` are those of model and tool calls."""

    usd: float = 0.0
    tokens: int = 0
    steps: int = 0
    seconds: float = 0.0


class BudgetView(Frozen):
    """What may be spent, what is, and what calls under way have reserved.

    `scope` says of what: a session, the whole tenant, or each UTC day of the tenant, with
    the figures of `day`. The limits are those of `Budget`.
    """

    scope: Scope
    session: str | None = None
    day: str | None = None
    limits: Budget
    spent: SpentView
    reserved: SpentView


class BudgetPage(Frozen):
    """Answer of `GET /v1/budgets`."""

    budgets: tuple[BudgetView, ...]


class AnswerBudget(BudgetVerdict):
    """Body of `POST /v1/sessions/{id}/budget`; the same `id` again changes nothing."""

    id: str | None = None


class NewBudget(Budget):
    """Body of `PUT /v1/budgets`: all limits of a tenant, its days or a session, set at once."""

    scope: Scope
    session: str | None = None


class NewSession(Frozen):
    """Body of `POST /v1/sessions`; the same `id` again answers with the same session, and with
    409 where it names a setting that this session does not have.

    `user` is whose facts its turns read and keep, by default the tenant's own. `folder` says
    whether it works in that folder itself or in one of its own, by default as its agent does.
    `webhook` is told of each turn's end, and of each time that one waits for a person.
    """

    id: str | None = None
    workspace: str | None = None
    agent: str | None = None
    model: str | None = None
    working_dir: str | None = None
    user: str | None = None
    folder: FolderKind | None = None
    webhook: Webhook | None = None


class FolderRemovedView(Frozen):
    """Answer of `DELETE /v1/sessions/{id}/folder`. `branch` keeps the commits of a worktree that
    had any of its own. `left_at` is the id of the home on which the files still lie: they are given
    up, and nobody there was asked."""

    path: str
    branch: str | None = None
    left_at: str | None = None


class FileChangeView(Frozen):
    """What calls of a step did to a file; `known`: it can be put back."""

    path: str
    change: Literal["made", "changed", "removed"]
    known: bool = True


class CheckpointView(Frozen):
    """What the tools of a step did to files; `left_out` counts those whose content was not kept,
    `unrecorded` changed files that are not listed, because they were too many."""

    turn: int
    step: int
    at: float
    tools: tuple[str, ...]
    files: tuple[FileChangeView, ...]
    left_out: int = 0
    unrecorded: int = 0


class CheckpointPage(Frozen):
    """Answer of `GET /v1/sessions/{id}/checkpoints`: in the order in which they were made."""

    checkpoints: tuple[CheckpointView, ...]


class RestoreFiles(Frozen):
    """Body of `POST /v1/sessions/{id}/checkpoints/restore`: files become what they were before
    that step."""

    turn: int = Field(ge=1, le=2**31)
    step: int = Field(default=1, ge=1, le=2**31)


class KeptFileView(Frozen):
    path: str
    why: str


class RestoredView(Frozen):
    """Files that are as they were, those that were left as they are, and what else may not be as
    it was, in sentences."""

    files: tuple[str, ...]
    kept: tuple[KeptFileView, ...]
    notes: tuple[str, ...] = ()


class RewoundView(RestoredView):
    """Answer of `POST /v1/sessions/{id}/rewind`: so many `messages` came behind the step."""

    messages: int


class RewindUndoneView(Frozen):
    """Answer of `POST /v1/sessions/{id}/rewind/undo`: messages `first` to `last` are sent again;
    files stay as they are."""

    first: int
    last: int


class AgentView(Frozen):
    """Who can be asked in a session: a `color` and `title` for people, and what they are for."""

    name: str
    title: str
    description: str
    color: str | None


class AgentPage(Frozen):
    """Answer of `GET /v1/sessions/{id}/agents`: those that are visible."""

    agents: tuple[AgentView, ...]


class ServersAcceptedView(Frozen):
    """The session takes its MCP servers as its next turn finds them."""

    session: str


class SkillView(Frozen):
    """A skill of a session's agent: whose it is, and who may ask for it."""

    name: str
    description: str
    trust: Trust
    source: str
    path: str
    always_on: bool = False
    for_models: bool = True
    for_people: bool = True


class PromptView(Frozen):
    """A prompt of an MCP server, under the name that a person asks for it by; `arguments` are as
    they are written, those in brackets may be left out."""

    name: str
    server: str
    description: str = ""
    arguments: tuple[str, ...] = ()


class SkillPage(Frozen):
    """What a person may ask for by `/name`. `prompts` are known once the session's agent has taken
    a step. `problems` are sentences about what of the skills could not be used."""

    skills: tuple[SkillView, ...]
    prompts: tuple[PromptView, ...] = ()
    problems: tuple[str, ...] = ()


class NewMessage(Frozen):
    """Body of `POST /v1/sessions/{id}/messages`: `text`, or a message with images and documents.

    A text `/name arguments` asks for the skill of that name, if the agent has one, or for the
    prompt `mcp_<server>_<prompt>`; `@<server>:<uri>` in it for a resource of an MCP server.

    `id` is the sender's idempotency key; without one the server makes one up.
    """

    id: str | None = None
    text: str | None = None
    message: UserMessage | None = None
    mode: Mode = "queue"
    agent: str | None = None
    model: str | None = None


class ImportMessages(Frozen):
    """Body of `POST /v1/sessions/{id}/import`: a conversation from elsewhere, for a session
    that has no messages yet."""

    messages: tuple[Message, ...] = Field(min_length=1)


class ImportedView(Frozen):
    """How many messages the session has; they are sent to models as its own."""

    messages: int


class CancelTurn(Frozen):
    """Body of `POST /v1/sessions/{id}/cancel`; `turn` defaults to the one that is open."""

    id: str | None = None
    turn: int | None = None


class CompactSession(Frozen):
    """Body of `POST /v1/sessions/{id}/compact`: an empty object, or none."""


class Undo(Frozen):
    """Body of `POST /v1/sessions/{id}/rewind/undo` and `.../compact/undo`, or none; the same `id`
    again undoes nothing more."""

    id: str | None = None


class CompactionView(Frozen):
    """Answer of `POST /v1/sessions/{id}/compact`: a summary is made before the next step."""

    status: Literal["accepted"] = "accepted"


class CompactionUndoneView(Frozen):
    """Answer of `POST /v1/sessions/{id}/compact/undo`: these positions are sent again."""

    first: int
    last: int


class FactView(Frozen):
    """A fact of a memory: `n` counts within the memory of `scope` and `owner`, which is a
    session, a person or a workspace.

    `sources` are the steps that it comes from, several for one that a consolidation merged;
    `replaced_by` is the fact that stands in its place since.
    """

    n: int
    scope: FactScope
    owner: str
    text: str
    sources: tuple[FactSource, ...] = ()
    tokens: int
    created_at: float
    replaced_by: int | None = None


class FactPage(Frozen):
    """Answer of `GET /v1/memory`."""

    facts: tuple[FactView, ...]


class NewFact(Frozen):
    """Body of `POST /v1/memory`; the same `id` again answers with the same fact.

    A fact of scope `session` names its `session`, one of scope `project` its `workspace`, and
    one of scope `user` may name the `user`.
    """

    id: str | None = None
    scope: FactScope
    text: str
    session: str | None = None
    workspace: str | None = None
    user: str | None = None


class Forgotten(Frozen):
    """Answer of `DELETE /v1/memory`: nobody is told of this fact any more."""

    fact: int


class NewKnowledge(Frozen):
    """Body of `POST /v1/knowledge`: a folder that is to be searched for a workspace. The same
    `name` again with the same folder looks anew for what has changed."""

    name: str | None = None
    folder: str
    workspace: str | None = None


class KnowledgeView(Frozen):
    """A folder that is searched; `indexing` while it is read. `embedded` counts the chunks with
    a vector of `embedding_model`, where one is set. `skipped` names the first files that were
    left out, and why, of `skipped_count`."""

    name: str
    folder: str
    workspace: str
    files: int
    chunks: int
    embedded: int = 0
    embedding_model: str | None = None
    indexing: bool = False
    problem: str | None = None
    skipped: tuple[str, ...] = ()
    skipped_count: int = 0


class KnowledgePage(Frozen):
    """Answer of `GET /v1/knowledge`."""

    bases: tuple[KnowledgeView, ...]


class PassageView(Frozen):
    """A piece of a file, with the lines that it stands in, from 1; `path` is relative to the
    `folder` of the base."""

    base: str
    folder: str
    path: str
    first: int
    last: int
    heading: str = ""
    text: str


class PassagePage(Frozen):
    """Answer of `GET /v1/knowledge/query`: the best first. `notes` tell what was not looked
    at, and why."""

    passages: tuple[PassageView, ...]
    notes: tuple[str, ...] = ()


class Removed(Frozen):
    """Answer of `DELETE /v1/knowledge`: the folder of that name is searched no more."""

    name: str


class Problem(Frozen):
    """RFC 9457 problem document."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str


class SessionPage(Frozen):
    """Answer of `GET /v1/sessions`, newest first; `before` asks for the next page, if any."""

    sessions: tuple[SessionView, ...]
    before: str | None = None


class TurnPage(Frozen):
    """Answer of `GET /v1/sessions/{id}/turns`."""

    turns: tuple[TurnView, ...]


class MessagePage(Frozen):
    """Answer of `GET /v1/sessions/{id}/messages`; `after` asks for the next page, if any."""

    messages: tuple[MessageView, ...]
    after: int | None = None
