"""Recorded results: what calls of a turn that is worked again are answered with.

They are read off the origin's transcript, where each result stands as its model read it. A
session that replays does so for good: no later message makes its tools run either.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from everturn.errors import UsageError
from everturn.forks import EditedResult
from everturn.messages import (
    AssistantMessage,
    ToolCall,
    ToolMessage,
    ToolResult,
    message_from_json,
)
from everturn.tools import RESPONSE
from everturn_activities.store import loop_guard, schema
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.origins import fork_of
from everturn_activities.store.statement import Statement, insert

NEVER_MADE = (
    "The call was not run: this turn is worked again with recorded results, and the turn that it"
    " repeats made no call of {name} with these arguments{more}. Go on without it."
)
MADE_BEFORE = ", or not so often"

_m, _r = schema.messages, schema.recordings
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_turn: sa.BindParameter[int] = sa.bindparam("of_turn")
_OF_TURN = Statement(
    sa.select(_m).where(_m.c.sid == _sid, _m.c.turn == _turn).order_by(_m.c.position)
)
_INSERT = insert(_r)
_NEXT = Statement(
    sa.select(_r)
    .where(_r.c.sid == _sid, _r.c.turn == _turn, _r.c.digest == sa.bindparam("of_digest"))
    .order_by(_r.c.taken, _r.c.n)
    .limit(1)
)
_TAKE = Statement(
    sa.update(_r).where(_r.c.sid == _sid, _r.c.n == sa.bindparam("of_n")).values(taken=1)
)


@dataclass(frozen=True)
class Answer:
    """What a call is answered with that is not run."""

    text: str
    failed: bool
    recorded: bool
    tokens: int


def record(
    session: LockedSession,
    origin: int,
    turns: Sequence[int],
    edits: Sequence[EditedResult],
    count: Callable[[ToolMessage], int],
) -> None:
    """Write down the results of the turns to be worked again, with the edits in place.

    Raises UsageError for an edit of a result that is not among them.
    """
    edited = {(edit.turn, edit.step, edit.index): edit.text for edit in edits}
    n = 0
    for turn in turns:
        for step, index, call, result in _results(session, origin, turn):
            text = edited.pop((turn, step, index), result.text)
            n += 1
            tokens = count(ToolMessage(results=(result.model_copy(update={"text": text}),)))
            _INSERT.run(
                session.tx.connection,
                {
                    "sid": session.sid,
                    "n": n,
                    "turn": turn,
                    "digest": _digest(call),
                    "failed": int(result.failed),
                    "tokens": tokens,
                    "result": text,
                },
            )
    for turn, step, index in edited:
        raise UsageError(
            f"There is no result {turn}.{step}.{index} in the turns that are worked again; name a"
            " call as TURN.STEP.INDEX, where the first of a step has the index 0."
        )


def _results(
    session: LockedSession, origin: int, turn: int
) -> Iterator[tuple[int, int, ToolCall, ToolResult]]:
    """Each call of a turn that has a result: its step, its index, itself and the result."""
    asked: Sequence[ToolCall] = ()
    for row in _OF_TURN.all(session.tx.connection, {"of_sid": origin, "of_turn": turn}):
        message = message_from_json(row.body)
        if isinstance(message, AssistantMessage):
            asked = message.tool_calls
        elif isinstance(message, ToolMessage):
            for index, (call, result) in enumerate(zip(asked, message.results, strict=False)):
                yield row.step, index, call, result


def _digest(call: ToolCall) -> str:
    """Equal for calls of the same tool with the same arguments, in whichever order."""
    canonical = json.dumps(call.arguments, ensure_ascii=False, sort_keys=True)
    return loop_guard.digest(call.name, call.malformed or canonical)


def answer(session: LockedSession, call: ToolCall, changing: frozenset[str]) -> Answer | None:
    """What a call is answered with in a session that replays; None where it runs."""
    if call.name == RESPONSE:
        # The answer to the user: nothing comes of it but its own text.
        return None
    connection = session.tx.connection
    came = fork_of(connection, session.sid)
    at = {"of_sid": session.sid, "of_turn": came.playing, "of_digest": _digest(call)}
    found = None if came.playing is None else _NEXT.first(connection, at)
    if found is not None and not found.taken:
        _TAKE.run(connection, {"of_sid": session.sid, "of_n": found.n})
        return Answer(found.result, bool(found.failed), True, found.tokens)
    if came.unrecorded == "run" or (came.unrecorded == "pure" and call.name not in changing):
        return None
    text = NEVER_MADE.format(name=call.name, more="" if found is None else MADE_BEFORE)
    return Answer(text, True, False, len(text) // 4)
