"""Tool results within a budget: the oldest are left out of what is sent."""

from collections.abc import Sequence
from math import ceil

from everturn.messages import AssistantMessage, ToolMessage, ToolResult, UserMessage

LEFT_OUT = "[This result was left out to make room; call the tool again if you need it.]"

STEPS = 4
"""Results are left out in steps of a quarter of the budget: where the boundary moved with
every step, no provider could reuse what it has read before."""

AnyMessage = UserMessage | AssistantMessage | ToolMessage


def within_budget(messages: tuple[AnyMessage, ...], budget: int) -> tuple[AnyMessage, ...]:
    """`messages` with the oldest results replaced by a note until all fit into `budget`
    characters. The newest result always stays."""
    lengths = [
        len(result.text)
        for message in messages
        if isinstance(message, ToolMessage)
        for result in message.results
    ]
    excess = sum(lengths) - budget
    if excess <= 0:
        return messages
    part = max(1, budget // STEPS)
    excess = ceil(excess / part) * part
    count = 0
    for length in lengths[:-1]:
        if excess <= 0:
            break
        excess -= length
        count += 1
    return _without(messages, count)


def _without(messages: Sequence[AnyMessage], count: int) -> tuple[AnyMessage, ...]:
    """`messages` without the text of the first `count` results."""
    sent: list[AnyMessage] = []
    for message in messages:
        if count > 0 and isinstance(message, ToolMessage):
            gone = message.results[:count]
            kept = message.results[count:]
            count -= len(gone)
            message = ToolMessage(results=(*(_left_out(one) for one in gone), *kept))
        sent.append(message)
    return tuple(sent)


def _left_out(result: ToolResult) -> ToolResult:
    if len(result.text) <= len(LEFT_OUT):
        return result
    return result.model_copy(update={"text": LEFT_OUT})
