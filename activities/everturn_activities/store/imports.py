"""Conversations from elsewhere: a new session takes their messages over as its own."""

from collections.abc import Sequence

from everturn.context.projection import IMPORTED
from everturn.errors import UsageError
from everturn.events import Draft
from everturn.messages import AssistantMessage, ToolMessage, UserMessage
from everturn.session import SessionKey
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.reads import message_rows
from everturn_activities.store.steps import title

AnyMessage = UserMessage | AssistantMessage | ToolMessage


def take_over(tx: Tx, key: SessionKey, messages: Sequence[tuple[AnyMessage, int]]) -> int:
    """Append messages with their tokens to a session that has none; how many it has then.

    The same messages again change nothing. They belong to turn 0, which nobody worked.
    """
    session = LockedSession(tx, key)
    if session.message_pos or session.inbox_pos:
        rows = message_rows(tx.connection, session.sid, 0, 2**31 - 1)
        known = [row.body for row in rows if row.turn == IMPORTED]
        if known and known == [message.model_dump_json() for message, _ in messages]:
            return len(known)
        raise UsageError(
            f"Session {key.session!r} has messages already; import into a new session."
        )
    for part, (message, tokens) in enumerate(messages):
        session.append(message, turn=IMPORTED, step=0, part=part, tokens=tokens)
        if isinstance(message, UserMessage) and not session.title:
            session.title = title(message)
    session.tell(
        Draft(
            id="import",
            type="messages_imported",
            body={"messages": len(messages), "tokens": session.message_tokens},
        )
    )
    session.save()
    return session.message_pos
