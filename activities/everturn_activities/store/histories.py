"""What this process has read of transcripts, so that it reads each message once."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from everturn.messages import AssistantMessage, ToolMessage, UserMessage, message_from_json
from everturn.session import SessionKey

AnyMessage = UserMessage | AssistantMessage | ToolMessage

HISTORIES_KEPT = 256
HISTORY_TOKENS_KEPT = 4_000_000


class _History:
    """What is sent under the cuts at number `cuts`; nothing of what they leave out."""

    def __init__(self, cuts: int) -> None:
        self.cuts = cuts
        self.upto = 0
        self.messages: list[AnyMessage] = []
        self.positions: list[int] = []
        self.tokens = 0


class Histories:
    """Conversations as they are sent, the least recently used dropped first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[SessionKey, _History] = OrderedDict()
        self._tokens = 0

    def known(self, key: SessionKey, cuts: int) -> int:
        """Up to which position the conversation under `cuts` is known; 0 for not at all."""
        kept = self._kept.get(key)
        return kept.upto if kept is not None and kept.cuts == cuts else 0

    def newest(self, key: SessionKey) -> tuple[int, int]:
        """The number of cuts and the position that the conversation is known at."""
        kept = self._kept.get(key)
        return (kept.cuts, kept.upto) if kept is not None else (0, 0)

    def add(
        self, key: SessionKey, cuts: int, after: int, upto: int, rows: Sequence[Any]
    ) -> list[AnyMessage] | None:
        """The conversation up to `upto` under `cuts`, which `rows` continue after `after`.

        Under other cuts than before it begins anew, and what was kept is let go. None where
        it has been let go since `after` was asked for: then all of it must be read.
        """
        kept = self._kept.get(key)
        if kept is None or kept.cuts != cuts or kept.upto < after:
            if after:
                return None
            self._tokens -= kept.tokens if kept is not None else 0
            kept = self._kept[key] = _History(cuts)
        self._kept.move_to_end(key)
        for row in rows:
            if row.position > kept.upto:
                kept.messages.append(message_from_json(row.body))
                kept.positions.append(row.position)
                kept.tokens += row.tokens
                self._tokens += row.tokens
                kept.upto = row.position
        kept.upto = max(kept.upto, upto)
        self._trim()
        count = len(kept.messages)
        while count and kept.positions[count - 1] > upto:
            count -= 1
        return kept.messages[:count]

    def _trim(self) -> None:
        while len(self._kept) > 1 and (
            len(self._kept) > HISTORIES_KEPT or self._tokens > HISTORY_TOKENS_KEPT
        ):
            _, dropped = self._kept.popitem(last=False)
            self._tokens -= dropped.tokens
