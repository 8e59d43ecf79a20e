"""What this process has read of transcripts, so that it reads each message once."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from everturn.context.conversation import Conversation
from everturn.context.cuts import Extent
from everturn.context.projection import Placed, projected
from everturn.messages import message_from_json
from everturn.session import SessionKey
from everturn_activities.store.cuts import Summary

HISTORIES_KEPT = 256
HISTORY_TOKENS_KEPT = 4_000_000


class Known(NamedTuple):
    """What is known of a conversation: as much of it as `extent` is sent."""

    extent: Extent = Extent(0)

    def upto(self, asked: Extent) -> int:
        """Up to which position of `asked` nothing is to be read; 0 where it begins anew."""
        known = self.extent
        continues = known.cuts == asked.cuts and known.first <= asked.first
        if asked.since < known.since or not continues:
            return 0
        return known.upto


class _History:
    """What is sent of a conversation; nothing of what cuts leave out."""

    def __init__(self, extent: Extent) -> None:
        self.known = Known(extent._replace(upto=0))
        self.summary: Summary | None = None
        self.placed: list[Placed] = []
        # Turns before this one are projected already.
        self.projected = 0
        self.tokens = 0

    def add(self, rows: Sequence[Any]) -> None:
        for row in rows:
            if row.position <= self.known.extent.upto:
                continue
            self.tokens += row.tokens
            if isinstance(row, Summary):
                self.summary = row
                continue
            self.placed.append(Placed(row.position, row.turn, message_from_json(row.body)))
            if row.turn < self.projected:
                self.projected = 0

    def narrow(self, extent: Extent) -> None:
        """Let go of what is not sent any more."""
        known = self.known.extent
        if extent.first > known.first:
            if self.summary is not None and self.summary.position < extent.first:
                self.summary = None
            self.placed = [one for one in self.placed if one.position >= extent.first]
        if extent.since > self.projected:
            self.projected = extent.since
            later = next(
                (n for n, one in enumerate(self.placed) if one.turn >= extent.since),
                len(self.placed),
            )
            self.placed = projected(self.placed[:later]) + self.placed[later:]
        self.known = Known(extent._replace(upto=max(extent.upto, known.upto)))

    def upto(self, position: int) -> Conversation:
        count = len(self.placed)
        while count and self.placed[count - 1].position > position:
            count -= 1
        summary = self.summary.text if self.summary is not None else None
        return Conversation(tuple(one.message for one in self.placed[:count]), summary)


class Histories:
    """Conversations as they are sent, the least recently used dropped first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[SessionKey, _History] = OrderedDict()
        self._tokens = 0

    def known(self, key: SessionKey) -> Known:
        kept = self._kept.get(key)
        return kept.known if kept is not None else Known()

    def add(
        self, key: SessionKey, extent: Extent, after: int, rows: Sequence[Any]
    ) -> Conversation | None:
        """The conversation of `extent`, which `rows` continue after `after`.

        Where it begins anew, what was kept is let go. None where it has been let go since
        `after` was asked for: then all of it must be read.
        """
        kept = self._kept.get(key)
        known = kept.known.upto(extent) if kept is not None else 0
        if kept is None or not known or known < after:
            if after:
                return None
            self._tokens -= kept.tokens if kept is not None else 0
            kept = self._kept[key] = _History(extent)
        self._kept.move_to_end(key)
        self._tokens -= kept.tokens
        kept.add(rows)
        kept.narrow(extent)
        self._tokens += kept.tokens
        self._trim()
        return kept.upto(extent.upto)

    def _trim(self) -> None:
        while len(self._kept) > 1 and (
            len(self._kept) > HISTORIES_KEPT or self._tokens > HISTORY_TOKENS_KEPT
        ):
            _, dropped = self._kept.popitem(last=False)
            self._tokens -= dropped.tokens
