"""What watchers of a session are told."""

from typing import Any, Literal

from pydantic import Field, field_validator

from everturn.messages import Frozen

EventType = Literal[
    "message_accepted",  # message_id, mode, queued, stops, note, text
    "message_admitted",  # message_id (it joins its turn at this step)
    "message_rolled_back",  # message_id, text (its turn was rolled back, and it with it)
    "turn_started",  # messages (ids), agent, model
    "step_started",  # model, placement, context_tokens, level, tokens (by section)
    "text_delta",  # text
    "thinking_delta",  # text
    "tool_call_delta",  # call_id, name, text (a piece of the arguments' JSON)
    "superseded",  # kind; watchers drop the deltas of this step's earlier attempts
    "step_finished",  # stop, calls, usage, cost_usd, duration_seconds
    "tool_started",  # call_id, index, name, arguments (a preview)
    "tool_output",  # call_id, index, name, text (a piece of what a running call says)
    "tool_finished",  # call_id, index, name, failed, text (a preview), duration_seconds, recorded
    "cancel_accepted",  # target
    "budget_asked",  # approval, budget, unit, limit, spent, text: the turn waits for a person
    "budget_answered",  # approval, verdict, text, too_late
    # approval, kind, call_id, index, name, arguments, preview, digest, expires_at
    "approval_asked",
    "approval_answered",  # approval, verdict, state, text, too_late
    # moment, hook, call_id, index, name, exit_code, blocked, text, duration_seconds
    "hook_finished",
    "executor_started",  # executor, call_id, index, agent, task, background
    "executor_event",  # executor, event, executor_turn, executor_step, told: what was told of it
    "executor_finished",  # executor, call_id, index, outcome, reason, steps, cost_usd, late
    "compaction_started",  # last (position), tokens, model
    "compacted",  # first, last, tokens_before, tokens_after, usage, cost_usd
    "compaction_undone",  # first, last
    "messages_imported",  # messages, tokens: what the session began with
    # session, at_turn, at_step, messages, tokens, edits (places), replay, unrecorded
    "session_forked",
    "session_rewound",  # at_turn, at_step, first, last (positions), messages
    "rewind_undone",  # first, last
    "memory_consolidated",  # scope, facts and tokens before and after, cost_usd
    "task_begun",  # task, task_attempt, attempts_left
    "task_waits",  # task, task_attempt, reason, due_at: for the next one
    "task_ended",  # task, task_attempt, state, reason, attempts, cost_usd
    "status",  # text
    "turn_finished",  # outcome, reason, text, usage, cost_usd, unpriced_calls, steps
    "gap",  # first, last: events that were trimmed away
    "snapshot",  # a lost log begins anew, and tells the event's turn and all later ones again
]

DELTAS: frozenset[str] = frozenset({"text_delta", "thinking_delta", "tool_call_delta"})


COARSE: frozenset[str] = frozenset(
    {
        *("tool_started", "tool_finished", "approval_asked", "approval_answered", "budget_asked"),
        *("budget_answered", "executor_started", "executor_event", "executor_finished"),
    }
)
"""What the watchers of an executor's parent are told of its work, as `executor_event`."""


class Draft(Frozen):
    """An event before the log gives it its number.

    `id` is unique within the session: appending the same id again changes nothing.
    """

    id: str
    type: EventType
    turn: int = 0
    step: int = 0
    attempt: int = 0
    body: dict[str, Any] = Field(default_factory=dict)

    @field_validator("body")
    @classmethod
    def _hides_nothing(cls, body: dict[str, Any]) -> dict[str, Any]:
        """`Event.flat` puts body and head side by side: a name of both would be lost."""
        if taken := body.keys() & Event.model_fields.keys():
            raise ValueError(f"an event has {', '.join(sorted(taken))} itself; choose another name")
        return body


class Event(Frozen):
    """An event of a session's log.

    `seq` counts from 1 without gaps within `epoch`; `time` is in seconds since 1970.
    """

    epoch: int
    seq: int
    type: str
    turn: int
    step: int
    attempt: int
    time: float
    body: dict[str, Any] = Field(default_factory=dict)

    @property
    def cursor(self) -> str:
        """Where a watcher resumes: `epoch.seq`, the SSE id."""
        return f"{self.epoch}.{self.seq}"

    def flat(self) -> dict[str, Any]:
        """The event as one flat JSON object, as CLI and HTTP print it."""
        return {
            "epoch": self.epoch,
            "seq": self.seq,
            "type": self.type,
            "turn": self.turn,
            "step": self.step,
            "attempt": self.attempt,
            "time": self.time,
            **self.body,
        }


def cursor_from_text(text: str) -> tuple[int, int]:
    """`(epoch, seq)` of a cursor `epoch.seq`, or of a bare seq, which means epoch 1.

    Raises ValueError for anything else.
    """
    epoch, dot, seq = text.rpartition(".")
    parsed = (int(epoch) if dot else 1, int(seq))
    if min(parsed) < 0:
        raise ValueError(text)
    return parsed
