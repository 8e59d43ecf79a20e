"""A session's row, locked for one transaction: whoever holds it gives out the numbers.

Sequences of a database commit out of order, so inbox positions, message positions, event
numbers and the host all stand in this row and change only under its lock.
"""

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from everturn.context.projection import is_said
from everturn.errors import Fenced, StaleHost, UnknownSession
from everturn.events import COARSE, Draft
from everturn.messages import AssistantMessage, ToolMessage, UserMessage
from everturn.session import SessionKey
from everturn_activities.store import outbox, schema
from everturn_activities.store.database import Tx
from everturn_activities.store.statement import Statement, insert

# Parts of a step, in the order in which a model reads them; before these come its users' messages.
ASSISTANT_PART = 10_000
TOOL_PART = 20_000
NUDGE_PART = 30_000

_sessions = schema.sessions
_LOCK = Statement(
    sa.select(_sessions)
    .where(_sessions.c.tenant == sa.bindparam("tenant"), _sessions.c.id == sa.bindparam("session"))
    .with_for_update()
)
_LOCK_SID = Statement(
    sa.select(_sessions).where(_sessions.c.sid == sa.bindparam("of_sid")).with_for_update()
)
_LOCK_ABOVE = Statement(
    sa.select(_sessions.c.parent_sid)
    .where(_sessions.c.sid == sa.bindparam("of_sid"))
    .with_for_update()
)
_TOLD = Statement(
    sa.select(schema.events.c.event_id).where(
        schema.events.c.sid == sa.bindparam("of_sid"),
        schema.events.c.event_id == sa.bindparam("of_event"),
    )
)
_COUNTERS = (
    "turn",
    "open_turn",
    "cancel_turn",
    "host_workflow_id",
    "host_run_id",
    "host_epoch",
    "wake_at",
    "inbox_pos",
    "message_pos",
    "message_tokens",
    "history_tokens",
    "result_tokens",
    "result_characters",
    "cut_n",
    "sent_first",
    "sent_since",
    "compact_asked",
    "compaction_failures",
    "event_epoch",
    "event_seq",
    "budgeted",
    "folder_due",
    "restore_turn",
    "restore_step",
    "title",
    "useful",
    "served",
    "renders_due",
)
_SAVE = Statement(
    sa.update(_sessions)
    .where(_sessions.c.sid == sa.bindparam("of_sid"))
    .values({name: sa.bindparam(name) for name in (*_COUNTERS, "updated_at")})
)


