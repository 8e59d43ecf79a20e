"""Tasks: work that is handed in, waits its turn, and is tried again where time may mend it."""

import json
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from everturn.errors import UsageError
from everturn.folders import FolderKind
from everturn.inputs import ID_CHARACTERS_MAX, checked_id, checked_text
from everturn.messages import Frozen
from everturn.session import OutcomeKind
from everturn.webhooks import Webhook, WebhookView

TASK_ID_CHARACTERS_MAX = ID_CHARACTERS_MAX - len("task:")
TASKS_MAX = 100
"""How many one request hands in; they are committed together."""
LABELS_MAX = 20
LABEL_CHARACTERS_MAX = 200
RESULT_BYTES_MAX = 64 * 1024
"""Of a result within a webhook; the whole is with the task."""

Priority = Annotated[int, Field(ge=1, le=5)]
NORMAL: Priority = 3
PERSONS: Priority = 2
"""How urgent conversations are: a backlog of common tasks does not hold a person up."""

TaskState = Literal["waiting", "queued", "running", "done", "dead", "cancelled"]
"""It waits for its time; an attempt stands in line; one runs; it has its result; it has failed
for good; somebody cancelled it."""
ENDED: frozenset[TaskState] = frozenset({"done", "dead", "cancelled"})


class Retry(Frozen):
    """How often a task is tried, and how long it waits after an attempt that failed: the first
    time `first_seconds`, then `factor` times as long each time, `longest_seconds` at most."""

    attempts_max: int = Field(default=3, ge=1, le=50)
    first_seconds: float = Field(default=10.0, ge=0, le=86_400)
    factor: float = Field(default=2.0, ge=1, le=10)
    longest_seconds: float = Field(default=3600.0, ge=0, le=604_800)

    def pause_seconds(self, failed: int) -> float:
        """How long to wait after so many attempts failed."""
        try:
            grown = self.first_seconds * self.factor ** (failed - 1)
        except OverflowError:
            grown = self.longest_seconds
        return min(grown, self.longest_seconds)


def _seconds(given: Any) -> Any:
    """A time that was given in words, in seconds."""
    if not isinstance(given, str):
        return given
    try:
        read = datetime.fromisoformat(given)
    except ValueError:
        read = None
    if read is None or read.tzinfo is None:
        raise ValueError(
            f"{given[:40]!r} is no time with a zone; write one such as 2026-01-31T12:00:00Z"
        )
    return read.timestamp()


class NewTask(Frozen):
    """Body of `POST /v1/tasks`.

    `id` is the sender's key: the same again changes nothing, and with another content it is
    refused. `input` is a text, or an object that the agent is given as JSON. `output` is the
    JSON schema that the answer must fit, which the model may mend `mends_max` times. Times are
    in seconds since 1970, or with a zone as in 2026-01-31T12:00:00Z: no attempt begins before
    `not_before`, and none goes on after `deadline`; `attempt_seconds` is for each.
    """

    id: str | None = None
    input: str | dict[str, Any]
    agent: str | None = None
    model: str | None = None
    workspace: str | None = None
    working_dir: str | None = None
    user: str | None = None
    folder: FolderKind | None = None
    priority: Priority = NORMAL
    retry: Retry = Retry()
    not_before: float | None = None
    deadline: float | None = None
    attempt_seconds: float | None = Field(default=None, gt=0, le=604_800)
    output: dict[str, Any] | None = None
    mends_max: int | None = Field(default=None, ge=0, le=20)
    webhook: Webhook | None = None
    labels: dict[str, str] = Field(default_factory=dict)

    _time = field_validator("not_before", "deadline", mode="before")(_seconds)

    @field_validator("labels")
    @classmethod
    def _few(cls, labels: dict[str, str]) -> dict[str, str]:
        if len(labels) > LABELS_MAX:
            raise ValueError(f"there are {len(labels)} labels, and {LABELS_MAX} are the limit")
        for name, value in labels.items():
            if max(len(name), len(value)) > LABEL_CHARACTERS_MAX:
                raise ValueError(
                    f"label {name[:40]!r} has more than {LABEL_CHARACTERS_MAX} characters"
                )
        return labels

    @model_validator(mode="after")
    def _mends(self) -> "NewTask":
        if self.mends_max is not None and self.output is None:
            raise ValueError("'mends_max' is for answers that must fit 'output'; name that too")
        if None not in (self.not_before, self.deadline) and self.deadline <= self.not_before:  # type: ignore[operator]
            raise ValueError("its deadline is not after 'not_before', so it could never begin")
        return self

    @property
    def text(self) -> str:
        """The message that the agent is given."""
        if isinstance(self.input, str):
            return self.input
        return json.dumps(self.input, ensure_ascii=False, indent=2)


