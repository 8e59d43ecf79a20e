"""Which messages of a conversation a model is sent: all but those in a cut."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

CutKind = Literal["compaction", "rollback", "rewind"]


@dataclass(frozen=True)
class Cut:
    """Positions `first` to `last`, both included, left out of what is sent.

    `body` is the text that stands in their place, `tokens` what that takes; None where
    nothing does. `n` orders a session's cuts.
    """

    n: int
    kind: CutKind
    first: int
    last: int
    body: str | None = None
    tokens: int = 0


class Extent(NamedTuple):
    """What of a transcript is sent: the positions `first` to `upto` under the cuts at number
    `cuts`. Of turns before `since` only what was said is."""

    upto: int
    cuts: int = 0
    first: int = 1
    since: int = 0


@dataclass(frozen=True)
class Span:
    """Messages `first` to `last`, both included, that are sent as they are."""

    first: int
    last: int


def shown(cuts: Sequence[Cut], upto: int, first: int = 1) -> list[Span | Cut]:
    """What stands for the positions `first` to `upto`, in their order.

    A cut is in the list where its text stands for its messages; a later cut of the same
    positions replaces that text with its own.
    """
    pieces: list[Span | Cut] = []
    covered = first - 1
    for cut in sorted(cuts, key=lambda cut: (cut.first, cut.n)):
        if cut.first > upto:
            break
        if cut.last < first:
            continue
        if cut.first > covered + 1:
            pieces.append(Span(covered + 1, cut.first - 1))
        if cut.body is not None and not _replaced(cut, cuts):
            pieces.append(cut)
        covered = max(covered, cut.last)
    if covered < upto:
        pieces.append(Span(covered + 1, upto))
    return pieces


def _replaced(cut: Cut, cuts: Sequence[Cut]) -> bool:
    return any(
        other.n > cut.n and other.first <= cut.first and cut.last <= other.last for other in cuts
    )
