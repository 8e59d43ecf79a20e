"""What MCP servers made of what people asked them for: written into the message, once."""

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from everturn.events import Draft
from everturn.mcp_prompts import Due, Rendering
from everturn.messages import UserMessage, message_from_json
from everturn.session import GatherTools, SessionKey
from everturn_activities.store import reads, schema
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.statement import Statement

_m, _i = schema.messages, schema.inbox
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_ADMITTED = Statement(
    sa.select(_m.c.position, _m.c.body, _m.c.tokens)
    .where(_m.c.sid == _sid, _m.c.turn == sa.bindparam("of_turn"), _m.c.role == "user")
    .order_by(_m.c.position)
)
_STEERED = Statement(
    sa.select(_i)
    .where(_i.c.sid == _sid, _i.c.state == "waiting", _i.c.mode == "steer", _i.c.renders == 1)
    .order_by(_i.c.position)
)
_WRITE = Statement(
    sa.update(_m)
    .where(_m.c.sid == _sid, _m.c.position == sa.bindparam("of_position"))
    .values(body=sa.bindparam("body"), tokens=sa.bindparam("tokens"))
)
_SETTLE = Statement(
    sa.update(_i)
    .where(_i.c.sid == _sid, _i.c.position == sa.bindparam("of_position"))
    .values(
        body=sa.bindparam("body"),
        tokens=sa.bindparam("tokens"),
        renders=sa.bindparam("renders"),
        mode=sa.bindparam("mode"),
    )
)


def due(connection: sa.Connection, key: SessionKey, turn: int) -> list[Due]:
    """The messages of a turn, and those that wait to steer it, that are still to be rendered."""
    at = {"of_sid": reads.sid_of(connection, key)}
    admitted = _ADMITTED.all(connection, {**at, "of_turn": turn})
    found = [Due(row.position, _message(row.body)) for row in admitted]
    steered = _STEERED.all(connection, at)
    found += [Due(row.position, _message(row.body), steers=True) for row in steered]
    return [one for one in found if one.message.is_due]


def settle(
    tx: Tx,
    request: GatherTools,
    rendered: Sequence[Rendering],
    count: Callable[[UserMessage], int],
) -> None:
    """Write what the servers answered where no other worker has written what it was told.

    One that is not to be had, and steers, is to wait for a turn of its own, which ends so.
    """
    session = LockedSession(tx, SessionKey(request.tenant, request.session))
    session.demand_host(request.turn, request.epoch)
    at = {"of_sid": session.sid}
    admitted = {
        row.position: row for row in _ADMITTED.all(tx.connection, {**at, "of_turn": request.turn})
    }
    steered = {row.position: row for row in _STEERED.all(tx.connection, at)}
    for one in rendered:
        row: Any = (steered if one.due.steers else admitted).get(one.due.position)
        if row is None or not _message(row.body).is_due:
            continue
        where = {**at, "of_position": one.due.position}
        if one.message is None:
            _SETTLE.run(
                tx.connection,
                {**where, "body": row.body, "tokens": row.tokens, "renders": 1, "mode": "queue"},
            )
            session.tell(_refused(session, request.turn, row.sender_id, one.problem))
            continue
        tokens = count(one.message)
        written = {**where, "body": one.message.model_dump_json(), "tokens": tokens}
        if one.due.steers:
            _SETTLE.run(tx.connection, {**written, "renders": 0, "mode": row.mode})
        else:
            _WRITE.run(tx.connection, written)
            session.message_tokens += tokens - row.tokens
    session.renders_due = 0
    session.save()


def _refused(session: LockedSession, turn: int, sender: str, problem: str) -> Draft:
    text = f"{problem} The message that asks for it waits for a turn of its own."
    return Draft(id=f"message/{sender}/unrendered", type="status", turn=turn, body={"text": text})


def _message(body: str) -> UserMessage:
    message = message_from_json(body)
    assert isinstance(message, UserMessage)
    return message
