"""The tables, alike in every database. JSON is kept as text, times in seconds since 1970.

A session has a short number, `sid`, which every other table is keyed by.
"""

import sqlalchemy as sa

from everturn.budgets import UNITS
from everturn.memory import USER

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# Whole numbers have 64 bits everywhere: what fits into one database fits into the other.
_number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_sid = _number


def _owner(*key: str) -> list[sa.Column[int]]:
    """`sid` and the numbers below it that make up a primary key."""
    return [
        sa.Column("sid", _sid, primary_key=True, autoincrement=False),
        *(sa.Column(name, _number, primary_key=True, autoincrement=False) for name in key),
    ]


sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("sid", _sid, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("title", sa.Text, nullable=False, default=""),
    sa.Column("agent", sa.Text, nullable=False),
    sa.Column("model", sa.Text),
    sa.Column("workspace", sa.Text, nullable=False),
    sa.Column("working_dir", sa.Text, nullable=False),
    # Whether its turns work in that folder, and which own one is in its place where not.
    sa.Column("folder", sa.Text, nullable=False, default="shared"),
    sa.Column("own_dir", sa.Text),
    # The id of the home that has what it works in; NULL where any worker comes to that.
    sa.Column("home", sa.Text),
    # Why the own one could not be made when that was tried last.
    sa.Column("folder_problem", sa.Text),
    # Whose facts its turns read and keep.
    sa.Column("user", sa.Text, nullable=False, default=USER),
    # Of an executor: the session that handed its work to it, and the rules of its turns as JSON.
    sa.Column("parent_sid", _sid),
    sa.Column("rules", sa.Text),
    # Of an item's session: the one that its swarm is kept by, which is that of itself.
    sa.Column("swarm_sid", _sid),
    # Its calls are answered from the recordings of the session that it was forked from.
    sa.Column("replays", _number, nullable=False, default=0),
    # The task that is worked in it, how urgent its turns are, who is told of them, and what
    # their answers must fit; the last two as JSON.
    sa.Column("task", _sid),
    sa.Column("priority", _number),
    sa.Column("webhook", sa.Text),
    sa.Column("output", sa.Text),
    # Tools that its turns have as far as they are useful, once the first has begun.
    sa.Column("useful", sa.Text),
    # How many MCP servers each agent had when its first turn began, as JSON.
    sa.Column("served", sa.Text),
    # Whether messages of the open turn hold what an MCP server is still to be asked for.
    sa.Column("renders_due", _number, nullable=False, default=0),
    sa.Column("turn", _number, nullable=False, default=0),
    sa.Column("open_turn", _number),
    sa.Column("cancel_turn", _number, nullable=False, default=0),
    sa.Column("host_workflow_id", sa.Text),
    sa.Column("host_run_id", sa.Text),
    sa.Column("host_epoch", _number, nullable=False, default=0),
    # Set by the sender that must signal, cleared by the turn that looked.
    sa.Column("wake_at", sa.Double),
    sa.Column("inbox_pos", _number, nullable=False, default=0),
    sa.Column("message_pos", _number, nullable=False, default=0),
    # Tokens of what is sent: of the messages in no cut, and of what stands for the others.
    sa.Column("message_tokens", _number, nullable=False, default=0),
    # Of these, the tokens of earlier turns than the open one.
    sa.Column("history_tokens", _number, nullable=False, default=0),
    # Of these, what tool results take.
    sa.Column("result_tokens", _number, nullable=False, default=0),
    sa.Column("result_characters", _number, nullable=False, default=0),
    sa.Column("cut_n", _number, nullable=False, default=0),
    # What is sent begins at this position; of turns before `sent_since` only what was said.
    sa.Column("sent_first", _number, nullable=False, default=1),
    sa.Column("sent_since", _number, nullable=False, default=0),
    # A person asked for a compaction before the next step.
    sa.Column("compact_asked", _number, nullable=False, default=0),
    # Compactions of the open turn that failed since one did not.
    sa.Column("compaction_failures", _number, nullable=False, default=0),
    sa.Column("event_epoch", _number, nullable=False, default=1),
    sa.Column("event_seq", _number, nullable=False, default=0),
    # The newest life of the event log in Redis; 0 where there was none.
    sa.Column("log_epoch", _number, nullable=False, default=0),
    # An account limits it: its calls are reserved and settled.
    sa.Column("budgeted", _number, nullable=False, default=0),
    # The own folder is still to be made.
    sa.Column("folder_due", _number, nullable=False, default=0),
    # The files that turns since this one changed, from that step on, are still to be put back; 0
    # for none.
    sa.Column("restore_turn", _number, nullable=False, default=0),
    sa.Column("restore_step", _number, nullable=False, default=0),
    sa.UniqueConstraint("tenant", "id"),
    sa.Index(None, "wake_at"),
    sa.Index(None, "open_turn"),
)

