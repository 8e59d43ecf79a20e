"""Our side of a model provider: one request, one reply, streamed."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal, Protocol

from everturn.context.compose import Context
from everturn.messages import AssistantMessage
from everturn_activities.gateways.allowances import Allowance

OPENAI_URL = "https://api.openai.com/v1"


@dataclass(frozen=True)
class TextDelta:
    text: str


@dataclass(frozen=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True)
class ToolCallDelta:
    """A piece of a call's arguments; `id` and `name` are those of the call's first piece."""

    index: int
    id: str
    name: str
    text: str


Delta = TextDelta | ThinkingDelta | ToolCallDelta


@dataclass(frozen=True)
class Usage:
    """Tokens of one reply. `cached_tokens` and `cache_write_tokens` are part of
    `input_tokens`, `reasoning_tokens` part of `output_tokens`. `estimated` where the
    provider did not tell."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False


@dataclass(frozen=True)
class Reply:
    """A whole reply: it exists only when the provider's terminal marker was seen.
    `allowances` is what the provider told of its limits."""

    message: AssistantMessage
    stop: Literal["end_turn", "tool_use", "max_tokens", "refusal"]
    usage: Usage
    model: str
    allowances: tuple[Allowance, ...] = ()


@dataclass(frozen=True)
class Embedded:
    """One vector a text, in order; `tokens` are those the provider counted, None where it
    did not tell."""

    vectors: list[list[float]]
    tokens: int | None = None
    allowances: tuple[Allowance, ...] = ()


class ModelGateway(Protocol):
    """Streams deltas, then the whole `Reply` as the last item.

    Concatenated `TextDelta`s equal the reply's text. Raises `ModelRefused`,
    `ContextOverflow` or `ModelUnavailable` (a stream that was cut or fell silent is
    unavailable). Never retries by itself: Temporal owns retries. Closing the iterator
    or cancelling its task ends the request within a second.
    """

    def stream(self, context: Context) -> AsyncGenerator[Delta | Reply]: ...

    async def close(self) -> None: ...
