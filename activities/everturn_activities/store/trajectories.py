"""What a session did, step by step, read for a comparison."""

import json
from typing import Any

import sqlalchemy as sa

from everturn.errors import UsageError
from everturn.messages import AssistantMessage, UserMessage, message_from_json
from everturn.session import SessionKey
from everturn.trajectories import CallTrace, StepTrace, Trajectory, TurnTrace
from everturn_activities.store import reads, schema
from everturn_activities.store.results import result_of

STEPS_MAX = 2_000

_t, _st, _c, _m = schema.turns, schema.steps, schema.tool_calls, schema.messages


def read(connection: sa.Connection, key: SessionKey, turn: int | None) -> Trajectory:
    """The turns of its own that the session has, or one of them; raises UsageError where there
    is none of that number, or they are too many to compare."""
    view = reads.session(connection, key)

    def compared(table: sa.Table) -> list[sa.ColumnElement[bool]]:
        which = [table.c.sid == reads.sid_of(connection, key)]
        return which if turn is None else [*which, table.c.turn == turn]

    def rows(table: sa.Table, *order: Any) -> list[Any]:
        query = sa.select(table).where(*compared(table)).order_by(*order)
        return list(connection.execute(query).all())

    turns = rows(_t, _t.c.turn)
    if turn is not None and not turns:
        raise UsageError(
            f"Session {key.session!r} has worked no turn {turn} itself; its newest is {view.turn}."
        )
    # Counted before they are read: they can be more than memory has room for.
    counted = sa.select(sa.func.count()).select_from(_st).where(*compared(_st))
    if (many := connection.execute(counted).scalar_one()) > STEPS_MAX:
        which = f"Session {key.session!r}" if turn is None else f"Turn {turn} of {key.session!r}"
        mend = "name a turn" if turn is None else "name another"
        raise UsageError(f"{which} has {many:,} steps and {STEPS_MAX:,} can be compared; {mend}.")
    steps = rows(_st, _st.c.turn, _st.c.step)
    calls = _by_step(rows(_c, _c.c.turn, _c.c.step, _c.c.idx))
    messages = _by_step(rows(_m, _m.c.position))
    made: dict[int, list[StepTrace]] = {}
    for row in steps:
        at = (row.turn, row.step)
        made.setdefault(row.turn, []).append(_step(row, calls.get(at, []), messages.get(at, [])))
    return Trajectory(
        session=key.session,
        forked=view.forked,
        turns=tuple(
            TurnTrace(
                turn=row.turn,
                said=_said(messages.get((row.turn, 0), [])),
                outcome=row.outcome,
                seconds=None if row.ended_at is None else round(row.ended_at - row.started_at, 4),
                steps=tuple(made.get(row.turn, ())),
            )
            for row in turns
        ),
    )


def _by_step(rows: list[Any]) -> dict[tuple[int, int], list[Any]]:
    found: dict[tuple[int, int], list[Any]] = {}
    for row in rows:
        found.setdefault((row.turn, row.step), []).append(row)
    return found


def _step(row: Any, calls: list[Any], messages: list[Any]) -> StepTrace:
    said = [message_from_json(one.body) for one in messages if one.role == "assistant"]
    ended = row.ended_at is not None and row.started_at is not None
    return StepTrace(
        turn=row.turn,
        step=row.step,
        model=row.model,
        stop=row.stop,
        text="".join(one.text for one in said if isinstance(one, AssistantMessage)),
        calls=tuple(_call(one) for one in calls),
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cost_usd=row.cost_usd,
        seconds=round(row.ended_at - row.started_at, 4) if ended else None,
    )


def _call(row: Any) -> CallTrace:
    arguments = {"(malformed)": row.malformed} if row.malformed else json.loads(row.arguments)
    made = CallTrace(name=row.name, arguments=arguments)
    if row.state != "done":
        return made
    result = result_of(row)
    told = {"result": result.text, "failed": result.failed, "recorded": result.recorded}
    return made.model_copy(update=told)


def _said(messages: list[Any]) -> str:
    found = [message_from_json(one.body) for one in messages if one.role == "user"]
    return "\n".join(one.said for one in found if isinstance(one, UserMessage))
