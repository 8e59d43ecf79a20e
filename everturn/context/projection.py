"""Projection: what later turns see of a turn that is over, where they see less than all."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from everturn.messages import AssistantMessage, Text, ToolMessage, UserMessage
from everturn.tools import RESPONSE

AnyMessage = UserMessage | AssistantMessage | ToolMessage


class Placed(NamedTuple):
    """A message at its position, or what stands for those up to there; `turn` is its turn."""

    position: int
    turn: int
    message: AnyMessage


def is_said(message: AnyMessage) -> bool:
    """Whether a turn's user reads `message`, or wrote it: no part of the work between."""
    match message:
        case UserMessage():
            return True
        case AssistantMessage():
            calls = message.tool_calls
            return not calls or any(call.name == RESPONSE for call in calls)
        case ToolMessage():
            return any(result.name == RESPONSE and not result.failed for result in message.results)


def projected(placed: Iterable[Placed]) -> list[Placed]:
    """Of each turn what its users said, then its reply as one text: what `response` gave where
    it was called (C5), else the pieces of the last reply."""
    found: list[Placed] = []
    for turn, members in groupby(placed, key=lambda one: one.turn):
        of_turn = list(members)
        found += [one for one in of_turn if isinstance(one.message, UserMessage)]
        if text := _reply([one.message for one in of_turn]):
            reply = AssistantMessage(parts=(Text(text=text),))
            found.append(Placed(of_turn[-1].position, turn, reply))
    return found


def _reply(messages: Sequence[AnyMessage]) -> str:
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            for result in reversed(message.results):
                if result.name == RESPONSE and not result.failed:
                    return result.text
    return "".join(
        message.text
        for message in messages
        if isinstance(message, AssistantMessage) and not message.tool_calls
    )
