"""Schedules: messages that are sent to sessions at times that a person, or an agent, has set.

Their definition as data, and the bodies of HTTP that speak of it. Times are in seconds since
1970.
"""

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from everturn.budgets import Budget
from everturn.errors import UsageError
from everturn.folders import FolderKind
from everturn.memory import USER
from everturn.messages import Frozen
from everturn.session import OutcomeKind

Overlap = Literal["skip", "queue", "cancel", "all"]
"""What becomes of a time that comes while the run of an earlier one works: it is left out, it
waits in the session's inbox, it ends that run, or it has a session beside it."""

Status = Literal["active", "paused", "ended"]
RunState = Literal["sent", "skipped", "missed", "failed"]
"""What became of a time: its message was sent; left out as its overlap says; left out because it
came too late; or it could not be sent."""

SENDER = "schedule:"
"""What the ids of scheduled messages begin with; then comes the schedule's name."""
CATCH_UP_SECONDS = 86_400.0
CATCH_UP_SECONDS_MIN = 10.0
YEAR_SECONDS = 366 * 86_400
CRONS_MAX = 10
NEXT_SHOWN = 5
RUNS_SHOWN = 10

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Timing(Frozen):
    """When a schedule fires: at the times of its `cron` expressions as clocks in `time_zone` tell
    them, or each `every_seconds`, counted from when that was set. Never after `until`."""

    cron: tuple[str, ...] = Field(default=(), max_length=CRONS_MAX)
    every_seconds: int | None = Field(default=None, gt=0, le=YEAR_SECONDS)
    time_zone: str = "UTC"
    # The last second that a calendar can tell: milliseconds are a common slip.
    until: float | None = Field(default=None, ge=0, le=253_402_300_799)

    @field_validator("cron", mode="before")
    @classmethod
    def _one(cls, given: object) -> object:
        return (given,) if isinstance(given, str) else given

    @model_validator(mode="after")
    def _says_when(self) -> "Timing":
        if bool(self.cron) == (self.every_seconds is not None):
            raise ValueError("a schedule has either 'cron' or 'every_seconds'; name one of the two")
        return self


class Rules(Timing):
    """What a person says of a schedule. Without a `session` each run has a new one, which `budget`
    limits. A time that passed more than `catch_up_seconds` ago is not made up for. After
    `runs_max` messages it ends."""

    prompt: str
    session: str | None = None
    agent: str | None = None
    model: str | None = None
    user: str = USER
    overlap: Overlap = "skip"
    catch_up_seconds: float = Field(
        default=CATCH_UP_SECONDS, ge=CATCH_UP_SECONDS_MIN, le=YEAR_SECONDS
    )
    runs_max: int | None = Field(default=None, ge=1, le=10**9)
    budget: Budget | None = None

    @model_validator(mode="after")
    def _fits_its_session(self) -> "Rules":
        if self.session is None and self.overlap == "queue":
            raise ValueError(
                "overlap 'queue' needs a 'session', in whose inbox runs wait; without one choose"
                " 'skip', 'cancel' or 'all'"
            )
        if self.session is not None and self.overlap == "all":
            raise ValueError(
                "overlap 'all' gives each run a session beside the others, so it names no"
                " 'session'; leave that out, or choose 'queue'"
            )
        if self.session is not None and self.budget is not None:
            raise ValueError(
                "a 'budget' is that of the new session of each run; limit session"
                f" {self.session!r} itself by: everturn budget set session {self.session}"
            )
        return self


class Definition(Rules):
    """A schedule as it is stored: where its new sessions work is decided, and `since` is when its
    times began to count. `made_by` is the session whose agent made it; none where a person did."""

    workspace: str = ""
    working_dir: str = ""
    folder: FolderKind = "shared"
    since: float = 0.0
    made_by: str | None = None


class NewSchedule(Rules):
    """Body of `POST /v1/schedules`; the same `name` again with the same settings answers with the
    schedule there is, and with 409 where they differ."""

    name: str
    workspace: str | None = None
    working_dir: str | None = None
    folder: FolderKind | None = None
    paused: bool = False


class ChangeSchedule(Frozen):
    """Body of `PATCH /v1/schedules/{name}`: what is named becomes so; null takes a limit away."""

    prompt: str | None = None
    cron: tuple[str, ...] | None = None
    every_seconds: int | None = None
    time_zone: str | None = None
    until: float | None = None
    overlap: Overlap | None = None
    catch_up_seconds: float | None = None
    runs_max: int | None = None
    budget: Budget | None = None
    paused: bool | None = None


class RunSchedule(Frozen):
    """Body of `POST /v1/schedules/{name}/run`; the same `id` again is the same run."""

    id: str | None = None


class RunView(Frozen):
    """What became of one time of a schedule, `at`, and of the turn that worked its message."""

    at: float
    state: RunState
    by_hand: bool = False
    session: str | None = None
    message: str | None = None
    turn: int | None = None
    outcome: OutcomeKind | None = None
    cost_usd: float | None = None
    why: str = ""


class ScheduleView(Rules):
    """A schedule, its `next` times and its newest `runs`, the newest first. `sent` counts its
    messages so far; `problem` is why it cannot fire."""

    name: str
    status: Status
    workspace: str | None = None
    made_by: str | None = None
    created_at: float
    sent: int = 0
    next: tuple[float, ...] = ()
    runs: tuple[RunView, ...] = ()
    problem: str | None = None


class SchedulePage(Frozen):
    """Answer of `GET /v1/schedules`, by name."""

    schedules: tuple[ScheduleView, ...]


class ScheduleRemoved(Frozen):
    """Answer of `DELETE /v1/schedules/{name}`: it fires no more."""

    name: str


def when(timing: Timing) -> str:
    """When it fires, in words."""
    if timing.every_seconds is not None:
        return f"each {shown_seconds(timing.every_seconds)}"
    return f"{' and '.join(timing.cron)} ({timing.time_zone})"


def scheduled(view: ScheduleView) -> str:
    """Who is sent to, when and by whom, as a sentence."""
    by = "" if view.made_by is None else ", set by its agent,"
    to = "a new session each time" if view.session is None else f"session {view.session}"
    return f"Schedule {view.name}{by} sends to {to}, {when(view)}."


def checked_name(name: str) -> str:
    """`name` where it can be a schedule's; UsageError otherwise."""
    if _NAME.fullmatch(name) is None:
        shown = name if len(name) <= 40 else f"{name[:40]}..."
        raise UsageError(
            f"The schedule name {shown!a} is not possible; use 1 to 64 letters, digits, dots,"
            " underscores and hyphens of ASCII, a letter or digit first."
        )
    return name


def seconds_of(text: str, what: str = "span") -> int:
    """The seconds of a span such as 30m, 2h or 1d; UsageError, which calls it `what`, for
    anything else."""
    found = _SPAN.fullmatch(text.strip().lower())
    seconds = float(found[1]) * _UNITS.get(found[2], 0) if found is not None else 0.0
    if seconds < 1 or seconds % 1:
        raise UsageError(
            f"The {what} {text[:40]!a} is not possible; write one such as 90s, 30m, 2h."
        )
    return int(seconds)


def shown_seconds(seconds: float) -> str:
    """A span as people write it, in the largest unit of which it is a whole number."""
    for unit in ("w", "d", "h", "m"):
        if seconds >= _UNITS[unit] and seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:g}{unit}"
    return f"{seconds:g}s"
