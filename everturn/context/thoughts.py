"""Thoughts go back to the model that thought them, and to no other."""

from collections.abc import Sequence

from everturn.messages import AssistantMessage, Thinking, ToolMessage, UserMessage

AnyMessage = UserMessage | AssistantMessage | ToolMessage


def thought_by(message: AssistantMessage, model: str) -> AssistantMessage:
    """`message` with the name of its model at its thoughts."""
    if not any(isinstance(part, Thinking) for part in message.parts):
        return message
    parts = tuple(
        part.model_copy(update={"by": model}) if isinstance(part, Thinking) else part
        for part in message.parts
    )
    return message.model_copy(update={"parts": parts})


def known_to(model: str, messages: Sequence[AnyMessage]) -> tuple[AnyMessage, ...]:
    """`messages` without the thoughts of others: their proofs and the fields they came in mean
    nothing to `model`, and its provider may refuse the request for them."""
    return tuple(
        _without(message, model) if _has_foreign(message, model) else message
        for message in messages
    )


def _has_foreign(message: AnyMessage, model: str) -> bool:
    return isinstance(message, AssistantMessage) and any(
        _is_foreign(part, model) for part in message.parts
    )


def _is_foreign(part: object, model: str) -> bool:
    return isinstance(part, Thinking) and part.by is not None and part.by != model


def _without(message: AnyMessage, model: str) -> AnyMessage:
    assert isinstance(message, AssistantMessage)
    parts = tuple(part for part in message.parts if not _is_foreign(part, model))
    return message.model_copy(update={"parts": parts})
