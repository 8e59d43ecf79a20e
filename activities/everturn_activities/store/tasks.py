"""Tasks: handed in once, tried as often as may be, ended once.

Each attempt is a message to the task's own session, and what follows from it is decided by the
transaction in which the turn ends that worked it. Who locks a task has its session locked before.
"""

import hashlib
import json
import logging
import zlib
from collections.abc import Callable
from typing import Any, Literal

import sqlalchemy as sa

from everturn.errors import IdempotencyConflict, UnknownTask, UsageError
from everturn.events import Draft
from everturn.executors import ExecutorReport
from everturn.messages import user_text
from everturn.session import SessionKey
from everturn.tasks import NewTask, TaskState, asked_again, moment, session_of
from everturn_activities.store import (
    Inbound,
    SessionSettings,
    TaskCame,
    Wake,
    inbox,
    new_sessions,
    schema,
)
from everturn_activities.store.database import StaleError, Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.metering import Meter
from everturn_activities.store.statement import Statement, insert

log = logging.getLogger(__name__)

Stopped = Literal["deadline", "time", "cancel"]
IN_THE_WAY = ("40001", "40P01", "55P03")
"""Another transaction was in the way: all of this one is run again."""
PUT_OFF_SECONDS = 60.0
"""A task that a fault of ours keeps from going on is looked at again after this long."""
SPREAD = 0.1
"""By how much of itself a pause is longer, for not all that failed at once to come back at once."""

_t, _a, _s, _i = schema.tasks, schema.task_attempts, schema.sessions, schema.inbox
_n: sa.BindParameter[int] = sa.bindparam("of_n")
_INSERT, _INSERT_ATTEMPT = insert(_t), insert(_a)
_TASK = Statement(sa.select(_t).where(_t.c.n == _n).with_for_update())
_KNOWN = Statement(
    sa.select(_t).where(_t.c.tenant == sa.bindparam("of_tenant"), _t.c.id == sa.bindparam("of_id"))
)
_ATTEMPT = Statement(
    sa.select(_a).where(_a.c.task == _n, _a.c.attempt == sa.bindparam("of_attempt"))
)
_CHANGED = ("state", "attempt", "first", "deadline", "due_at", "look_at", "reason", "result")
_SAVE = Statement(
    sa.update(_t)
    .where(_t.c.n == _n)
    .values({name: sa.bindparam(name) for name in (*_CHANGED, "ended_at")})
)
_END_ATTEMPT = Statement(
    sa.update(_a)
    .where(_a.c.task == _n, _a.c.attempt == sa.bindparam("of_attempt"))
    .values(
        {name: sa.bindparam(name) for name in ("turn", "outcome", "reason", "cost_usd", "ended_at")}
    )
)
_STOP_ATTEMPT = Statement(
    sa.update(_a)
    .where(_a.c.task == _n, _a.c.attempt == sa.bindparam("of_attempt"))
    .values(stopped=sa.bindparam("stopped"))
)
_MESSAGE = Statement(
    sa.select(_i).where(
        _i.c.sid == sa.bindparam("of_sid"), _i.c.sender_id == sa.bindparam("of_sender")
    )
)
_STARTED = Statement(
    sa.select(schema.turns.c.started_at).where(
        schema.turns.c.sid == sa.bindparam("of_sid"), schema.turns.c.turn == sa.bindparam("of_turn")
    )
)
_DUE = Statement(
    sa.select(_t.c.n)
    .where(_t.c.due_at <= sa.bindparam("now"))
    .order_by(_t.c.due_at, _t.c.n)
    .limit(sa.bindparam("most"))
)
_LOOK = Statement(
    sa.select(_t.c.n)
    .where(_t.c.look_at <= sa.bindparam("now"))
    .order_by(_t.c.look_at)
    .limit(sa.bindparam("most"))
)


class _Task:
    """A task's row, locked behind its session; `save` writes both."""

    state: str
    attempt: int
    first: int
    deadline: float | None
    due_at: float | None
    look_at: float | None
    reason: str | None
    result: str | None
    ended_at: float | None

    def __init__(self, session: LockedSession) -> None:
        row = _TASK.one(session.tx.connection, {"of_n": session.task})
        self.session, self.tx = session, session.tx
        self.n: int = row.n
        self.id: str = row.id
        for name in (*_CHANGED, "ended_at"):
            setattr(self, name, getattr(row, name))
        self.new = NewTask.model_validate_json(row.body)

    @property
    def used(self) -> int:
        """Attempts that count against the limit."""
        return self.attempt - self.first + 1

    def write(self) -> None:
        values = {name: getattr(self, name) for name in (*_CHANGED, "ended_at")}
        _SAVE.run(self.tx.connection, {**values, "of_n": self.n})

    def save(self) -> None:
        # First: what is told outside of a task's end has its result.
        self.write()
        self.session.save()

    def tell(self, kind: Literal["task_begun", "task_waits", "task_ended"], **said: Any) -> None:
        draft = Draft(
            id=f"task/{self.attempt}/{self.first}/{kind}",
            type=kind,
            body={"task": self.id, "task_attempt": self.attempt, **said},
        )
        self.session.tell(draft)


