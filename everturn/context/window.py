"""A model's window: what a request takes of it, by section, and when that is too much."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from everturn.agents import Compaction
from everturn.profile import History

Level = Literal["none", "warn", "compact", "critical"]

WINDOW_TOKENS = 128_000
"""The window of a model that neither its agent nor the table of prices gives one."""


@dataclass(frozen=True)
class Sections:
    """Tokens of one request: the `system` prompt, or the message in its place with its `ack`,
    the `tools`' schemas, the `history` of earlier turns, the `memory` of this one, and what
    is kept free for the reply. `estimated`: the model counts otherwise, in a way not known."""

    window: int
    system: int
    tools: int
    history: int
    memory: int
    generation: int
    ack: int = 0
    estimated: bool = False

    @property
    def request(self) -> int:
        return self.system + self.ack + self.tools + self.history + self.memory

    @property
    def used(self) -> int:
        return self.request + self.generation

    @property
    def budget(self) -> int:
        """What earlier turns may take beside this one."""
        return max(0, self.window - self.used + self.history)

    @property
    def remaining(self) -> int:
        return max(0, self.window - self.used)


@dataclass(frozen=True)
class Frame:
    """What the conversation has to fit into: a window, less what every request takes of it.

    `tool_result_budget` is in characters.
    """

    window: int
    system: int = 0
    tools: int = 0
    generation: int = 0
    compaction: Compaction = field(default_factory=Compaction)
    tool_result_budget: int | None = None
    history: History = field(default_factory=History)
    ack: int = 0
    estimated: bool = False

    @property
    def fixed(self) -> int:
        return self.overhead + self.generation

    @property
    def overhead(self) -> int:
        """What every request takes before the conversation."""
        return self.system + self.ack + self.tools

    def sections(self, history: int, memory: int) -> Sections:
        return Sections(
            *(self.window, self.system, self.tools, history, memory, self.generation),
            ack=self.ack,
            estimated=self.estimated,
        )

    def level(self, used: int) -> Level:
        share = used / self.window
        if share >= self.compaction.critical:
            return "critical"
        if share >= self.compaction.at:
            return "compact"
        return "warn" if share >= self.compaction.warn else "none"


def reserved(window: int, tokens_max: int | None) -> int:
    """What is kept free for the reply. An agent may allow as many tokens as its whole window
    has; half of it is then left for what is asked."""
    return min(tokens_max or 0, window // 2)


def history_budget(frame: Frame, prompt: int) -> int:
    """What earlier turns may take beside `prompt`, the tokens of what this one begins with."""
    return max(0, frame.window - frame.fixed - prompt)


def newest_that_fit(tokens: Sequence[int], budget: int) -> int:
    """From which index on messages of so many `tokens` fit into `budget`."""
    left = budget
    for index in range(len(tokens) - 1, -1, -1):
        left -= tokens[index]
        if left < 0:
            return index + 1
    return 0
