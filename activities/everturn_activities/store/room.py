"""Room in the window: what a step's request takes, by running sums, and what is due for it."""

import sqlalchemy as sa

from everturn.context.compaction import CUT_SHARE_MIN, Counted, Plan, cut_point, kept_tokens_max
from everturn.context.cuts import Cut, shown
from everturn.context.window import Frame, Sections, history_budget, newest_that_fit
from everturn.events import Draft
from everturn_activities.store import cuts, schema, side_journal
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.statement import Statement

_messages = schema.messages
_ROLES = Statement(
    sa.select(_messages.c.position, _messages.c.role, _messages.c.tokens)
    .where(
        _messages.c.sid == sa.bindparam("of_sid"),
        _messages.c.position >= sa.bindparam("first"),
        _messages.c.position <= sa.bindparam("last"),
    )
    .order_by(_messages.c.position)
)
_FIRST_OF_TURN = Statement(
    sa.select(sa.func.min(_messages.c.position)).where(
        _messages.c.sid == sa.bindparam("of_sid"), _messages.c.turn == sa.bindparam("of_turn")
    )
)


def sections(session: LockedSession, frame: Frame) -> Sections:
    """What the request takes now. Tool results beyond their budget count by their share."""
    memory = session.message_tokens - session.history_tokens
    budget = frame.tool_result_budget
    if budget is not None and session.result_characters > budget:
        share = 1 - budget / session.result_characters
        memory = max(0, memory - int(share * session.result_tokens))
    return frame.sections(session.history_tokens, memory)


def drop_oldest(session: LockedSession, frame: Frame) -> None:
    """Leave out those oldest messages of earlier turns that do not fit beside this one."""
    budget = history_budget(frame, session.message_tokens - session.history_tokens)
    if session.history_tokens <= budget:
        return
    begins = _FIRST_OF_TURN.scalar(
        session.tx.connection, {"of_sid": session.sid, "of_turn": session.open_turn}
    )
    history = [message for message in _counted(session) if message.position < begins]
    first = newest_that_fit([message.tokens for message in history], budget)
    while first < len(history) and history[first].role == "tool":
        first += 1
    if first:
        last = history[first - 1].position
        cuts.cut(session, "trim", 1, last, session.open_turn or session.turn)


def due(session: LockedSession, frame: Frame, used: int, tried: bool) -> int:
    """The ordinal in its turn of the compaction that is due, 0 for none.

    One that failed just now is tried again before the next step; at the critical level, at
    once. After too many failures in a row the turn goes on without.
    """
    if not session.compact_asked:
        level = frame.level(used)
        if level not in ("compact", "critical") or not frame.compaction.enabled:
            return 0
        if tried and level == "compact":
            return 0
        if session.compaction_failures >= frame.compaction.failures_max:
            return 0
    if plan(session, frame, False) is None:
        if session.compact_asked:
            session.compact_asked = 0
            session.tell(
                Draft(
                    id=f"cut/{session.cut_n}/message/{session.message_pos}/nothing-to-compact",
                    type="status",
                    turn=session.open_turn or session.turn,
                    body={"text": "There is nothing yet that a summary could replace."},
                )
            )
        return 0
    return side_journal.next_ordinal(session, "compaction")


def plan(session: LockedSession, frame: Frame, forced: bool) -> Plan | None:
    """What a compaction would replace now; None where that is not worth a model call."""
    messages = _counted(session)
    tokens_max = kept_tokens_max(frame, session.message_tokens, forced)
    cut = cut_point(messages, frame.compaction.keep_last, tokens_max)
    replaced = messages[:cut]
    if not any(message.role != "summary" for message in replaced):
        return None
    tokens = sum(message.tokens for message in replaced)
    if not (session.compact_asked or forced) and tokens < CUT_SHARE_MIN * frame.window:
        return None
    return Plan(replaced[-1].position, tokens, session.cut_n, session.compaction_failures)


def _counted(session: LockedSession) -> list[Counted]:
    """The messages that are sent now."""
    session.write_messages()
    connection = session.tx.connection
    found: list[Counted] = []
    in_force = cuts.in_force(connection, session.sid, session.cut_n)
    for piece in shown(in_force, session.message_pos):
        if isinstance(piece, Cut):
            found.append(Counted(piece.last, "summary", piece.tokens))
            continue
        at = {"of_sid": session.sid, "first": piece.first, "last": piece.last}
        found += [Counted(row.position, row.role, row.tokens) for row in _ROLES.all(connection, at)]
    return found