def submit(
    tx: Tx, tenant: str, name: str, task: NewTask, settings: SessionSettings, meter: Meter
) -> TaskCame:
    """Take a task in once, with its session, and put its first attempt in line if it is time.

    Raises IdempotencyConflict where the id was used for another.
    """
    digest = hashlib.sha256(task.model_copy(update={"id": name}).model_dump_json().encode())
    known = _KNOWN.first(tx.connection, {"of_tenant": tenant, "of_id": name})
    if known is not None:
        if known.digest != digest.hexdigest():
            raise IdempotencyConflict(
                f"Task {name!r} was handed in with another content; give each new task an id of"
                " its own."
            )
        return TaskCame(name, None)
    if task.deadline is not None and task.deadline <= tx.now:
        raise UsageError(
            f"The deadline of task {name!r}, {moment(task.deadline)}, has passed; name a later one,"
            " or leave it out."
        )
    key = SessionKey(tenant, session_of(name))
    n = _create(tx, key, name, digest.hexdigest(), task, settings)
    made = _Task(LockedSession(tx, key))
    assert made.n == n
    wake = None
    if task.not_before is None or task.not_before <= tx.now:
        wake = _begin(made, meter)
    made.save()
    return TaskCame(name, wake)


def _create(
    tx: Tx, key: SessionKey, name: str, digest: str, task: NewTask, settings: SessionSettings
) -> int:
    output = None
    if task.output is not None:
        output = json.dumps({"schema": task.output, "mends_max": task.mends_max})
    sid = new_sessions.create(
        *(tx, key, settings),
        priority=task.priority,
        output=output,
    )
    if sid is None:
        if _KNOWN.first(tx.connection, {"of_tenant": key.tenant, "of_id": name}) is not None:
            raise StaleError
        raise IdempotencyConflict(
            f"A session {key.session!r} exists, which is no task's; give the task another id."
        )
    made = tx.connection.execute(
        sa.insert(_t),
        {
            "tenant": key.tenant,
            "id": name,
            "sid": sid,
            "digest": digest,
            "body": task.model_dump_json(),
            "state": "waits",
            "deadline": task.deadline,
            "due_at": task.not_before,
            "look_at": task.deadline,
            "created_at": tx.now,
        },
    )
    n = _number(made)
    tx.connection.execute(sa.update(_s).where(_s.c.sid == sid).values(task=n))
    return n


def _number(inserted: sa.CursorResult[Any]) -> int:
    (number,) = inserted.inserted_primary_key or (None,)
    assert isinstance(number, int)
    return number


def _begin(task: _Task, meter: Meter) -> Wake | None:
    """Put the next attempt in line."""
    task.state, task.due_at = "begun", None
    task.attempt += 1
    began = {"task": task.n, "attempt": task.attempt, "begun_at": task.tx.now}
    _INSERT_ATTEMPT.run(task.tx.connection, began)
    _look_next(task)
    text = task.new.text
    if task.attempt > 1:
        text = asked_again(text, task.attempt, task.reason)
    inbound = Inbound(id=_sender(task.attempt), kind="message", message=user_text(text))
    left = task.new.retry.attempts_max - task.used
    task.tell("task_begun", attempts_left=left)
    return inbox.put(task.session, inbound, meter.tokens(text)).wake


def begin_due(tx: Tx, limit: int, meter: Meter) -> list[Wake]:
    """Put those tasks in line whose time has come, and say whom to wake."""

    def begin(task: _Task) -> Wake | None:
        if task.state != "waits" or task.due_at is None or task.due_at > tx.now:
            return None
        wake = _begin(task, meter)
        task.save()
        return wake

    return _each(tx, _DUE.all(tx.connection, {"now": tx.now, "most": limit}), "due_at", begin)


def _each(tx: Tx, rows: list[Any], due: str, change: Callable[[_Task], Wake | None]) -> list[Wake]:
    """Change each task by itself: one that cannot be is put off, and keeps no other waiting."""
    wakes = []
    # By number: two workers that change the same ones do not wait for each other in a circle.
    for row in sorted(rows, key=lambda row: row.n):
        try:
            with tx.connection.begin_nested():
                wake = change(_locked(tx, row.n))
        except Exception as error:
            if getattr(error, "sqlstate", None) in IN_THE_WAY:
                raise
            log.warning("task %d is put off: %s", row.n, type(error).__name__)
            # Unless another has changed it since.
            still = (_t.c.n == row.n, _t.c[due] <= tx.now)
            later = {due: tx.now + PUT_OFF_SECONDS}
            tx.connection.execute(sa.update(_t).where(*still).values(later))
        else:
            wakes += [] if wake is None else [wake]
    return wakes


