"""Rows of events as the script of the log in Redis takes them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from everturn.events import DELTAS
from everturn.messages import AssistantMessage
from everturn_activities.store import log_epochs

_KINDS = {"step_started": "s", "step_finished": "f", "turn_finished": "t"}
_KINDS |= dict.fromkeys(DELTAS, "d")

Texts = Mapping[tuple[int, int], AssistantMessage]
"""Replies by turn and step."""


def rows_told(row: Any, texts: Texts | None) -> Iterator[str | int]:
    """Position, kind, call, ordinal and event of a row; with `texts` a step's end comes with its
    reply, for a log that may have none of its pieces."""
    kind = _KINDS.get(row.type, "")
    call = f"{row.turn}.{row.step}.{row.attempt}"
    if kind == "f" and texts is not None:
        reply = texts.get((row.turn, row.step))
        pieces = [] if reply is None else log_epochs.pieces(reply)
        for type_, body in pieces:
            text = json.dumps(body, ensure_ascii=False)
            told = entry(type_, row.turn, row.step, row.attempt, row.time, text)
            yield from (row.seq, "x", call, 0, told)
        if not pieces:
            yield from (row.seq, "x", call, 0, "")
    ordinal = int(row.event_id.rpartition("/")[2]) if kind == "d" else 0
    told = entry(row.type, row.turn, row.step, row.attempt, row.time, row.body)
    yield from (row.seq, kind, call, ordinal, told)


def entry(type_: str, turn: int, step: int, attempt: int, time: float, body: str) -> str:
    """An event as it stands in Redis, without its number; `body` is JSON."""
    return (
        f'{{"type":"{type_}","turn":{turn},"step":{step},"attempt":{attempt},'
        f'"time":{time!r},"body":{body}}}'
    )
