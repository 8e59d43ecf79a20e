"""Turns that are worked again: which, one after the other, and with whose messages."""

import json
from typing import Any

import sqlalchemy as sa

from everturn.events import Draft
from everturn.messages import (
    UserMessage,
    message_from_json,
)
from everturn.session import OutcomeKind
from everturn_activities.store import Inbound, Wake, inbox, schema
from everturn_activities.store.locked import ASSISTANT_PART, LockedSession
from everturn_activities.store.origins import fork_of
from everturn_activities.store.statement import Statement

ENDING: frozenset[OutcomeKind] = frozenset(
    {"cancelled", "rolled_back", "budget_exceeded", "failed", "model_failed"}
)
"""Outcomes after which the turns behind are not worked again."""

_m, _i, _f = schema.messages, schema.inbox, schema.forks
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_turn: sa.BindParameter[int] = sa.bindparam("of_turn")
_SAID = Statement(
    sa.select(_m)
    .where(
        _m.c.sid == _sid,
        _m.c.turn == _turn,
        _m.c.step == sa.bindparam("of_step"),
        _m.c.role == "user",
        _m.c.part < ASSISTANT_PART,
    )
    .order_by(_m.c.position)
)
_SENT_AS = Statement(
    sa.select(_i.c.agent, _i.c.model)
    .where(_i.c.sid == _sid, _i.c.turn == _turn, _i.c.kind == "message")
    .order_by(_i.c.position)
    .limit(1)
)
_PLAY = Statement(sa.update(_f).where(_f.c.sid == _sid).values(playing=sa.bindparam("playing")))


def send(session: LockedSession, turn: int) -> Wake | None:
    """Put what opened the origin's `turn` into the inbox, for a turn of our own."""
    came = fork_of(session.tx.connection, session.sid)
    at = {"of_sid": came.origin, "of_turn": turn}
    sent = _SENT_AS.first(session.tx.connection, at)
    agent, model = (None, None) if sent is None else (sent.agent, sent.model)
    plan = json.loads(came.plan)
    if plan["agent"] or plan["model"]:
        # Who works the fork was said for all of it.
        agent, model = None if plan["agent"] else agent, None
    wake = None
    for said in _SAID.all(session.tx.connection, {**at, "of_step": 0}):
        wake = _put(session, turn, said, "queue", agent, model) or wake
    return wake


def steer(session: LockedSession, step: int) -> None:
    """Put what was steered into the origin's turn before that step into the inbox."""
    came = fork_of(session.tx.connection, session.sid)
    if came.playing is None:
        return
    at = {"of_sid": came.origin, "of_turn": came.playing, "of_step": step}
    for said in _SAID.all(session.tx.connection, at):
        _put(session, came.playing, said, "steer", None, None)


def _put(
    session: LockedSession, turn: int, said: Any, mode: Any, agent: str | None, model: str | None
) -> Wake | None:
    message = message_from_json(said.body)
    assert isinstance(message, UserMessage)
    inbound = Inbound(
        id=f"replay:{turn}.{said.step}.{said.part}",
        kind="message",
        message=message,
        mode=mode,
        agent=agent,
        model=model,
    )
    return inbox.put(session, inbound, said.tokens).wake


def go_on(session: LockedSession, outcome: OutcomeKind) -> None:
    """Have the next turn worked again, now that one is over."""
    came = fork_of(session.tx.connection, session.sid)
    if came.playing is None:
        return
    left = [turn for turn in json.loads(came.plan)["turns"] if turn > came.playing]
    following = left[0] if left and outcome not in ENDING else None
    if left and following is None:
        text = f"Turns after {came.playing} are not worked again, as this one ended: {outcome}."
        draft = Draft(id="replay/left", type="status", turn=session.turn, body={"text": text})
        session.tell(draft)
    _PLAY.run(session.tx.connection, {"of_sid": session.sid, "playing": following})
    if following is not None:
        send(session, following)