def any_due(connection: sa.Connection, now: float) -> bool:
    asked = {"now": now, "most": 1}
    return bool(_DUE.all(connection, asked) or _LOOK.all(connection, asked))


def stop_late(tx: Tx, limit: int) -> list[Wake]:
    """End what has no more time: tasks behind their deadline, attempts behind their limit."""

    def stop(task: _Task) -> Wake | None:
        if task.look_at is None or task.look_at > tx.now:
            return None
        wake = None
        if task.deadline is not None and task.deadline <= tx.now:
            task.look_at = None
            wake = _stop(task, "deadline")
        elif task.state == "begun" and _time_is_up(task):
            task.look_at = task.deadline
            wake = _stop(task, "time")
        else:
            _look_next(task)
        task.save()
        return wake

    return _each(tx, _LOOK.all(tx.connection, {"now": tx.now, "most": limit}), "look_at", stop)


def cancel(tx: Tx, tenant: str, name: str) -> Wake | None:
    """End a task that is not wanted any more. One that has ended stays as it is."""
    task = _named(tx, tenant, name)
    if task.state in ("done", "dead", "cancelled"):
        return None
    wake = _stop(task, "cancel")
    task.save()
    return wake


def requeue(
    tx: Tx,
    tenant: str,
    name: str,
    deadline: float | None,
    meter: Meter,
    begun: dict[int, Wake | None],
) -> Wake | None:
    """Begin a task anew that has failed or was cancelled, or at once one that waits. `begun` is
    which attempt a run of this change began, and whom to wake for it."""
    task = _named(tx, tenant, name)
    if task.state == "begun" and task.attempt in begun:
        return begun[task.attempt]  # The answer to the COMMIT was lost.
    if task.state == "done":
        raise UsageError(f"Task {name!r} is done; hand in a new one to have it done again.")
    if task.state == "begun":
        raise UsageError(
            f"Attempt {task.attempt} of task {name!r} is under way; cancel the task first, or wait"
            " for its end."
        )
    if deadline is not None:
        task.deadline = deadline
    if task.deadline is not None and task.deadline <= tx.now:
        raise UsageError(
            f"The deadline of task {name!r}, {moment(task.deadline)}, has passed; name a later one"
            " to begin it anew."
        )
    if task.state != "waits":
        task.first = task.attempt + 1
    task.ended_at = None
    wake = _begin(task, meter)
    begun[task.attempt] = wake
    task.reason = None
    task.save()
    return wake


def reported(session: LockedSession, turn: int, report: ExecutorReport, passing: bool) -> None:
    """Decide what follows from the turn that worked an attempt: the result, another attempt at
    a time, or the end. The session is its caller's to save."""
    task = _Task(session)
    if task.state != "begun" or _turn_of(task) != turn:
        # Somebody talks in the task's session.
        return
    attempt = _attempt(task)
    _END_ATTEMPT.run(
        task.tx.connection,
        {
            "of_n": task.n,
            "of_attempt": task.attempt,
            "turn": turn,
            "outcome": report.outcome,
            "reason": report.reason,
            "cost_usd": report.cost_usd,
            "ended_at": task.tx.now,
        },
    )
    if report.done:
        task.result = report.text
        _end(task, "done", None)
    elif attempt.stopped == "cancel" or (
        attempt.stopped is None and report.outcome in ("cancelled", "rolled_back")
    ):
        _end(task, "cancelled", report.reason)
    else:
        late = attempt.stopped == "time" and report.outcome == "cancelled"
        _try_again(task, report, passing or late)
    task.write()


def opened(session: LockedSession) -> None:
    """The turn has opened that works an attempt: from here its time counts."""
    task = _Task(session)
    if task.new.attempt_seconds is not None and task.state == "begun":
        _look_next(task)
        task.write()


def why_stopped(session: LockedSession, turn: int) -> str | None:
    """Why the task itself had `turn` cancelled, in words; None where it had not."""
    task = _Task(session)
    if task.state != "begun" or _turn_of(task) != turn:
        return None
    stopped = _attempt(task).stopped
    return None if stopped is None else _why(task, stopped)


