"""A conversation as it is sent: its messages, and what stands for those before them."""

from typing import NamedTuple

from everturn.context.summary import summary_message
from everturn.messages import AssistantMessage, ToolMessage, UserMessage

AnyMessage = UserMessage | AssistantMessage | ToolMessage


class Conversation(NamedTuple):
    """`summary` is of what came before `messages`, None where nothing is left out."""

    messages: tuple[AnyMessage, ...] = ()
    summary: str | None = None

    @property
    def whole(self) -> tuple[AnyMessage, ...]:
        """The messages with the summary as the first of them."""
        if self.summary is None:
            return self.messages
        return (summary_message(self.summary), *self.messages)