inbox = sa.Table(
    "inbox",
    metadata,
    *_owner("position"),
    sa.Column("sender_id", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("mode", sa.Text, nullable=False),
    sa.Column("body", sa.Text),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("agent", sa.Text),
    sa.Column("model", sa.Text),
    # The turn that a cancel is meant for, or that a message stops.
    sa.Column("target", _number),
    sa.Column("tokens", _number, nullable=False, default=0),
    # Whether it holds what an MCP server is still to be asked for.
    sa.Column("renders", _number, nullable=False, default=0),
    # waiting, admitted (a message in a turn), rolled_back (with that turn), consumed or
    # too_late (a control)
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("turn", _number),
    sa.Column("created_at", sa.Double, nullable=False),
    # What the sender was answered, for when it asks again.
    sa.Column("newest_turn", _number, nullable=False),
    sa.Column("cursor", sa.Text, nullable=False),
    sa.Column("queued", _number, nullable=False, default=0),
    sa.Column("note", sa.Text),
    sa.UniqueConstraint("sid", "sender_id"),
    sa.Index(None, "sid", "state"),
)

specs = sa.Table(
    "specs",
    metadata,
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
)

# Texts by their digest: manifests, and the layers that they name.
blobs = sa.Table(
    "blobs",
    metadata,
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
)

# Layers that stand for a session and an agent; an empty digest is that of no text.
session_layers = sa.Table(
    "session_layers",
    metadata,
    sa.Column("sid", _sid, primary_key=True, autoincrement=False),
    sa.Column("agent", sa.Text, primary_key=True),
    sa.Column("layer", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, nullable=False),
)

# Which homes have file checkpoints of a turn's calls.
record_homes = sa.Table(
    "record_homes",
    metadata,
    *_owner("turn"),
    sa.Column("home", sa.Text, primary_key=True),
)

turns = sa.Table(
    "turns",
    metadata,
    *_owner("turn"),
    sa.Column("agent", sa.Text, nullable=False),
    sa.Column("spec_hash", sa.Text, nullable=False),
    sa.Column("started_at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
    sa.Column("outcome", sa.Text),
    sa.Column("reason", sa.Text),
    sa.Column("adoptions", _number, nullable=False, default=0),
    # Frames what strangers wrote in this turn's results: they cannot know it.
    sa.Column("boundary", sa.Text, nullable=False),
)

# What `begin_turn` decided for a run: the first writer wins, a re-run reads it.
beginnings = sa.Table(
    "beginnings",
    metadata,
    sa.Column("sid", _sid, primary_key=True, autoincrement=False),
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("k", _number, primary_key=True, autoincrement=False),
    sa.Column("head", sa.Text, nullable=False),
)

# One step: its context as prepared, and the journal of its model call.
steps = sa.Table(
    "steps",
    metadata,
    *_owner("turn", "step"),
    sa.Column("context", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),  # prepared, started, failed, done
    sa.Column("attempt", _number, nullable=False, default=0),
    sa.Column("model", sa.Text, nullable=False, default=""),
    sa.Column("placement", sa.Text, nullable=False),
    sa.Column("worker", sa.Text),
    sa.Column("nonce", sa.Text),
    sa.Column("task_token", sa.LargeBinary),
    sa.Column("started_at", sa.Double),
    sa.Column("ended_at", sa.Double),
    sa.Column("stop", sa.Text),
    sa.Column("head", sa.Text),
    # Why the newest attempt failed, in plain words; NULL once a reply is there.
    sa.Column("error", sa.Text),
    # The provider refused it, and would again.
    sa.Column("refused", _number, nullable=False, default=0),
    # Attempts that the model now asked failed; one that lost its worker is not among them, and
    # those that fell silent are counted apart.
    sa.Column("failures", _number, nullable=False, default=0),
    sa.Column("stalls", _number, nullable=False, default=0),
    # How often the step was begun again after it was prepared.
    sa.Column("reruns", _number, nullable=False, default=0),
    sa.Column("context_tokens", _number, nullable=False, default=0),
    sa.Column("input_tokens", _number, nullable=False, default=0),
    sa.Column("output_tokens", _number, nullable=False, default=0),
    sa.Column("cached_tokens", _number, nullable=False, default=0),
    sa.Column("reasoning_tokens", _number, nullable=False, default=0),
    sa.Column("cost_usd", sa.Double),
    # The provider told no usage, or the call was cut off: the tokens are our own count.
    sa.Column("estimated", _number, nullable=False, default=0),
    # Tool results of this step stand in the transcript.
    sa.Column("results_told", _number, nullable=False, default=0),
    sa.Index(None, "state"),
    sa.Index(None, "model", "ended_at"),
)

tool_calls = sa.Table(
    "tool_calls",
    metadata,
    *_owner("turn", "step", "idx"),
    sa.Column("call_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("arguments", sa.Text, nullable=False),
    sa.Column("malformed", sa.Text),
    # Of name and arguments; NULL where the call was answered without being run.
    sa.Column("digest", sa.Text),
    sa.Column("placement", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),  # proposed, started, done
    sa.Column("attempt", _number, nullable=False, default=0),
    sa.Column("worker", sa.Text),
    sa.Column("nonce", sa.Text),
    sa.Column("task_token", sa.LargeBinary),
    sa.Column("started_at", sa.Double),
    sa.Column("ended_at", sa.Double),
    sa.Column("duration_seconds", sa.Double),
    sa.Column("result", sa.Text),
    sa.Column("failed", _number, nullable=False, default=0),
    sa.Column("tokens", _number, nullable=False, default=0),
    # A person has not decided yet whether it may run.
    sa.Column("asks", _number, nullable=False, default=0),
    # A person had it run with other arguments than the model's.
    sa.Column("edited", _number, nullable=False, default=0),
    # Hooks have not let it pass yet; hooks are still to be told of its result.
    sa.Column("gated", _number, nullable=False, default=0),
    sa.Column("followed", _number, nullable=False, default=0),
    # What hooks had to say to the result.
    sa.Column("note", sa.Text),
    # The result is that of a turn that is worked again, and nothing was run.
    sa.Column("recorded", _number, nullable=False, default=0),
    # The digest of the whole result, where that was too long to be shown.
    sa.Column("whole", sa.Text),
    sa.Index(None, "state"),
    sa.Index(None, "name", "ended_at"),
    # Ordered to its end, or SQLite scans the turn instead of sorting a few rows.
    sa.Index("ix_tool_calls_digest", "sid", "turn", "digest", "step", "idx"),
)

messages = sa.Table(
    "messages",
    metadata,
    *_owner("position"),
    sa.Column("turn", _number, nullable=False),
    sa.Column("step", _number, nullable=False),
    sa.Column("part", _number, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("tokens", _number, nullable=False),
    sa.Column("result_characters", _number, nullable=False, default=0),
    # By a turn's user, or to it: no part of the work between.
    sa.Column("said", _number, nullable=False, default=0),
    sa.Column("created_at", sa.Double, nullable=False),
    # Last, for SQLite reads through whatever stands before a column.
    sa.Column("body", sa.Text, nullable=False),
    sa.UniqueConstraint("sid", "turn", "step", "part"),
)

# The journal of model calls that are no step: `kind` is compaction, title or memory.
side_calls = sa.Table(
    "side_calls",
    metadata,
    *_owner("turn"),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("ordinal", _number, primary_key=True, autoincrement=False),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),  # started, failed, done
    sa.Column("attempt", _number, nullable=False, default=0),
    sa.Column("failures", _number, nullable=False, default=0),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("worker", sa.Text),
    sa.Column("nonce", sa.Text),
    sa.Column("task_token", sa.LargeBinary),
    sa.Column("started_at", sa.Double),
    # Set once a reply stands, or the call was given up.
    sa.Column("ended_at", sa.Double),
    # The same for requests of the same content: such a reply is paid for once.
    sa.Column("content_key", sa.Text),
    sa.Column("reply", sa.Text),
    sa.Column("error", sa.Text),
    sa.Column("input_tokens", _number, nullable=False, default=0),
    sa.Column("output_tokens", _number, nullable=False, default=0),
    sa.Column("cached_tokens", _number, nullable=False, default=0),
    sa.Column("reasoning_tokens", _number, nullable=False, default=0),
    sa.Column("cost_usd", sa.Double),
    sa.Index(None, "content_key"),
    sa.Index(None, "state"),
)

# Ranges of messages that are no longer sent; `body` is the text that stands for them.
cuts = sa.Table(
    "cuts",
    metadata,
    *_owner("n"),
    sa.Column("kind", sa.Text, nullable=False),  # compaction, rollback, rewind
    sa.Column("first", _number, nullable=False),
    sa.Column("last", _number, nullable=False),
    sa.Column("turn", _number, nullable=False),
    sa.Column("body", sa.Text),
    sa.Column("tokens", _number, nullable=False, default=0),
    sa.Column("created_at", sa.Double, nullable=False),
    # The number of the change that took it back.
    sa.Column("undone_n", _number),
    sa.Column("undone_at", sa.Double),
    # Of the newest change to the row: who runs that one again finds what it did.
    sa.Column("nonce", sa.Text),
)

# Whose facts: `owner` is a session's id, a person or a workspace, as `scope` says.
memories = sa.Table(
    "memories",
    metadata,
    sa.Column("id", _sid, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("scope", sa.Text, nullable=False),  # session, user, project
    sa.Column("owner", sa.Text, nullable=False),
    # The newest fact's number, and the facts in force with their tokens.
    sa.Column("n", _number, nullable=False, default=0),
    sa.Column("facts", _number, nullable=False, default=0),
    sa.Column("tokens", _number, nullable=False, default=0),
    # So many tokens ask for no consolidation: the last one left them, or failed at them.
    sa.Column("quiet_tokens", _number, nullable=False, default=0),
    # A consolidation is due since then, for this turn; NULL where none is.
    sa.Column("due_at", sa.Double),
    sa.Column("due_sid", _sid),
    sa.Column("due_turn", _number),
    sa.UniqueConstraint("tenant", "scope", "owner"),
    sa.Index(None, "due_at"),
)

facts = sa.Table(
    "facts",
    metadata,
    sa.Column("memory", _sid, primary_key=True, autoincrement=False),
    sa.Column("n", _number, primary_key=True, autoincrement=False),
    sa.Column("text", sa.Text, nullable=False),  # empty once it was forgotten
    sa.Column("tokens", _number, nullable=False),
    # The saver's idempotency key.
    sa.Column("key", sa.Text, nullable=False),
    # The steps that it comes from, as JSON; none where a person added it.
    sa.Column("sources", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    # The fact that a consolidation put in its place.
    sa.Column("replaced_by", _number),
    sa.Column("forgotten_at", sa.Double),
    sa.UniqueConstraint("memory", "key"),
)

# Folders of a workspace that are searched; what is found in them is no truth, and stands in
# an index of its own.
knowledge_bases = sa.Table(
    "knowledge_bases",
    metadata,
    sa.Column("id", _sid, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("workspace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("folder", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.UniqueConstraint("tenant", "workspace", "name"),
    # What still reads a folder that was removed must not find its number at another.
    sqlite_autoincrement=True,
)

# Messages that are sent at set times; Temporal is told the times of one that is `due_at`.
schedules = sa.Table(
    "schedules",
    metadata,
    sa.Column("id", _sid, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("session", sa.Text),
    sa.Column("body", sa.Text, nullable=False),
    # active, paused, ended (it has sent all that it was to), removed (Temporal may not know it)
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("sent", _number, nullable=False, default=0),
    sa.Column("created_at", sa.Double, nullable=False),
    # Counts the changes; `due_at` is since when, or until when put off, Temporal is to hear of
    # the newest, and NULL once it has.
    sa.Column("version", _number, nullable=False, default=1),
    sa.Column("due_at", sa.Double),
    sa.Column("problem", sa.Text),
    # Its first time of which nobody has looked whether it was missed; NULL where none is to come.
    sa.Column("unsettled_at", sa.Double),
    sa.UniqueConstraint("tenant", "name"),
    sa.Index(None, "due_at"),
    sa.Index(None, "unsettled_at"),
)

# What became of each time of a schedule: once, however often it is asked.
firings = sa.Table(
    "firings",
    metadata,
    sa.Column("schedule", _sid, primary_key=True, autoincrement=False),
    # The time, or by which id a person asked for this run.
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("by_hand", _number, nullable=False, default=0),
    sa.Column("state", sa.Text, nullable=False),  # sent, skipped, missed, failed
    sa.Column("why", sa.Text, nullable=False, default=""),
    sa.Column("sid", _sid),
    sa.Column("sender_id", sa.Text),
    sa.Index(None, "schedule", "at"),
)

# Calls that make vectors of texts: a tenant's, and no session's.
embeddings = sa.Table(
    "embeddings",
    metadata,
    sa.Column("id", _sid, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("workspace", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("texts", _number, nullable=False),
    # open, done, refunded (nothing was answered), lost (its process died)
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("nonce", sa.Text, nullable=False),
    sa.Column("day", sa.Text, nullable=False),
    sa.Column("started_at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
    sa.Column("reserved_tokens", sa.BigInteger, nullable=False),
    sa.Column("reserved_usd", sa.BigInteger),
    sa.Column("input_tokens", sa.BigInteger, nullable=False, default=0),
    sa.Column("usd", sa.BigInteger),  # NULL where the price is unknown
    sa.Index(None, "tenant", "state"),
)

events = sa.Table(
    "events",
    metadata,
    *_owner("epoch", "seq"),
    sa.Column("event_id", sa.Text, nullable=False),
    sa.Column("turn", _number, nullable=False),
    sa.Column("step", _number, nullable=False),
    sa.Column("attempt", _number, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("time", sa.Double, nullable=False),
    sa.UniqueConstraint("sid", "event_id"),
)


def _amounts(*kinds: str, nullable: bool = False) -> list[sa.Column[int]]:
    """One column for each kind and unit, in the whole numbers of `everturn.budgets`."""
    default = None if nullable else 0
    return [
        sa.Column(f"{kind}_{unit}", sa.BigInteger, nullable=nullable, default=default)
        for kind in kinds
        for unit in UNITS
    ]


# What may be spent and what is, for a session, a tenant (`sid` 0) and a tenant's day. Only
# what has a limit has an account: all other sums are those of `steps`.
accounts = sa.Table(
    "accounts",
    metadata,
    sa.Column("id", _sid, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("sid", _sid, nullable=False, default=0),
    sa.Column("scope", sa.Text, nullable=False),  # session, tenant, day
    # The UTC day that the sums of a day's account are of.
    sa.Column("day", sa.Text, nullable=False, default=""),
    # The account that this one draws from too: an executor's is its parent's session's.
    sa.Column("parent", _sid),
    sa.Column("soft", sa.Double),
    # The agent's budget as it was last applied to this session, as JSON.
    sa.Column("applied", sa.Text, nullable=False, default=""),
    # `mark` is what a person is asked at.
    *_amounts("limit", "mark", nullable=True),
    *_amounts("reserved", "spent"),
    sa.UniqueConstraint("tenant", "sid", "scope"),
)

# One row a reservation, and one for each lost or cut attempt whether or not it was reserved.
entries = sa.Table(
    "entries",
    metadata,
    *_owner("turn", "step", "attempt"),
    sa.Column("what", sa.Text, primary_key=True),  # model, tools, compaction
    sa.Column("model", sa.Text, nullable=False, default=""),
    sa.Column("worker", sa.Text),
    sa.Column("day", sa.Text, nullable=False),
    # open, settled, refunded (nothing was answered), cut (failed after it answered),
    # lost (its worker died)
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("estimated", _number, nullable=False, default=0),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
    *_amounts("reserved"),
    sa.Column("usd", sa.BigInteger),  # NULL where the price is unknown
    sa.Column("input_tokens", _number, nullable=False, default=0),
    sa.Column("output_tokens", _number, nullable=False, default=0),
    sa.Column("cached_tokens", _number, nullable=False, default=0),
    sa.Column("reasoning_tokens", _number, nullable=False, default=0),
    sa.Column("steps", _number, nullable=False, default=0),
    sa.Column("milliseconds", sa.BigInteger, nullable=False, default=0),
    sa.Index(None, "state"),
)

# Calls of `delegate`, by the session that made them; `child` is the session that works one.
executors = sa.Table(
    "executors",
    metadata,
    *_owner("turn", "step", "idx"),
    sa.Column("child", sa.Text, nullable=False),
    # Under which id the child's inbox has the task.
    sa.Column("sender_id", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("background", _number, nullable=False, default=0),
    # How many of the session's executors may work at once.
    sa.Column("width", _number, nullable=False),
    # waits (for a place), begun (the child may not have the task yet), running, done, dropped
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("outcome", sa.Text),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("begun_at", sa.Double),
    sa.Column("ended_at", sa.Double),
    sa.Index(None, "sid", "state"),
    sa.Index(None, "sid", "child"),
    sa.Index(None, "state"),
)

# Swarms, each by a session that draws on its budget and that nobody speaks with.
swarms = sa.Table(
    "swarms",
    metadata,
    *_owner(),
    sa.Column("body", sa.Text, nullable=False),
    # running, paused, stopping, done
    sa.Column("state", sa.Text, nullable=False),
    # Why it stopped before its items were worked: cancelled, quorum, deadline, budget.
    sa.Column("reason", sa.Text),
    # More items may be added.
    sa.Column("open", _number, nullable=False, default=1),
    # Which level is worked: 0 are the items, those above reduce the one below.
    sa.Column("level", _number, nullable=False, default=0),
    sa.Column("items", _number, nullable=False, default=0),
    sa.Column("completed", _number, nullable=False, default=0),
    # How often it was resumed for what had failed: what reduces is then made anew.
    sa.Column("rounds", _number, nullable=False, default=0),
    # How many have ended, which numbers them in the order of their ends.
    sa.Column("settled", _number, nullable=False, default=0),
    sa.Column("cost_usd", sa.Double, nullable=False, default=0.0),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("begun_at", sa.Double),
    sa.Column("ended_at", sa.Double),
    # Set by who changed something, cleared by the workflow that looked.
    sa.Column("wake_at", sa.Double),
    # The hash of the spec that all items are worked under, and of that of what reduces.
    sa.Column("spec_hash", sa.Text),
    sa.Column("reduce_hash", sa.Text),
    # Its items act on nothing, so that one of them may be worked twice at once.
    sa.Column("harmless", _number, nullable=False, default=0),
    sa.Index(None, "wake_at"),
    sa.Index(None, "state"),
)

swarm_items = sa.Table(
    "swarm_items",
    metadata,
    *_owner("level", "n"),
    sa.Column("name", sa.Text, nullable=False),
    # An item's fields, or the numbers of what a node reduces, as JSON.
    sa.Column("input", sa.Text, nullable=False),
    # waiting, taken (by a shard, without a session yet), running, done, failed, cancelled, skipped
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("attempts", _number, nullable=False, default=0),
    # Which taking of which shard's run has it.
    sa.Column("taken_by", sa.Text),
    sa.Column("child", sa.Text),
    # A second session that works a straggler too, which taking has it, and whether it has begun.
    sa.Column("twin", sa.Text),
    sa.Column("twin_taken_by", sa.Text),
    sa.Column("twin_begun", _number, nullable=False, default=0),
    sa.Column("outcome", sa.Text),
    sa.Column("reason", sa.Text),
    sa.Column("text", sa.Text),
    sa.Column("steps", _number, nullable=False, default=0),
    sa.Column("cost_usd", sa.Double, nullable=False, default=0.0),
    sa.Column("begun_at", sa.Double),
    sa.Column("ended_at", sa.Double),
    sa.Column("settled", _number),
    # Before the level, as in the indexes: a planner without statistics that could read a level by
    # one of them would do so for each of its items.
    sa.UniqueConstraint("sid", "name", "level"),
    sa.Index(None, "sid", "state", "level", "n"),
    sa.Index(None, "sid", "settled"),
    sa.Index(None, "sid", "taken_by"),
    sa.Index(None, "sid", "child"),
    sa.Index(None, "sid", "twin"),
    sa.Index(None, "sid", "twin_taken_by"),
)

# Sessions that began with the messages of another, `origin`, up to `position`.
forks = sa.Table(
    "forks",
    metadata,
    *_owner(),
    sa.Column("origin", _sid, nullable=False),
    # Its id, which outlives it.
    sa.Column("origin_id", sa.Text, nullable=False),
    # The last step whose messages came along; NULL for the whole turn.
    sa.Column("turn", _number, nullable=False),
    sa.Column("step", _number),
    sa.Column("position", _number, nullable=False),
    # The number of its cuts, as they came along.
    sa.Column("cuts", _number, nullable=False),
    # Of what it was asked for, for who asks again.
    sa.Column("digest", sa.Text, nullable=False),
    # What becomes of a call without a recording; NULL where no turn is worked again.
    sa.Column("unrecorded", sa.Text),
    # The origin's turn that is being worked again; which those are, and by whom, as JSON.
    sa.Column("playing", _number),
    sa.Column("plan", sa.Text),
)

# Results of the turns that a fork works again, by the digest of their calls.
recordings = sa.Table(
    "recordings",
    metadata,
    *_owner("n"),
    sa.Column("turn", _number, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("failed", _number, nullable=False),
    sa.Column("tokens", _number, nullable=False),
    sa.Column("taken", _number, nullable=False, default=0),
    sa.Column("result", sa.Text, nullable=False),
    sa.Index(None, "sid", "turn", "digest", "n"),
)

# Hooks that a session has begun, each by the digest of its command: an intent, then its end.
# `place` is empty for those that run once a session, else the call or the turn's end beside
# which the hook runs.
hook_runs = sa.Table(
    "hook_runs",
    metadata,
    *_owner(),
    sa.Column("place", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("turn", _number, nullable=False),
    sa.Column("state", sa.Text, nullable=False),  # due, started, done
    sa.Column("attempt", _number, nullable=False, default=1),
    sa.Column("worker", sa.Text, nullable=False),
    sa.Column("nonce", sa.Text, nullable=False),
    sa.Column("task_token", sa.LargeBinary),
    sa.Column("started_at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
    sa.Column("exit_code", _number),
    sa.Column("output", sa.Text, nullable=False, default=""),
    # When whoever looks is to begin those of a turn's end; NULL for all others.
    sa.Column("due_at", sa.Double),
    sa.Index(None, "state"),
    sa.Index(None, "due_at"),
)

# What an agent's MCP servers offered when it first worked in a session.
served_tools = sa.Table(
    "served_tools",
    metadata,
    *_owner(),
    sa.Column("agent", sa.Text, primary_key=True),
    sa.Column("server", sa.Text, primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
    # The worker that has it, where it remembers what the session did.
    sa.Column("home", sa.Text),
)

# What a person was asked about a budget, and the answer.
budget_asks = sa.Table(
    "budget_asks",
    metadata,
    *_owner("n"),
    sa.Column("turn", _number, nullable=False),
    sa.Column("account", _sid, nullable=False),
    sa.Column("unit", sa.Text, nullable=False),
    sa.Column("limit", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),  # open, raised, denied, closed
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Index(None, "account", "state"),
)

# What a person was asked about a tool call, as it was shown, or by one, and the answer. Their
# numbers and those of `budget_asks` are one sequence.
approvals = sa.Table(
    "approvals",
    metadata,
    *_owner("n"),
    sa.Column("turn", _number, nullable=False),
    sa.Column("step", _number, nullable=False),
    sa.Column("idx", _number, nullable=False),
    # 0 is about the call itself; a call that runs numbers its questions from 1.
    sa.Column("part", _number, nullable=False, default=0),
    sa.Column("kind", sa.Text, nullable=False, default="approval"),  # approval, question
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("arguments", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("preview", sa.Text),
    # The JSON schema that an answer must fit, if it is to be more than a text.
    sa.Column("schema", sa.Text),
    # open, approved, denied, answered, expired, closed
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("answer", sa.Text),
    sa.Column("reason", sa.Text, nullable=False, default=""),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.Column("answered_at", sa.Double),
    sa.UniqueConstraint("sid", "turn", "step", "idx", "part"),
    sa.Index(None, "state"),
)

# Calls that need no further leave in their session: of that tool, with arguments like these.
grants = sa.Table(
    "grants",
    metadata,
    *_owner("n"),
    sa.Column("tool", sa.Text, nullable=False),
    sa.Column("pattern", sa.Text, nullable=False),
)

# The governor: what is shared by all calls under one provider key, and who waits for it.
governor_keys = sa.Table(
    "governor_keys",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("provider", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("changed_at", sa.Double, nullable=False),
)

governor_waiters = sa.Table(
    "governor_waiters",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("tag", sa.Double, nullable=False),
    sa.Column("number", _number, nullable=False),
    sa.Column("since", sa.Double, nullable=False),
    sa.Column("due", sa.Double, nullable=False),
    sa.Column("line", sa.Text, nullable=False),  # rate, busy, open
    sa.Index(None, "key", "tag", "number"),
)

governor_leases = sa.Table(
    "governor_leases",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("until", sa.Double, nullable=False),
)

# One circuit breaker for each model at a provider, whichever key its calls go under.
governor_breakers = sa.Table(
    "governor_breakers",
    metadata,
    sa.Column("provider", sa.Text, primary_key=True),
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("changed_at", sa.Double, nullable=False),
)

# Work that was handed in; each is worked in a session of its own, attempt by attempt.
tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("n", _sid, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("sid", _sid, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    # waits (for a time), begun (an attempt), done, dead, cancelled
    sa.Column("state", sa.Text, nullable=False),
    # The newest attempt, and the first of those that count against the limit.
    sa.Column("attempt", _number, nullable=False, default=0),
    sa.Column("first", _number, nullable=False, default=1),
    sa.Column("deadline", sa.Double),
    # When the next attempt begins, and when somebody looks whether a time is up.
    sa.Column("due_at", sa.Double),
    sa.Column("look_at", sa.Double),
    sa.Column("reason", sa.Text),
    sa.Column("result", sa.Text),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
    sa.UniqueConstraint("tenant", "id"),
    sa.Index(None, "tenant", "state", "n"),
    sa.Index(None, "due_at"),
    sa.Index(None, "look_at"),
)

task_attempts = sa.Table(
    "task_attempts",
    metadata,
    sa.Column("task", _sid, primary_key=True, autoincrement=False),
    sa.Column("attempt", _number, primary_key=True, autoincrement=False),
    sa.Column("begun_at", sa.Double, nullable=False),
    # What ends it from outside: deadline, time (its own), cancel.
    sa.Column("stopped", sa.Text),
    sa.Column("turn", _number),
    sa.Column("outcome", sa.Text),
    sa.Column("reason", sa.Text),
    sa.Column("cost_usd", sa.Double),
    sa.Column("ended_at", sa.Double),
)

# What somebody outside is to be told, written in the transaction of what it tells.
webhooks = sa.Table(
    "webhooks",
    metadata,
    sa.Column("n", _sid, primary_key=True),
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("sid", _sid, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("secret", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),  # waits, delivered, dead
    sa.Column("attempts", _number, nullable=False, default=0),
    sa.Column("reason", sa.Text),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("due_at", sa.Double),
    sa.UniqueConstraint("id"),
    sa.Index(None, "sid"),
    sa.Index(None, "due_at"),
)

# Workers that have not ended by themselves, with the leases that they renew.
workers = sa.Table(
    "workers",
    metadata,
    sa.Column("instance", sa.Text, primary_key=True),
    sa.Column("home", sa.Text, nullable=False),
    # Where that is on its machine.
    sa.Column("path", sa.Text, nullable=False, default=""),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("roles", sa.Text, nullable=False),
    sa.Column("build", sa.Text, nullable=False),
    # How much it takes at a time and has under way, by names, as JSON; whether it takes no more.
    sa.Column("slots", sa.Text, nullable=False),
    sa.Column("under_way", sa.Text, nullable=False),
    sa.Column("draining", _number, nullable=False),
    sa.Column("started_at", sa.Double, nullable=False),
    sa.Column("renewed_at", sa.Double, nullable=False),
    # Since when no renewal came too late: only then it may judge others.
    sa.Column("steady_since", sa.Double, nullable=False),
)