class NewTasks(Frozen):
    """Body of `POST /v1/tasks/batch`: all are handed in, or none. Each has an `id`."""

    tasks: tuple[NewTask, ...] = Field(min_length=1, max_length=TASKS_MAX)


class TasksCame(Frozen):
    """Answer of `POST /v1/tasks/batch`: the ids, in the order of the request."""

    tasks: tuple[str, ...]


class RequeueTask(Frozen):
    """Body of `POST /v1/tasks/{id}/retry`: `deadline` is put in place of the task's own."""

    deadline: float | None = None

    _time = field_validator("deadline", mode="before")(_seconds)


class AttemptView(Frozen):
    """One attempt: a turn of the task's session, None before it began."""

    attempt: int
    turn: int | None
    begun_at: float
    """When it was put in line."""
    ended_at: float | None
    outcome: OutcomeKind | None
    reason: str | None
    cost_usd: float | None


class TaskView(Frozen):
    """A task as its sender reads it. `result` is what the agent answered: a value where the task
    has an output schema, else a text. Times are in seconds since 1970."""

    id: str
    session: str
    state: TaskState
    reason: str | None
    """Why it is dead or cancelled, or what the last attempt failed with."""
    result: Any = None
    waits_for_person: bool = False
    priority: Priority
    agent: str
    model: str | None
    labels: dict[str, str]
    attempts: tuple[AttemptView, ...]
    attempts_left: int
    cost_usd: float
    created_at: float
    due_at: float | None
    """When the next attempt begins."""
    deadline: float | None
    ended_at: float | None
    webhooks: tuple[WebhookView, ...] = ()

    @property
    def ended(self) -> bool:
        return self.state in ENDED


class TaskPage(Frozen):
    """Answer of `GET /v1/tasks`, the newest first; `before` gives the next page."""

    tasks: tuple[TaskView, ...]
    before: str | None


class Output(Frozen):
    """What a session's answers must fit, whatever its agent says."""

    schema_: dict[str, Any] = Field(alias="schema")
    mends_max: int | None = None


def checked_task(task: NewTask) -> NewTask:
    """`task` where it can be worked; UsageError says what to mend otherwise."""
    checked_text(task.text, "task's input")
    if task.id is not None:
        checked_id(task.id, "task id")
        if len(task.id) > TASK_ID_CHARACTERS_MAX:
            raise UsageError(
                f"The task id has {len(task.id)} characters and the limit is"
                f" {TASK_ID_CHARACTERS_MAX}; shorten it."
            )
    return task


def session_of(task: str) -> str:
    """The session that a task is worked in."""
    return f"task:{task}"


def asked_again(text: str, attempt: int, reason: str | None) -> str:
    """The message of an attempt after the first. What the ones before did stands above it."""
    because = f" ({reason.rstrip('.')})" if reason else ""
    return (
        f"The work on this was broken off{because}; this is attempt {attempt}. Take up what has"
        f" been done above, do not repeat it, and do the rest:\n\n{text}"
    )


def moment(seconds: float) -> str:
    """A time in words."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
