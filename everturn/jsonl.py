"""Conversations as JSON lines: `{"role", "content", "tokens"}`, one message a line."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from everturn.messages import (
    AssistantMessage,
    Text,
    ToolMessage,
    UserMessage,
    message_from_json,
    user_text,
)

AnyMessage = UserMessage | AssistantMessage | ToolMessage


def line_of(message: AnyMessage, tokens: int) -> str:
    """`content` is the text of a message that is only text, else a list of its parts."""
    if isinstance(message, ToolMessage):
        content: Any = [result.model_dump() for result in message.results]
    elif all(isinstance(part, Text) for part in message.parts):
        content = "".join(part.text for part in message.parts if isinstance(part, Text))
    else:
        content = [part.model_dump(exclude_none=True) for part in message.parts]
    line = {"role": message.role, "content": content, "tokens": tokens}
    return json.dumps(line, ensure_ascii=False)


def read_lines(text: str) -> tuple[list[AnyMessage], list[str]]:
    """The messages of such lines, and why others were left out.

    A tool result that answers no call before it is told as text by the user, and so are calls
    that nothing answers: a provider refuses the one without the other.
    """
    messages: list[AnyMessage] = []
    left_out: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            messages.append(_message(json.loads(line)))
        except (ValueError, ValidationError, KeyError, TypeError, RecursionError):
            left_out.append(f"line {number} is no message with 'role' and 'content'")
    return list(_paired(messages)), left_out


def _message(given: dict[str, Any]) -> AnyMessage:
    role, content = given["role"], given["content"]
    if isinstance(content, str):
        if role == "tool":
            return user_text(f"[tool result]\n{content}")
        content = [{"type": "text", "text": content}]
    if not content:
        raise ValueError("a message without any part")
    body = {"role": role, "results" if role == "tool" else "parts": content}
    return message_from_json(json.dumps(body))


def _paired(messages: Sequence[AnyMessage]) -> Iterator[AnyMessage]:
    around = zip((None, *messages), messages, (*messages[1:], None), strict=False)
    for before, message, after in around:
        if isinstance(message, ToolMessage) and not _answers(message, before):
            told = [f"[{result.name} answered]\n{result.text}" for result in message.results]
            yield user_text("\n\n".join(told))
        elif (
            isinstance(message, AssistantMessage)
            and message.tool_calls
            and not _answers(after, message)
        ):
            yield _without_calls(message)
        else:
            yield message


def _answers(message: AnyMessage | None, asked: AnyMessage | None) -> bool:
    """Whether `message` has the results of all calls of `asked`, and of no others."""
    if not isinstance(message, ToolMessage) or not isinstance(asked, AssistantMessage):
        return False
    calls = {call.id for call in asked.tool_calls}
    return {result.call_id for result in message.results} == calls


def _without_calls(message: AssistantMessage) -> AssistantMessage:
    told = [part for part in message.parts if isinstance(part, Text)]
    names = ", ".join(call.name for call in message.tool_calls)
    return AssistantMessage(parts=(*told, Text(text=f"[called {names}]")))
