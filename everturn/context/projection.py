"""Projection: what later turns see of a turn that is over, where they see less than all."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from everturn.messages import AssistantMessage, Text, ToolMessage, UserMessage
from everturn.tools import RESPONSE

IMPORTED = 0
"""The turn of messages that a session took over."""

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
    for of_turn in _turns(placed):
        found += [one for one in of_turn if isinstance(one.message, UserMessage)]
        if text := _reply([one.message for one in of_turn]):
            reply = AssistantMessage(parts=(Text(text=text),))
            found.append(Placed(of_turn[-1].position, of_turn[-1].turn, reply))
    return found


def _turns(placed: Iterable[Placed]) -> Iterator[list[Placed]]:
    """What was said in one turn after the other."""
    of_turn: list[Placed] = []
    for one in placed:
        if of_turn and _begins_a_turn(one, of_turn[-1]):
            yield of_turn
            of_turn = []
        of_turn.append(one)
    if of_turn:
        yield of_turn


def _begins_a_turn(one: Placed, before: Placed) -> bool:
    if one.turn != before.turn:
        return True
    # A conversation from elsewhere had turns too, and nobody has numbered them.
    return one.turn == IMPORTED and isinstance(one.message, UserMessage)


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
