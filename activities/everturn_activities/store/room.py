"""Room in the window: what a step's request takes, by running sums, and what is due for it."""

from collections.abc import Iterator
from typing import NamedTuple

import sqlalchemy as sa

from everturn.context.compaction import CUT_SHARE_MIN, Counted, Plan, cut_point, kept_tokens_max
from everturn.context.cuts import Cut, Span, shown
from everturn.context.window import Frame, Sections, history_budget
from everturn.events import Draft
from everturn.profile import History
from everturn_activities.store import cuts, schema, side_journal
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.statement import Statement

PAGE = 256
"""Messages that are looked at together, from the newest on."""

_messages = schema.messages
_sent_between = sa.and_(
    _messages.c.sid == sa.bindparam("of_sid"),
    _messages.c.position >= sa.bindparam("first"),
    _messages.c.position <= sa.bindparam("last"),
    sa.or_(_messages.c.turn >= sa.bindparam("since"), _messages.c.said == 1),
)
_ROLES = Statement(
    sa.select(_messages.c.position, _messages.c.role, _messages.c.tokens)
    .where(_sent_between)
    .order_by(_messages.c.position)
)
_NEWEST = Statement(
    sa.select(
        _messages.c.position,
        _messages.c.role,
        _messages.c.tokens,
        _messages.c.result_characters,
    )
    .where(_sent_between)
    .order_by(_messages.c.position.desc())
    .limit(PAGE)
)
# By the index of the turn's messages: SQLite looks for a least position among all of them.
_FIRST_OF_TURN = Statement(
    sa.select(_messages.c.position)
    .where(_messages.c.sid == sa.bindparam("of_sid"), _messages.c.turn == sa.bindparam("of_turn"))
    .order_by(_messages.c.step, _messages.c.part)
    .limit(1)
)


def sections(session: LockedSession, frame: Frame) -> Sections:
    """What the request takes now. Tool results beyond their budget count by their share."""
    memory = session.message_tokens - session.history_tokens
    budget = frame.tool_result_budget
    if budget is not None and session.result_characters > budget:
        share = 1 - budget / session.result_characters
        memory = max(0, memory - int(share * session.result_tokens))
    return frame.sections(session.history_tokens, memory)


def begin_turn(session: LockedSession, rules: History) -> None:
    """Let the conversation so far be the history of the turn that begins, as its agent wants it.

    What an agent that loads the newest begins with is reckoned once its window is known.
    """
    since = session.turn if rules.projects else 0
    if rules.load == "all" and (session.sent_first, session.sent_since, since) != (1, 0, 0):
        session.sent_first, session.sent_since = 1, since
        cuts.count_again(session)
    session.sent_since = since
    session.history_tokens = session.message_tokens


def fit(session: LockedSession, frame: Frame, step: int) -> None:
    """Send the newest messages of earlier turns that fit beside this one, where the agent wants
    that. No tool result is sent without the call that it answers.

    From the newest on, in pages: it costs what is sent, however much is stored.
    """
    if frame.history.load == "all":
        return
    budget = history_budget(frame, session.message_tokens - session.history_tokens)
    whole = (session.sent_first, session.sent_since) == (1, 0)
    if session.history_tokens <= budget and (whole or step > 1):
        return
    session.write_messages()
    at = {"of_sid": session.sid, "of_turn": session.open_turn}
    begins = _FIRST_OF_TURN.scalar(session.tx.connection, at) or session.message_pos + 1
    kept, all_of_it = _newest(session, begins - 1, budget)
    while kept and kept[-1].role == "tool":
        kept.pop()
        all_of_it = False
    session.message_tokens -= session.history_tokens
    session.history_tokens = sum(one.tokens for one in kept)
    session.message_tokens += session.history_tokens
    here = cuts.sums(session, begins, session.message_pos)
    results = [one for one in kept if one.role == "tool"]
    session.result_tokens = here.results + sum(one.tokens for one in results)
    session.result_characters = here.characters + sum(one.characters for one in results)
    session.sent_first = 1 if all_of_it else kept[-1].position if kept else begins


class _Kept(NamedTuple):
    position: int
    role: str
    tokens: int
    characters: int


def _newest(session: LockedSession, upto: int, budget: int) -> tuple[list[_Kept], bool]:
    """What is sent up to position `upto` within `budget` tokens, the newest first; and whether
    that is all there is."""
    connection = session.tx.connection
    kept: list[_Kept] = []
    in_force = cuts.in_force(connection, session.sid, session.cut_n)
    for piece in reversed(shown(in_force, upto)):
        for one in _backwards(session, piece):
            budget -= one.tokens
            if budget < 0:
                return kept, False
            kept.append(one)
    return kept, True


def _backwards(session: LockedSession, piece: Span | Cut) -> Iterator[_Kept]:
    if isinstance(piece, Cut):
        yield _Kept(piece.first, "summary", piece.tokens, 0)
        return
    at = {"of_sid": session.sid, "first": piece.first, "since": session.sent_since}
    last = piece.last
    while last >= piece.first:
        page = _NEWEST.all(session.tx.connection, {**at, "last": last})
        yield from (
            _Kept(row.position, row.role, row.tokens, row.result_characters) for row in page
        )
        if len(page) < PAGE:
            return
        last = page[-1].position - 1


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
                    id=f"nothing-to-compact/{session.event_seq}",
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
    return Plan(
        replaced[-1].position,
        tokens,
        session.cut_n,
        session.compaction_failures,
        session.sent_first,
        session.sent_since,
    )


def _counted(session: LockedSession) -> list[Counted]:
    """The messages that are sent now."""
    session.write_messages()
    connection = session.tx.connection
    found: list[Counted] = []
    in_force = cuts.in_force(connection, session.sid, session.cut_n)
    for piece in shown(in_force, session.message_pos, session.sent_first):
        if isinstance(piece, Cut):
            found.append(Counted(piece.last, "summary", piece.tokens))
            continue
        at = {"of_sid": session.sid, "first": piece.first, "last": piece.last}
        at["since"] = session.sent_since
        found += [Counted(row.position, row.role, row.tokens) for row in _ROLES.all(connection, at)]
    return found
