"""Anthropic's marks for its prompt cache; other providers cache by themselves, or not at all.

A request has four at most: the last tool, the prompt down to what changes with each step, the
message that the request before ended with, and the newest. What stands before a mark is read
from the cache where it was marked before, in this order: tools, prompt, messages.
"""

from typing import Any

Wire = dict[str, Any]

MARK = {"type": "ephemeral"}


def mark(request: Wire, cached: int, steady: bool) -> None:
    """Mark `request`, in the Chat Completions format; of its prompt, the first message, so
    many characters are the same from step to step. Behind a prompt that is not `steady`
    nothing could be read again, and what is marked costs more than what is not."""
    if tools := request.get("tools"):
        tools[-1]["cache_control"] = MARK
    messages: list[Wire] = request["messages"]
    if cached and isinstance(messages[0]["content"], str):
        messages[0]["content"] = _split(messages[0]["content"], cached)
    if steady and messages:
        _mark_message(messages[_before_the_last_reply(messages)])
        _mark_message(messages[-1])


def _split(text: str, cached: int) -> list[Wire]:
    """`text` in two blocks, of which the first is marked; one where nothing would be left."""
    above, below = text[:cached], text[cached:]
    if not below.strip():
        above, below = text, ""
    first: Wire = {"type": "text", "text": above, "cache_control": MARK}
    return [first, {"type": "text", "text": below}] if below else [first]


def _before_the_last_reply(messages: list[Wire]) -> int:
    """The message that the request before ended with; 0 where there was none."""
    replies = [index for index, one in enumerate(messages) if one["role"] == "assistant"]
    return max(0, replies[-1] - 1) if replies else 0


def _mark_message(message: Wire) -> None:
    if message["role"] in ("assistant", "system"):
        return
    content = message["content"]
    if isinstance(content, list):
        if not any("cache_control" in block for block in content):
            content[-1] = {**content[-1], "cache_control": MARK}
    elif content.strip():
        # A block without text may not be marked.
        message["cache_control"] = MARK
