"""What is known of a call that was made before: it fails for sure, or it polls.

Looked at where a reply's calls are journaled, so the decision is a part of that row: a re-run
reads it. A call that is new to its turn costs one look into an index.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from everturn.session import ToolHead
from everturn_activities.store import schema
from everturn_activities.store.statement import Statement

FAILURES_MAX = 2
"""Equal failures of a call, after which it is refused unless something has changed."""
POLLS_MAX = 16
"""Equal results of a call, after which it waits before it is made again."""
PAUSES_SECONDS = (5.0, 10.0, 30.0, 60.0)

REFUSED = (
    "The call did not run: the same call with the same arguments has failed {times} times with"
    " the same error and would fail again. Change the arguments, or go another way. The error"
    " was: {error}"
)
ERROR_CHARACTERS = 500

_calls = schema.tool_calls
_of_turn = sa.and_(_calls.c.sid == sa.bindparam("of_sid"), _calls.c.turn == sa.bindparam("of_turn"))
_EARLIER = Statement(
    sa.select(_calls.c.step, _calls.c.failed, _calls.c.result, _calls.c.duration_seconds)
    .where(_of_turn, _calls.c.digest == sa.bindparam("of_digest"), _calls.c.state == "done")
    .order_by(_calls.c.step.desc(), _calls.c.idx.desc())
    .limit(POLLS_MAX + len(PAUSES_SECONDS))
)
_SUCCEEDED = Statement(
    sa.select(_calls.c.name).where(
        _of_turn,
        _calls.c.step >= sa.bindparam("of_step"),
        _calls.c.state == "done",
        _calls.c.failed == 0,
    )
)


class Repeated(NamedTuple):
    """A call that gave the same result so many `times` in a row: with a `refusal` it is not
    run again, with `delay_seconds` it waits."""

    times: int
    refusal: str | None = None
    delay_seconds: float = 0.0


def digest(name: str, arguments: str) -> str:
    """Equal for equal calls. `arguments` is what the model wrote, as JSON or malformed."""
    text = f"{name}\0{arguments}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=12).hexdigest()


def repeated(
    connection: sa.Connection,
    sid: int,
    turn: int,
    call: str,
    head: ToolHead,
    changing: frozenset[str],
) -> Repeated | None:
    """What follows from the earlier results of the call of that digest, or None.

    A failure is taken to be for sure when it was the same twice, did not come of a time-out,
    and no tool of `changing` has succeeded since the first of them.
    """
    at = {"of_sid": sid, "of_turn": turn}
    rows = _EARLIER.all(connection, {**at, "of_digest": call})
    if len(rows) < FAILURES_MAX:
        return None
    times = _equal(rows)
    last = rows[0]
    if last.failed:
        if times < FAILURES_MAX or (last.duration_seconds or 0.0) >= head.timeout_seconds:
            return None
        since = {**at, "of_step": rows[FAILURES_MAX - 1].step}
        if any(row.name in changing for row in _SUCCEEDED.all(connection, since)):
            return None
        error = last.result[:ERROR_CHARACTERS]
        return Repeated(times, refusal=REFUSED.format(times=times, error=error))
    if times < POLLS_MAX:
        return None
    return Repeated(times, delay_seconds=PAUSES_SECONDS[min(times - POLLS_MAX, 3)])


def _equal(rows: Sequence[Any]) -> int:
    """How many of the newest results are one and the same."""
    first = rows[0]
    for number, row in enumerate(rows):
        if row.failed != first.failed or row.result != first.result:
            return number
    return len(rows)