class LockedSession:
    """The row's numbers as attributes; `save` writes them back with what was told."""

    turn: int
    open_turn: int | None
    cancel_turn: int
    host_workflow_id: str | None
    host_run_id: str | None
    host_epoch: int
    wake_at: float | None
    inbox_pos: int
    message_pos: int
    message_tokens: int
    history_tokens: int
    result_tokens: int
    result_characters: int
    cut_n: int
    sent_first: int
    sent_since: int
    compact_asked: int
    compaction_failures: int
    event_epoch: int
    event_seq: int
    budgeted: int
    folder_due: int
    restore_turn: int
    restore_step: int
    title: str
    useful: str | None
    served: str | None
    renders_due: int

    def __init__(self, tx: Tx, key: SessionKey) -> None:
        """Lock the session of `key`; raises UnknownSession."""
        found = _LOCK.first(tx.connection, {"tenant": key.tenant, "session": key.session})
        if found is None:
            raise UnknownSession(unknown(key))
        self._take(tx, found)

    def _take(self, tx: Tx, found: Any) -> None:
        self.key = SessionKey(found.tenant, found.id)
        self.tx = tx
        self.sid: int = found.sid
        self.parent_sid: int | None = found.parent_sid
        self.swarm_sid: int | None = found.swarm_sid
        self.replays = bool(found.replays)
        self.task: int | None = found.task
        self.priority: int | None = found.priority
        self.home: str = found.home or ""
        self._webhook: str | None = found.webhook
        for name in _COUNTERS:
            setattr(self, name, getattr(found, name))
        self._events: list[dict[str, Any]] = []
        self._messages: list[dict[str, Any]] = []
        self._parent: LockedSession | None = None

    @property
    def parent(self) -> "LockedSession":
        """The session that an executor's works for, locked too: always after it, so that no two
        transactions wait for each other. It is saved with its child."""
        if self._parent is None:
            assert self.parent_sid is not None
            self._parent = LockedSession.__new__(LockedSession)
            row = _LOCK_SID.one(self.tx.connection, {"of_sid": self.parent_sid})
            self._parent._take(self.tx, row)
        return self._parent

    def lock_above(self) -> None:
        """Lock the sessions that this one works for, before anything that they lock after
        themselves: their watchers are told of what follows."""
        above = self.parent_sid
        while above is not None:
            above = _LOCK_ABOVE.scalar(self.tx.connection, {"of_sid": above})

    def demand_host(self, turn: int, epoch: int) -> None:
        """Raise StaleHost unless `epoch` hosts this session and `turn` is open."""
        if self.host_epoch != epoch or self.open_turn != turn:
            raise StaleHost(
                f"Turn {turn} of session {self.key.session} is hosted at epoch {self.host_epoch}"
                f" with turn {self.open_turn} open, not at epoch {epoch}."
            )

    def demand_open(self, turn: int) -> None:
        """Raise Fenced where `turn` is over: its transcript and its events are closed."""
        if self.open_turn != turn:
            raise Fenced(f"Turn {turn} of session {self.key.session} is over.")

    def tell(self, draft: Draft) -> None:
        """Give `draft` the next number of the session's event log; what is coarse is told to
        the watchers of an executor's parent too."""
        self.event_seq += 1
        self._events.append(
            {
                "sid": self.sid,
                "epoch": self.event_epoch,
                "seq": self.event_seq,
                "event_id": draft.id,
                "turn": draft.turn,
                "step": draft.step,
                "attempt": draft.attempt,
                "type": draft.type,
                "body": json.dumps(draft.body, ensure_ascii=False),
                "time": self.tx.now,
            }
        )
        if self.parent_sid is not None and draft.type in COARSE:
            self._tell_parent(draft)

    def tell_once(self, drafts: Sequence[Draft]) -> None:
        """Tell those of `drafts` that are not in the log: a write that failed may be there."""
        for draft in drafts:
            at = {"of_sid": self.sid, "of_event": draft.id}
            if _TOLD.first(self.tx.connection, at) is None:
                self.tell(draft)

    def _tell_parent(self, draft: Draft) -> None:
        body = draft.body
        if draft.type != "executor_event":
            body = {
                "executor": self.key.session,
                "event": draft.type,
                "executor_turn": draft.turn,
                "executor_step": draft.step,
                "told": draft.body,
            }
        self.parent.tell(
            Draft(
                id=f"{self.key.session}/{draft.id}",
                type="executor_event",
                turn=self.parent.open_turn or 0,
                body=body,
            )
        )

    def append(
        self,
        message: UserMessage | AssistantMessage | ToolMessage,
        turn: int,
        step: int,
        part: int,
        tokens: int,
    ) -> None:
        """Append `message` to the transcript as `(turn, step, part)`."""
        self.message_pos += 1
        self.message_tokens += tokens
        characters = 0
        if isinstance(message, ToolMessage):
            characters = sum(len(result.text) for result in message.results)
            self.result_characters += characters
            self.result_tokens += tokens
        self._messages.append(
            {
                "sid": self.sid,
                "position": self.message_pos,
                "turn": turn,
                "step": step,
                "part": part,
                "role": message.role,
                "said": int(part != NUDGE_PART and is_said(message)),
                "body": message.model_dump_json(exclude_defaults=False),
                "tokens": tokens,
                "result_characters": characters,
                "created_at": self.tx.now,
            }
        )

    def save(self) -> None:
        """Write events, messages and numbers; the session's watchers are told after COMMIT."""
        if self._parent is not None:
            self._parent.save()
        connection = self.tx.connection
        if self._events:
            _INSERT_EVENT.run(connection, *self._events)
            if self._webhook is not None:
                outbox.put(connection, self, self._webhook, self._events)
            self.tx.told.add(self.key)
        self.write_messages()
        values = {name: getattr(self, name) for name in _COUNTERS}
        _SAVE.run(connection, {**values, "updated_at": self.tx.now, "of_sid": self.sid})
        self._events = []

    def write_messages(self) -> None:
        """Write the messages appended so far, for who reads them in this transaction."""
        if self._messages:
            _INSERT_MESSAGE.run(self.tx.connection, *self._messages)
            self._messages = []


_INSERT_EVENT = insert(schema.events)
_INSERT_MESSAGE = insert(schema.messages)


def unknown(key: SessionKey) -> str:
    return f"There is no session {key.session!r}; `everturn sessions list` names those there are."
