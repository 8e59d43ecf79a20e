"""What a model call may take at most, and what an attempt took whose end nobody saw."""

from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa

from everturn.agents import AgentSpec
from everturn.budgets import Amount, whole
from everturn.messages import AssistantMessage, Text, ToolMessage, UserMessage
from everturn_activities.gateways import Usage

OUTPUT_TOKENS = 4_096
"""How long a reply is taken to be at most where the agent sets no `tokens_max`."""

Price = Callable[[str, Usage], float | None]
Count = Callable[[UserMessage | AssistantMessage | ToolMessage], int]


class Meter:
    """Counts by `count` and prices by `price`, both of which are pure."""

    def __init__(self, count: Count, price: Price) -> None:
        self._count = count
        self._price = price

    def tokens(self, text: str) -> int:
        return self._count(UserMessage(parts=(Text(text=text),)))

    def most(self, spec: AgentSpec, model: str, context_tokens: int) -> Amount:
        """What a call is reserved: all of its input, and as long a reply as it may write."""
        written = spec.agent.tokens_max or OUTPUT_TOKENS
        usage = Usage(input_tokens=context_tokens, output_tokens=written)
        return Amount(self.usd(model, usage), context_tokens + written, 1)

    def usd(self, model: str, usage: Usage) -> int | None:
        cost = self._price(model, usage)
        return None if cost is None else whole("usd", cost)

    def streamed(self, context_tokens: int, text: str) -> Usage:
        """The usage of an attempt that sent its request and streamed `text`."""
        written = self._count(AssistantMessage(parts=(Text(text=text),))) if text else 0
        return Usage(input_tokens=context_tokens, output_tokens=written, estimated=True)


@dataclass(frozen=True)
class Terms:
    """What the ledger needs to know of a call; `spec` is read only where it is needed."""

    meter: Meter
    spec: Callable[[sa.Connection], AgentSpec]

    def most(self, connection: sa.Connection, model: str, context_tokens: int) -> Amount:
        return self.meter.most(self.spec(connection), model, context_tokens)
