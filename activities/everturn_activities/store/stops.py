"""What stopped a turn from outside: how it is told, and what a rollback takes back."""

from typing import Any

import sqlalchemy as sa

from everturn.events import Draft
from everturn.messages import UserMessage
from everturn.session import FinishTurn, OutcomeKind
from everturn_activities.store import cuts, inbox, schema
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.statement import Statement

STANDS = "files that its tools changed are put back, all else that they did stands."
NAME_CHARACTERS = 60
"""How much of a message names it in a reason."""

_inbox = schema.inbox
_of_sid = _inbox.c.sid == sa.bindparam("of_sid")
_STOPS = Statement(
    sa.select(_inbox)
    .where(
        _of_sid,
        _inbox.c.target == sa.bindparam("of_turn"),
        _inbox.c.state != "too_late",
    )
    .order_by(_inbox.c.position)
)
_ADMITTED = Statement(
    sa.select(_inbox)
    .where(_of_sid, _inbox.c.state == "admitted", _inbox.c.turn == sa.bindparam("of_turn"))
    .order_by(_inbox.c.position)
)

_FIRST = Statement(
    sa.select(sa.func.min(schema.messages.c.position)).where(
        schema.messages.c.sid == sa.bindparam("of_sid"),
        schema.messages.c.turn == sa.bindparam("of_turn"),
    )
)


_CALLED = Statement(
    sa.select(schema.tool_calls.c.idx)
    .where(
        schema.tool_calls.c.sid == sa.bindparam("of_sid"),
        schema.tool_calls.c.turn == sa.bindparam("of_turn"),
    )
    .limit(1)
)


def outcome_of(session: LockedSession, request: FinishTurn) -> tuple[OutcomeKind, str | None]:
    """The outcome of a turn that its workflow ends as `request` says, and the reason.

    A workflow knows that its turn was stopped, not by whom: that is told here. A rollback
    that was accepted while the turn was open holds, whatever the turn came to meanwhile.
    """
    if session.cancel_turn != request.turn:
        return request.outcome, request.reason
    stops = _STOPS.all(session.tx.connection, {"of_sid": session.sid, "of_turn": request.turn})
    for row in stops:
        if row.mode == "rollback":
            return "rolled_back", f"{_named(row)} rolled the turn back; {STANDS}"
    if request.outcome == "cancelled" and stops and stops[0].mode == "interrupt":
        return "cancelled", f"{_named(stops[0])} interrupted the turn."
    return request.outcome, request.reason


def roll_back(session: LockedSession, turn: int) -> None:
    """Take the messages of `turn` out of the context, and report those that it had admitted."""
    of_turn = {"of_sid": session.sid, "of_turn": turn}
    rows: list[Any] = _ADMITTED.all(session.tx.connection, of_turn)
    # Only the open turn appends, so its messages are the last ones without a gap.
    first = _FIRST.scalar(session.tx.connection, of_turn)
    cuts.cut(session, "rollback", first, session.message_pos, turn)
    if session.restore_turn == 0 and _CALLED.first(session.tx.connection, of_turn) is not None:
        session.restore_turn, session.restore_step = turn, 0
    for row in rows:
        inbox.settle(session, row._asdict(), "rolled_back", turn)
        session.tell(
            Draft(
                id=f"message/{row.sender_id}/rolled_back",
                type="message_rolled_back",
                turn=turn,
                body={"message_id": row.sender_id, "text": _said(row)},
            )
        )


def _named(row: Any) -> str:
    """A message of the inbox as a sentence begins with it: by what it says, where it says much
    enough to be known by."""
    said = " ".join(_said(row).split())
    if len(said) > NAME_CHARACTERS:
        said = said[: NAME_CHARACTERS - 1] + "…"
    return f'Message "{said}"' if said else f"Message {row.sender_id!r}"


def _said(row: Any) -> str:
    return inbox.preview(UserMessage.model_validate_json(row.body))
