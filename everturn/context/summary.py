"""How the summary of an earlier part of a conversation stands in its place."""

from everturn.messages import UserMessage, user_text

HEADING = "The earlier part of this conversation was summarised to make room. The summary:\n\n"
ENDING = (
    "\n\nThe newest messages follow as they were said. Go on with the work from there: do not"
    " repeat the summary, and do not ask again for what it tells."
)


def summary_message(text: str) -> UserMessage:
    """`text` as a model is sent it: said by the user, and marked as a summary."""
    return user_text(HEADING + text + ENDING)
