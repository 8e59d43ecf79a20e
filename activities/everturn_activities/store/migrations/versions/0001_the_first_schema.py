"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _create_workers()
    _create_budgets()
    _create_approvals()
    _create_governor()
    _create_memory()
    _create_tasks()
    op.create_table(
        "blobs",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_blobs")),
    )
    op.create_table(
        "session_layers",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("layer", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sid", "agent", "layer", name=op.f("pk_session_layers")),
    )
    op.create_table(
        "record_homes",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("turn", NUMBER, autoincrement=False, nullable=False),
        sa.Column("home", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sid", "turn", "home", name=op.f("pk_record_homes")),
    )
    op.create_table(
        "beginnings",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("k", NUMBER, autoincrement=False, nullable=False),
        sa.Column("head", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sid", "run_id", "k", name=op.f("pk_beginnings")),
    )
    op.create_table(
        "cuts",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("n", NUMBER, autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("first", NUMBER, nullable=False),
        sa.Column("last", NUMBER, nullable=False),
        sa.Column("turn", NUMBER, nullable=False),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("tokens", NUMBER, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("undone_n", NUMBER, nullable=True),
        sa.Column("undone_at", sa.Double(), nullable=True),
        sa.Column("nonce", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("sid", "n", name=op.f("pk_cuts")),
    )
    op.create_table(
        "events",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("epoch", NUMBER, autoincrement=False, nullable=False),
        sa.Column("seq", NUMBER, autoincrement=False, nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("turn", NUMBER, nullable=False),
        sa.Column("step", NUMBER, nullable=False),
        sa.Column("attempt", NUMBER, nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("sid", "epoch", "seq", name=op.f("pk_events")),
        sa.UniqueConstraint("sid", "event_id", name=op.f("uq_events_sid_event_id")),
    )
    _create_executors()
    _create_swarms()
    _create_forks()
    _create_hook_runs()
    _create_served_tools()
    _create_schedules()
    op.create_table(
        "inbox",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("position", NUMBER, autoincrement=False, nullable=False),
        sa.Column("sender_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("target", NUMBER, nullable=True),
        sa.Column("tokens", NUMBER, nullable=False),
        sa.Column("renders", NUMBER, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("turn", NUMBER, nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("newest_turn", NUMBER, nullable=False),
        sa.Column("cursor", sa.Text(), nullable=False),
        sa.Column("queued", NUMBER, nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("sid", "position", name=op.f("pk_inbox")),
        sa.UniqueConstraint("sid", "sender_id", name=op.f("uq_inbox_sid_sender_id")),
    )
    with op.batch_alter_table("inbox", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_inbox_sid_state"), ["sid", "state"], unique=False)

    op.create_table(
        "messages",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("position", NUMBER, autoincrement=False, nullable=False),
        sa.Column("turn", NUMBER, nullable=False),
        sa.Column("step", NUMBER, nullable=False),
        sa.Column("part", NUMBER, nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("tokens", NUMBER, nullable=False),
        sa.Column("result_characters", NUMBER, nullable=False),
        sa.Column("said", NUMBER, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sid", "position", name=op.f("pk_messages")),
        sa.UniqueConstraint(
            "sid", "turn", "step", "part", name=op.f("uq_messages_sid_turn_step_part")
        ),
    )
    op.create_table(
        "sessions",
        sa.Column("sid", NUMBER, nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("workspace", sa.Text(), nullable=False),
        sa.Column("working_dir", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("own_dir", sa.Text(), nullable=True),
        sa.Column("home", sa.Text(), nullable=True),
        sa.Column("folder_problem", sa.Text(), nullable=True),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("parent_sid", NUMBER, nullable=True),
        sa.Column("rules", sa.Text(), nullable=True),
        sa.Column("swarm_sid", NUMBER, nullable=True),
        sa.Column("replays", NUMBER, nullable=False),
        sa.Column("task", NUMBER, nullable=True),
        sa.Column("priority", NUMBER, nullable=True),
        sa.Column("webhook", sa.Text(), nullable=True),
        sa.Column("output", sa.Text(), nullable=True),
        sa.Column("useful", sa.Text(), nullable=True),
        sa.Column("served", sa.Text(), nullable=True),
        sa.Column("renders_due", NUMBER, nullable=False),
        sa.Column("turn", NUMBER, nullable=False),
        sa.Column("open_turn", NUMBER, nullable=True),
        sa.Column("cancel_turn", NUMBER, nullable=False),
        sa.Column("host_workflow_id", sa.Text(), nullable=True),
        sa.Column("host_run_id", sa.Text(), nullable=True),
        sa.Column("host_epoch", NUMBER, nullable=False),
        sa.Column("wake_at", sa.Double(), nullable=True),
        sa.Column("inbox_pos", NUMBER, nullable=False),
        sa.Column("message_pos", NUMBER, nullable=False),
        sa.Column("message_tokens", NUMBER, nullable=False),
        sa.Column("history_tokens", NUMBER, nullable=False),
        sa.Column("result_tokens", NUMBER, nullable=False),
        sa.Column("result_characters", NUMBER, nullable=False),
        sa.Column("cut_n", NUMBER, nullable=False),
        sa.Column("sent_first", NUMBER, nullable=False),
        sa.Column("sent_since", NUMBER, nullable=False),
        sa.Column("compact_asked", NUMBER, nullable=False),
        sa.Column("compaction_failures", NUMBER, nullable=False),
        sa.Column("event_epoch", NUMBER, nullable=False),
        sa.Column("event_seq", NUMBER, nullable=False),
        sa.Column("log_epoch", NUMBER, nullable=False),
        sa.Column("budgeted", NUMBER, nullable=False),
        sa.Column("folder_due", NUMBER, nullable=False),
        sa.Column("restore_turn", NUMBER, nullable=False),
        sa.Column("restore_step", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("sid", name=op.f("pk_sessions")),
        sa.UniqueConstraint("tenant", "id", name=op.f("uq_sessions_tenant_id")),
    )
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_sessions_open_turn"), ["open_turn"], unique=False)
        batch_op.create_index(batch_op.f("ix_sessions_wake_at"), ["wake_at"], unique=False)

    op.create_table(
        "side_calls",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("turn", NUMBER, autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("ordinal", NUMBER, autoincrement=False, nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", NUMBER, nullable=False),
        sa.Column("failures", NUMBER, nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("nonce", sa.Text(), nullable=True),
        sa.Column("task_token", sa.LargeBinary(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("content_key", sa.Text(), nullable=True),
        sa.Column("reply", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("input_tokens", NUMBER, nullable=False),
        sa.Column("output_tokens", NUMBER, nullable=False),
        sa.Column("cached_tokens", NUMBER, nullable=False),
        sa.Column("reasoning_tokens", NUMBER, nullable=False),
        sa.Column("cost_usd", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("sid", "turn", "kind", "ordinal", name=op.f("pk_side_calls")),
    )
    with op.batch_alter_table("side_calls", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_side_calls_content_key"), ["content_key"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_side_calls_state"), ["state"], unique=False)

    op.create_table(
        "specs",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_specs")),
    )
    op.create_table(
        "steps",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("turn", NUMBER, autoincrement=False, nullable=False),
        sa.Column("step", NUMBER, autoincrement=False, nullable=False),
        sa.Column("context", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", NUMBER, nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("placement", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("nonce", sa.Text(), nullable=True),
        sa.Column("task_token", sa.LargeBinary(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("stop", sa.Text(), nullable=True),
        sa.Column("head", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("refused", NUMBER, nullable=False),
        sa.Column("failures", NUMBER, nullable=False),
        sa.Column("stalls", NUMBER, nullable=False),
        sa.Column("reruns", NUMBER, nullable=False),
        sa.Column("context_tokens", NUMBER, nullable=False),
        sa.Column("input_tokens", NUMBER, nullable=False),
        sa.Column("output_tokens", NUMBER, nullable=False),
        sa.Column("cached_tokens", NUMBER, nullable=False),
        sa.Column("reasoning_tokens", NUMBER, nullable=False),
        sa.Column("cost_usd", sa.Double(), nullable=True),
        sa.Column("estimated", NUMBER, nullable=False),
        sa.Column("results_told", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("sid", "turn", "step", name=op.f("pk_steps")),
    )
    with op.batch_alter_table("steps", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_steps_model_ended_at"), ["model", "ended_at"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_steps_state"), ["state"], unique=False)

    op.create_table(
        "tool_calls",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("turn", NUMBER, autoincrement=False, nullable=False),
        sa.Column("step", NUMBER, autoincrement=False, nullable=False),
        sa.Column("idx", NUMBER, autoincrement=False, nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("malformed", sa.Text(), nullable=True),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.Column("placement", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", NUMBER, nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("nonce", sa.Text(), nullable=True),
        sa.Column("task_token", sa.LargeBinary(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("duration_seconds", sa.Double(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("failed", NUMBER, nullable=False),
        sa.Column("tokens", NUMBER, nullable=False),
        sa.Column("asks", NUMBER, nullable=False),
        sa.Column("edited", NUMBER, nullable=False),
        sa.Column("gated", NUMBER, nullable=False),
        sa.Column("followed", NUMBER, nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("recorded", NUMBER, nullable=False),
        sa.Column("whole", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("sid", "turn", "step", "idx", name=op.f("pk_tool_calls")),
    )
    with op.batch_alter_table("tool_calls", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_tool_calls_name_ended_at"), ["name", "ended_at"], unique=False
        )
        batch_op.create_index(
            "ix_tool_calls_digest", ["sid", "turn", "digest", "step", "idx"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_tool_calls_state"), ["state"], unique=False)

    op.create_table(
        "turns",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("turn", NUMBER, autoincrement=False, nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("spec_hash", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("adoptions", NUMBER, nullable=False),
        sa.Column("boundary", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sid", "turn", name=op.f("pk_turns")),
    )


def downgrade() -> None:
    op.drop_table("workers")
    _drop_tasks()
    _drop_memory()
    _drop_governor()
    _drop_approvals()
    _drop_budgets()
    op.drop_table("turns")
    with op.batch_alter_table("tool_calls", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_tool_calls_state"))
        batch_op.drop_index(batch_op.f("ix_tool_calls_name_ended_at"))

    op.drop_table("tool_calls")
    with op.batch_alter_table("steps", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_steps_state"))
        batch_op.drop_index(batch_op.f("ix_steps_model_ended_at"))

    op.drop_table("steps")
    op.drop_table("specs")
    with op.batch_alter_table("side_calls", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_side_calls_state"))
        batch_op.drop_index(batch_op.f("ix_side_calls_content_key"))

    op.drop_table("side_calls")
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_sessions_wake_at"))
        batch_op.drop_index(batch_op.f("ix_sessions_open_turn"))

    op.drop_table("sessions")
    op.drop_table("messages")
    with op.batch_alter_table("inbox", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_inbox_sid_state"))

    op.drop_table("inbox")
    _drop_schedules()
    _drop_hook_runs()
    op.drop_table("swarm_items")
    op.drop_table("swarms")
    _drop_executors()
    _drop_forks()
    op.drop_table("served_tools")
    op.drop_table("events")
    op.drop_table("cuts")
    op.drop_table("beginnings")
    op.drop_table("record_homes")
    op.drop_table("session_layers")
    op.drop_table("blobs")


def _create_swarms() -> None:
    op.create_table(
        "swarms",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("open", NUMBER, nullable=False),
        sa.Column("level", NUMBER, nullable=False),
        sa.Column("items", NUMBER, nullable=False),
        sa.Column("completed", NUMBER, nullable=False),
        sa.Column("rounds", NUMBER, nullable=False),
        sa.Column("settled", NUMBER, nullable=False),
        sa.Column("cost_usd", sa.Double(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("begun_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("wake_at", sa.Double(), nullable=True),
        sa.Column("spec_hash", sa.Text(), nullable=True),
        sa.Column("reduce_hash", sa.Text(), nullable=True),
        sa.Column("harmless", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("sid", name=op.f("pk_swarms")),
    )
    with op.batch_alter_table("swarms", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_swarms_wake_at"), ["wake_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_swarms_state"), ["state"], unique=False)
    op.create_table(
        "swarm_items",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("level", NUMBER, autoincrement=False, nullable=False),
        sa.Column("n", NUMBER, autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("input", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", NUMBER, nullable=False),
        sa.Column("taken_by", sa.Text(), nullable=True),
        sa.Column("child", sa.Text(), nullable=True),
        sa.Column("twin", sa.Text(), nullable=True),
        sa.Column("twin_taken_by", sa.Text(), nullable=True),
        sa.Column("twin_begun", NUMBER, nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("steps", NUMBER, nullable=False),
        sa.Column("cost_usd", sa.Double(), nullable=False),
        sa.Column("begun_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("settled", NUMBER, nullable=True),
        sa.PrimaryKeyConstraint("sid", "level", "n", name=op.f("pk_swarm_items")),
        sa.UniqueConstraint("sid", "name", "level", name=op.f("uq_swarm_items_sid_name_level")),
    )
    with op.batch_alter_table("swarm_items", schema=None) as batch_op:
        for columns in (
            ["sid", "state", "level", "n"],
            ["sid", "settled"],
            ["sid", "taken_by"],
            ["sid", "child"],
            ["sid", "twin"],
            ["sid", "twin_taken_by"],
        ):
            name = f"ix_swarm_items_{'_'.join(columns)}"
            batch_op.create_index(batch_op.f(name), columns, unique=False)


def _create_executors() -> None:
    op.create_table(
        "executors",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("turn", NUMBER, autoincrement=False, nullable=False),
        sa.Column("step", NUMBER, autoincrement=False, nullable=False),
        sa.Column("idx", NUMBER, autoincrement=False, nullable=False),
        sa.Column("child", sa.Text(), nullable=False),
        sa.Column("sender_id", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("background", NUMBER, nullable=False),
        sa.Column("width", NUMBER, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("begun_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("sid", "turn", "step", "idx", name=op.f("pk_executors")),
    )
    with op.batch_alter_table("executors", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_executors_sid_state"), ["sid", "state"], unique=False)
        batch_op.create_index(batch_op.f("ix_executors_sid_child"), ["sid", "child"], unique=False)
        batch_op.create_index(batch_op.f("ix_executors_state"), ["state"], unique=False)


def _drop_executors() -> None:
    op.drop_table("executors")


def _create_forks() -> None:
    op.create_table(
        "forks",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("origin", NUMBER, nullable=False),
        sa.Column("origin_id", sa.Text(), nullable=False),
        sa.Column("turn", NUMBER, nullable=False),
        sa.Column("step", NUMBER, nullable=True),
        sa.Column("position", NUMBER, nullable=False),
        sa.Column("cuts", NUMBER, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("unrecorded", sa.Text(), nullable=True),
        sa.Column("playing", NUMBER, nullable=True),
        sa.Column("plan", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("sid", name=op.f("pk_forks")),
    )
    op.create_table(
        "recordings",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("n", NUMBER, autoincrement=False, nullable=False),
        sa.Column("turn", NUMBER, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("failed", NUMBER, nullable=False),
        sa.Column("tokens", NUMBER, nullable=False),
        sa.Column("taken", NUMBER, nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sid", "n", name=op.f("pk_recordings")),
    )
    with op.batch_alter_table("recordings", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_recordings_sid_turn_digest_n"),
            ["sid", "turn", "digest", "n"],
            unique=False,
        )


def _drop_forks() -> None:
    op.drop_table("recordings")
    op.drop_table("forks")


def _create_served_tools() -> None:
    op.create_table(
        "served_tools",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("home", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("sid", "agent", "server", name=op.f("pk_served_tools")),
    )


def _create_hook_runs() -> None:
    op.create_table(
        "hook_runs",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("turn", NUMBER, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", NUMBER, nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("nonce", sa.Text(), nullable=False),
        sa.Column("task_token", sa.LargeBinary(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("exit_code", NUMBER, nullable=True),
        sa.Column("output", sa.Text(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("sid", "place", "digest", name=op.f("pk_hook_runs")),
    )
    with op.batch_alter_table("hook_runs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_hook_runs_due_at"), ["due_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_hook_runs_state"), ["state"], unique=False)


def _drop_hook_runs() -> None:
    with op.batch_alter_table("hook_runs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_hook_runs_state"))
        batch_op.drop_index(batch_op.f("ix_hook_runs_due_at"))
    op.drop_table("hook_runs")


def _create_schedules() -> None:
    op.create_table(
        "schedules",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("session", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("sent", NUMBER, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("version", NUMBER, nullable=False),
        sa.Column("due_at", sa.Double(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("unsettled_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedules")),
        sa.UniqueConstraint("tenant", "name", name=op.f("uq_schedules_tenant_name")),
    )
    with op.batch_alter_table("schedules", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_schedules_due_at"), ["due_at"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_schedules_unsettled_at"), ["unsettled_at"], unique=False
        )

    op.create_table(
        "firings",
        sa.Column("schedule", NUMBER, autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("by_hand", NUMBER, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("sid", NUMBER, nullable=True),
        sa.Column("sender_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("schedule", "key", name=op.f("pk_firings")),
    )
    with op.batch_alter_table("firings", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_firings_schedule_at"), ["schedule", "at"], unique=False
        )


def _drop_schedules() -> None:
    with op.batch_alter_table("firings", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_firings_schedule_at"))

    op.drop_table("firings")
    with op.batch_alter_table("schedules", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_schedules_unsettled_at"))
        batch_op.drop_index(batch_op.f("ix_schedules_due_at"))

    op.drop_table("schedules")


def _create_budgets() -> None:
    op.create_table(
        "accounts",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("sid", NUMBER, nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("parent", NUMBER, nullable=True),
        sa.Column("soft", sa.Double(), nullable=True),
        sa.Column("applied", sa.Text(), nullable=False),
        *_amounts("limit", "mark", nullable=True),
        *_amounts("reserved", "spent"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
        sa.UniqueConstraint("tenant", "sid", "scope", name=op.f("uq_accounts_tenant_sid_scope")),
    )

    op.create_table(
        "budget_asks",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("n", NUMBER, autoincrement=False, nullable=False),
        sa.Column("turn", NUMBER, nullable=False),
        sa.Column("account", NUMBER, nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("limit", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("sid", "n", name=op.f("pk_budget_asks")),
    )
    with op.batch_alter_table("budget_asks", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_budget_asks_account_state"), ["account", "state"], unique=False
        )

    op.create_table(
        "entries",
        sa.Column(
            "sid",
            NUMBER,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("turn", NUMBER, autoincrement=False, nullable=False),
        sa.Column("step", NUMBER, autoincrement=False, nullable=False),
        sa.Column("attempt", NUMBER, autoincrement=False, nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("estimated", NUMBER, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        *_amounts("reserved"),
        sa.Column("usd", sa.BigInteger(), nullable=True),
        sa.Column("input_tokens", NUMBER, nullable=False),
        sa.Column("output_tokens", NUMBER, nullable=False),
        sa.Column("cached_tokens", NUMBER, nullable=False),
        sa.Column("reasoning_tokens", NUMBER, nullable=False),
        sa.Column("steps", NUMBER, nullable=False),
        sa.Column("milliseconds", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            *("sid", "turn", "step", "attempt", "what"), name=op.f("pk_entries")
        ),
    )
    with op.batch_alter_table("entries", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_entries_state"), ["state"], unique=False)


def _create_approvals() -> None:
    sid = NUMBER
    op.create_table(
        "approvals",
        sa.Column("sid", sid, autoincrement=False, nullable=False),
        sa.Column("n", NUMBER, autoincrement=False, nullable=False),
        sa.Column("turn", NUMBER, nullable=False),
        sa.Column("step", NUMBER, nullable=False),
        sa.Column("idx", NUMBER, nullable=False),
        sa.Column("part", NUMBER, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("preview", sa.Text(), nullable=True),
        sa.Column("schema", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("answered_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("sid", "n", name=op.f("pk_approvals")),
        sa.UniqueConstraint(
            "sid", "turn", "step", "idx", "part", name=op.f("uq_approvals_sid_turn_step_idx_part")
        ),
    )
    with op.batch_alter_table("approvals", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_approvals_state"), ["state"], unique=False)

    op.create_table(
        "grants",
        sa.Column("sid", sid, autoincrement=False, nullable=False),
        sa.Column("n", NUMBER, autoincrement=False, nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("pattern", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sid", "n", name=op.f("pk_grants")),
    )


def _drop_approvals() -> None:
    op.drop_table("grants")
    with op.batch_alter_table("approvals", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_approvals_state"))

    op.drop_table("approvals")


def _drop_budgets() -> None:
    with op.batch_alter_table("entries", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_entries_state"))

    op.drop_table("entries")
    with op.batch_alter_table("budget_asks", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_budget_asks_account_state"))

    op.drop_table("budget_asks")
    op.drop_table("accounts")


def _amounts(*kinds: str, nullable: bool = False) -> list[sa.Column[int]]:
    return [
        sa.Column(f"{kind}_{unit}", sa.BigInteger(), nullable=nullable)
        for kind in kinds
        for unit in ("usd", "tokens", "steps", "seconds")
    ]


def _create_governor() -> None:
    op.create_table(
        "governor_breakers",
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("provider", "model", name=op.f("pk_governor_breakers")),
    )
    op.create_table(
        "governor_keys",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_governor_keys")),
    )
    op.create_table(
        "governor_leases",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key", "id", name=op.f("pk_governor_leases")),
    )
    op.create_table(
        "governor_waiters",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("tag", sa.Double(), nullable=False),
        sa.Column("number", NUMBER, nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("due", sa.Double(), nullable=False),
        sa.Column("line", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", "id", name=op.f("pk_governor_waiters")),
    )
    with op.batch_alter_table("governor_waiters", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_governor_waiters_key_tag_number"),
            ["key", "tag", "number"],
            unique=False,
        )


def _drop_governor() -> None:
    with op.batch_alter_table("governor_waiters", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_governor_waiters_key_tag_number"))

    op.drop_table("governor_waiters")
    op.drop_table("governor_leases")
    op.drop_table("governor_keys")
    op.drop_table("governor_breakers")


def _create_memory() -> None:
    op.create_table(
        "memories",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("n", NUMBER, nullable=False),
        sa.Column("facts", NUMBER, nullable=False),
        sa.Column("tokens", NUMBER, nullable=False),
        sa.Column("quiet_tokens", NUMBER, nullable=False),
        sa.Column("due_at", sa.Double(), nullable=True),
        sa.Column("due_sid", NUMBER, nullable=True),
        sa.Column("due_turn", NUMBER, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_memories")),
        sa.UniqueConstraint(
            "tenant", "scope", "owner", name=op.f("uq_memories_tenant_scope_owner")
        ),
    )
    with op.batch_alter_table("memories", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_memories_due_at"), ["due_at"], unique=False)

    op.create_table(
        "facts",
        sa.Column("memory", NUMBER, autoincrement=False, nullable=False),
        sa.Column("n", NUMBER, autoincrement=False, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("tokens", NUMBER, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("sources", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("replaced_by", NUMBER, nullable=True),
        sa.Column("forgotten_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("memory", "n", name=op.f("pk_facts")),
        sa.UniqueConstraint("memory", "key", name=op.f("uq_facts_memory_key")),
    )
    op.create_table(
        "knowledge_bases",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("workspace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_knowledge_bases")),
        sa.UniqueConstraint(
            "tenant", "workspace", "name", name=op.f("uq_knowledge_bases_tenant_workspace_name")
        ),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "embeddings",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("workspace", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("texts", NUMBER, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("nonce", sa.Text(), nullable=False),
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("reserved_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reserved_usd", sa.BigInteger(), nullable=True),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("usd", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_embeddings")),
    )
    with op.batch_alter_table("embeddings", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_embeddings_tenant_state"), ["tenant", "state"], unique=False
        )


def _drop_memory() -> None:
    with op.batch_alter_table("embeddings", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_embeddings_tenant_state"))

    op.drop_table("embeddings")
    op.drop_table("knowledge_bases")
    op.drop_table("facts")
    with op.batch_alter_table("memories", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_memories_due_at"))

    op.drop_table("memories")


def _create_tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("n", NUMBER, nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("sid", NUMBER, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", NUMBER, nullable=False),
        sa.Column("first", NUMBER, nullable=False),
        sa.Column("deadline", sa.Double(), nullable=True),
        sa.Column("due_at", sa.Double(), nullable=True),
        sa.Column("look_at", sa.Double(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("n", name=op.f("pk_tasks")),
        sa.UniqueConstraint("tenant", "id", name=op.f("uq_tasks_tenant_id")),
    )
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_tasks_tenant_state_n"), ["tenant", "state", "n"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_tasks_due_at"), ["due_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_tasks_look_at"), ["look_at"], unique=False)

    op.create_table(
        "task_attempts",
        sa.Column("task", NUMBER, autoincrement=False, nullable=False),
        sa.Column("attempt", NUMBER, autoincrement=False, nullable=False),
        sa.Column("begun_at", sa.Double(), nullable=False),
        sa.Column("stopped", sa.Text(), nullable=True),
        sa.Column("turn", NUMBER, nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("cost_usd", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("task", "attempt", name=op.f("pk_task_attempts")),
    )
    op.create_table(
        "webhooks",
        sa.Column("n", NUMBER, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("sid", NUMBER, nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", NUMBER, nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("n", name=op.f("pk_webhooks")),
        sa.UniqueConstraint("id", name=op.f("uq_webhooks_id")),
    )
    with op.batch_alter_table("webhooks", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_webhooks_sid"), ["sid"], unique=False)
        batch_op.create_index(batch_op.f("ix_webhooks_due_at"), ["due_at"], unique=False)


def _drop_tasks() -> None:
    with op.batch_alter_table("webhooks", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_webhooks_due_at"))
        batch_op.drop_index(batch_op.f("ix_webhooks_sid"))

    op.drop_table("webhooks")
    op.drop_table("task_attempts")
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_tasks_look_at"))
        batch_op.drop_index(batch_op.f("ix_tasks_due_at"))
        batch_op.drop_index(batch_op.f("ix_tasks_tenant_state_n"))

    op.drop_table("tasks")


def _create_workers() -> None:
    op.create_table(
        "workers",
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("home", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("roles", sa.Text(), nullable=False),
        sa.Column("build", sa.Text(), nullable=False),
        sa.Column("slots", sa.Text(), nullable=False),
        sa.Column("under_way", sa.Text(), nullable=False),
        sa.Column("draining", NUMBER, nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("renewed_at", sa.Double(), nullable=False),
        sa.Column("steady_since", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("instance", name=op.f("pk_workers")),
    )
