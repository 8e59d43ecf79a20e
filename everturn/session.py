"""Sessions, turns and steps as workflows and activities speak of them: ids, counts, short previews.

These dataclasses cross Temporal. Fields are only ever added, each with a default.
"""

from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from everturn.context.cuts import Extent
from everturn.context.window import Level, Sections

OutcomeKind = Literal[
    "completed",
    "max_steps",
    "cancelled",
    "budget_exceeded",
    "ended_by_denial",
    "max_tokens",
    "model_failed",
    "rolled_back",
    "failed",
]
Placement = Literal["inline", "queued", "executor"]
"""Where a call is made: in the workflow's worker, as an activity, or, of tools, by an executor."""
Mode = Literal["queue", "steer", "interrupt", "rollback"]
Blocking = Literal["waits", "asked", "over", "unpriced"]
"""What becomes of a call that a budget does not let begin: it waits until others have ended,
or for a person; its limit is reached; or it has no price under a limit in dollars."""
Stop = Literal[
    "end_turn",
    "tool_use",
    "response",  # the tool `response` was called, and answered
    "max_tokens",
    "empty",  # a reply of nothing where an answer was due
    "unfit",  # an answer that does not fit the agent's output schema
    "refusal",
    "denied",  # a person denied a call, and the agent's turns end with that
    "cancelled",
]
TO_RECOVER: frozenset[Stop] = frozenset({"max_tokens", "empty", "unfit"})
"""Stops of replies that the model is asked to mend in its next."""


class SessionKey(NamedTuple):
    tenant: str
    session: str

    @property
    def workflow_id(self) -> str:
        return f"t/{self.tenant}/s/{self.session}"


@dataclass(frozen=True)
class TurnStart:
    """Input of a `Turn` run.

    `history_events_max` lowers the length of history at which a turn continues as new;
    0 leaves it to the server's suggestion. Only tests set it.
    """

    tenant: str
    session: str
    history_events_max: int = 0


@dataclass(frozen=True)
class BeginTurn:
    """`previous_run_id` is the run that continued as this one, if any."""

    tenant: str
    session: str
    workflow_id: str
    run_id: str
    previous_run_id: str | None
    k: int = 0


@dataclass(frozen=True)
class TurnHead:
    """Where a turn stands, as its workflow carries it.

    `step` is the last finished step; `epoch` is that of the host; `failure` ends a turn
    that cannot be worked, in plain words. `recoveries` counts the replies in a row that were
    cut or empty; up to `recoveries_max` of them are followed by a nudge. `hooks_seconds` is how
    long the hooks may take that are to be run before the first step; 0 where none are.
    `folder_due`: the session's own folder is to be made before all that, or files that a
    rolled-back turn changed are to be put back. `home` is the one whose workers come to the
    session's files; empty where any does.
    """

    tenant: str
    session: str
    turn: int
    epoch: int
    step: int = 0
    steps_max: int = 50
    cancelled: bool = False
    failure: str | None = None
    stop: Stop | None = None
    recoveries: int = 0
    recoveries_max: int = 3
    hooks_seconds: float = 0.0
    folder_due: bool = False
    home: str = ""

    def after(self, reply: "StepHead") -> "TurnHead":
        return replace(
            self,
            step=reply.step,
            stop=reply.stop,
            recoveries=self.recoveries + 1 if reply.stop in TO_RECOVER else 0,
            cancelled=self.cancelled or reply.stop == "cancelled",
        )

    def cancelling(self) -> "TurnHead":
        return replace(self, cancelled=True)


@dataclass(frozen=True)
class ToolHead:
    """A tool call of a step: which, under which placement, for how many seconds at most, and
    after which delay. `asks`: a person decides before it runs. `before_seconds` is how long the
    hooks may take that may keep it from running, `after_seconds` those that run after it; 0
    where there are none. `may_ask`: a person may be asked while it runs, when its time stands
    still. `queue` is that of the one worker that has what it needs; empty where
    any will do."""

    index: int
    name: str
    placement: Placement
    timeout_seconds: float
    delay_seconds: float = 0.0
    asks: bool = False
    before_seconds: float = 0.0
    after_seconds: float = 0.0
    may_ask: bool = False
    queue: str = ""

    @property
    def alone(self) -> bool:
        """Whether nothing comes before or after it."""
        return not (self.asks or self.before_seconds or self.after_seconds)