def _try_again(task: _Task, report: ExecutorReport, passing: bool) -> None:
    reason = report.reason or f"The attempt ended as {report.outcome}."
    retry = task.new.retry
    if task.deadline is not None and task.deadline <= task.tx.now:
        _end(task, "dead", _why(task, "deadline"))
        return
    if not passing:
        again = " Time does not mend that, so it was not tried again."
        _end(task, "dead", reason + (again if task.used < retry.attempts_max else ""))
        return
    if task.used >= retry.attempts_max:
        times = "once" if task.used == 1 else f"{task.used} times"
        _end(task, "dead", f"It was tried {times}, and the last attempt failed: {reason}")
        return
    pause = retry.pause_seconds(task.used)
    due_at = task.tx.now + pause * (1 + SPREAD * _dice(task))
    if task.deadline is not None and due_at >= task.deadline:
        late = f"The next attempt would begin after its deadline, {moment(task.deadline)}."
        _end(task, "dead", f"{reason} {late}")
        return
    task.state, task.reason, task.due_at = "waits", reason, due_at
    task.look_at = task.deadline
    task.tell("task_waits", reason=reason, due_at=due_at)


def _dice(task: _Task) -> float:
    """From 0 to 1, another for each attempt of each task, and always the same."""
    return zlib.crc32(f"{task.id}/{task.attempt}".encode()) / 2**32


def _stop(task: _Task, why: Stopped) -> Wake | None:
    """End the task, or only its attempt where `why` is its own time."""
    if task.state == "begun":
        message = _message(task)
        if message.state == "waiting":
            inbox.withdraw(task.session, message._asdict())
        elif task.session.open_turn == message.turn:
            if why == "deadline" and _attempt(task).stopped == "cancel":
                # It ends as somebody wanted it to, while there was time.
                return None
            stopped = {"of_n": task.n, "of_attempt": task.attempt, "stopped": why}
            _STOP_ATTEMPT.run(task.tx.connection, stopped)
            inbound = Inbound(id=f"task/{task.attempt}/{why}", kind="cancel", target=message.turn)
            accepted = inbox.put(task.session, inbound, 0)
            return accepted.wake
    _end(task, "cancelled" if why == "cancel" else "dead", _why(task, why))
    return None


def _end(task: _Task, state: TaskState, reason: str | None) -> None:
    task.state, task.reason = state, reason
    task.due_at = task.look_at = None
    task.ended_at = task.tx.now
    task.tell("task_ended", state=state, reason=reason, attempts=task.attempt)


def _why(task: _Task, stopped: str) -> str:
    match stopped:
        case "deadline":
            assert task.deadline is not None
            return f"The task was not done by its deadline, {moment(task.deadline)}."
        case "time":
            return f"The attempt took longer than {task.new.attempt_seconds:g} s."
        case _:
            return "The task was cancelled."


def _look_next(task: _Task) -> None:
    """Say when somebody is to look whether a time is up: never too late."""
    seconds = task.new.attempt_seconds
    times = [] if task.deadline is None else [task.deadline]
    started = _started(task) if task.state == "begun" and seconds is not None else None
    if started is not None and seconds is not None:
        # Its time begins with its turn (`opened`): one that stands in line has all of it.
        times.append(started + seconds)
    task.look_at = min(times, default=None)


def _time_is_up(task: _Task) -> bool:
    started, seconds = _started(task), task.new.attempt_seconds
    if started is None or seconds is None or _attempt(task).stopped is not None:
        return False
    return started + seconds <= task.tx.now


def _started(task: _Task) -> float | None:
    turn = _turn_of(task)
    if turn is None:
        return None
    at = {"of_sid": task.session.sid, "of_turn": turn}
    started: float | None = _STARTED.scalar(task.tx.connection, at)
    return started


def _turn_of(task: _Task) -> int | None:
    """The turn that works the newest attempt."""
    row = _message(task)
    turn: int | None = None if row is None or row.state == "waiting" else row.turn
    return turn


def _message(task: _Task) -> Any:
    at = {"of_sid": task.session.sid, "of_sender": _sender(task.attempt)}
    return _MESSAGE.first(task.tx.connection, at)


def _sender(attempt: int) -> str:
    # No person can send under an id with a slash.
    return f"attempt/{attempt}"


def _attempt(task: _Task) -> Any:
    return _ATTEMPT.one(task.tx.connection, {"of_n": task.n, "of_attempt": task.attempt})


def _named(tx: Tx, tenant: str, name: str) -> _Task:
    known = _KNOWN.first(tx.connection, {"of_tenant": tenant, "of_id": name})
    if known is None:
        raise UnknownTask(unknown(name))
    return _locked(tx, known.n)


def _locked(tx: Tx, n: int) -> _Task:
    row = tx.connection.execute(
        sa.select(_s.c.tenant, _s.c.id).join(_t, _t.c.sid == _s.c.sid).where(_t.c.n == n)
    ).one()
    return _Task(LockedSession(tx, SessionKey(row.tenant, row.id)))


def unknown(name: str) -> str:
    return f"There is no task {name!r}; `everturn tasks list` names those there are."