@dataclass(frozen=True)
class PrepareStep:
    """`resting` is the agent's own model where a fallback answers in its place, as it failed
    so often of late. `tried`: a compaction before this step has failed just now. `gathered`: this
    run has asked the agent's servers for their tools. `home` has the session's files, as a turn's
    head says."""

    tenant: str
    session: str
    turn: int
    step: int
    epoch: int
    resting: str | None = None
    tried: bool = False
    gathered: bool = False
    home: str = ""


@dataclass(frozen=True)
class ContextHead:
    """A prepared step. `upto` is the position of the last message in the context; `reruns`
    counts how often it was begun again, `cuts` pins which cuts were in force; `budgeted`:
    some budget limits the session.

    `tokens` is what the request takes, by `sections`, and `level` how full that makes the
    window. Messages before position `first` are not sent, and of turns before `since` only what
    was said. `layers` is the digest of the manifest that its prompt is composed from.
    `compaction` is the ordinal of the compaction that is due before the step can be
    taken, 0 for none; `overfull` where none can be and the request exceeds the window. `renders`:
    nothing is prepared, for an MCP server is first to be asked for what the step would read.
    """

    tenant: str
    session: str
    turn: int
    step: int
    epoch: int
    upto: int
    tokens: int
    placement: Placement
    cancelled: bool = False
    reruns: int = 0
    cuts: int = 0
    budgeted: bool = False
    level: Level = "none"
    sections: Sections | None = None
    compaction: int = 0
    overfull: bool = False
    layers: str = ""
    first: int = 1
    since: int = 0
    renders: bool = False

    @property
    def extent(self) -> Extent:
        """What of the transcript the step reads."""
        return Extent(self.upto, self.cuts, self.first, self.since)

    @property
    def ready(self) -> bool:
        """Whether the step's model call can be made."""
        return not (self.cancelled or self.compaction or self.overfull or self.renders)


@dataclass(frozen=True)
class StepHead:
    """A recorded reply."""

    step: int
    stop: Stop
    calls: list[ToolHead] = field(default_factory=list)


@dataclass(frozen=True)
class BegunStep:
    """A prepared step, with all that was inline of it already done.

    `reply` is None where the model call is still to be made, after `wait_seconds`; its
    `calls` are the tool calls still to be run. `refused`: nobody can repair the call, unless
    `compact`: then a shorter conversation may, for it was longer than the model's window.
    `blocked`: a budget does not let it begin, and the step is to be begun again after
    `wait_seconds`, or once the session is woken.
    `begin_again`: nothing is prepared, and the step is to be begun anew after the wait, and once
    the worker of the queue `gather`, where one is named, knows the tools of the agent's servers.
    `elsewhere`: nothing is done, for the session's files are at a home that is not this worker's.
    `lost`: the session's own folder is gone.
    """

    context: ContextHead
    reply: StepHead | None = None
    refused: bool = False
    wait_seconds: float = 0.0
    blocked: Blocking | None = None
    begin_again: bool = False
    gather: str = ""
    compact: bool = False
    elsewhere: bool = False
    lost: bool = False


@dataclass(frozen=True)
class RunTools:
    """Tool calls to run: the indexes of one step's calls. `home` has what they work in, as a
    turn's head says."""

    tenant: str
    session: str
    turn: int
    step: int
    epoch: int
    indexes: list[int]
    home: str = ""


@dataclass(frozen=True)
class Approved:
    """Where a step's questions stand: how many are `waiting` for a person, the next to expire
    after `wait_seconds` (None: never), which calls are `answered` and do not run, and whether a
    denial `ends` the turn."""

    waiting: int
    wait_seconds: float | None = None
    answered: list[int] = field(default_factory=list)
    ends: bool = False


@dataclass(frozen=True)
class PrepareFolder:
    """The session's own folder is to be made, or what a rolled-back turn did to files undone."""

    tenant: str
    session: str
    turn: int
    epoch: int


@dataclass(frozen=True)
class PreparedFolder:
    """Whether the folder is there; why not stands in the store. `home` has it, or is to make it;
    empty where any worker comes to what the session works in."""

    ready: bool
    home: str = ""


@dataclass(frozen=True)
class Gated:
    """Which calls of a step are answered once hooks were asked, by one that refused it or
    before: they are not run."""

    answered: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class RunHooks:
    """The hooks of a turn's agent that its session has not run yet."""

    tenant: str
    session: str
    turn: int
    epoch: int


@dataclass(frozen=True)
class EndHooks:
    """The hooks of a turn's end, which is recorded. `home` is as in a turn's head."""

    tenant: str
    session: str
    turn: int
    home: str = ""

    @property
    def workflow_id(self) -> str:
        return f"t/{self.tenant}/s/{self.session}/end/{self.turn}"


@dataclass(frozen=True)
class GatherTools:
    """The MCP servers of a turn's agent are to be launched, and asked for their tools."""

    tenant: str
    session: str
    turn: int
    epoch: int


@dataclass(frozen=True)
class Gathered:
    """How many tools the servers have; a `failure` ends the turn."""

    tools: int
    failure: str | None = None


@dataclass(frozen=True)
class ToolsDone:
    """How many of the calls ended, and how many of those with an error result; `responded`
    where one of them was the answer to the user. `elsewhere`: none has run, for what they work in
    is at a home that is not this worker's."""

    done: int
    failed: int
    responded: bool = False
    elsewhere: bool = False


@dataclass(frozen=True)
class AwaitHome:
    """Nobody took a call of a turn's at `home`: `at` which step, or of its end."""

    tenant: str
    session: str
    turn: int
    home: str
    at: str


@dataclass(frozen=True)
class Delegated:
    """Where the executors of a step's calls stand: how many of the calls are not done."""

    left: int
    failed: int = 0


@dataclass(frozen=True)
class Compact:
    """A compaction before `step`: the `ordinal`-th of its turn.

    `forced` where the provider found the request too long, whatever our counts say: such a
    one has minus the step's number for its ordinal, so that a step has one at most."""

    tenant: str
    session: str
    turn: int
    step: int
    epoch: int
    ordinal: int
    forced: bool = False


@dataclass(frozen=True)
class Compacted:
    """`cut` is the number of the cut that was made, 0 where none was; `blocked` where a budget
    is in the way of the call."""

    cut: int
    blocked: Blocking | None = None


@dataclass(frozen=True)
class Consolidate:
    """The memory of that number is to become smaller."""

    tenant: str
    memory: int

    @property
    def workflow_id(self) -> str:
        """One at a time for each memory."""
        return f"t/{self.tenant}/m/{self.memory}"


@dataclass(frozen=True)
class ScheduleStart:
    """Input of a `Scheduled` run: which schedule has started it."""

    tenant: str
    name: str


@dataclass(frozen=True)
class FireSchedule:
    """A time of a schedule has come: `at`, in seconds since 1970."""

    tenant: str
    name: str
    at: float


@dataclass(frozen=True)
class CheckInbox:
    tenant: str
    session: str
    turn: int
    cursor: int


@dataclass(frozen=True)
class InboxHead:
    """What arrived: `cursor` is the inbox position read up to."""

    cursor: int
    cancelled: bool = False


@dataclass(frozen=True)
class FinishTurn:
    tenant: str
    session: str
    workflow_id: str
    run_id: str
    turn: int
    epoch: int
    step: int
    outcome: OutcomeKind
    reason: str | None = None
    passing: bool = False
    """Time may repair what ended it."""


@dataclass(frozen=True)
class Finished:
    """`more`: the inbox holds work, and this run still hosts the session."""

    more: bool
