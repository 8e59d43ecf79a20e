"""Knowledge: folders that are searched. What is found is a passage with its path and lines."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

WORDS_MAX = 32
"""Of a query, as many count."""

REMOVED_SECONDS = 3600.0
"""So long after a base was dropped nothing is put into it: another process may still read it in."""

Claimed = Literal["reading", "vectors"]


@dataclass(frozen=True)
class Chunk:
    """A piece of a file: its lines from `first` to `last`, counted from 1, and the headings
    that it stands under."""

    first: int
    last: int
    heading: str
    text: str


@dataclass(frozen=True)
class FileMark:
    """By what a file is known to be unchanged without being read; `unread` is why it is not
    searched, where that was found by reading it."""

    mtime_ns: int
    size: int
    unread: str = field(default="", compare=False)


@dataclass(frozen=True)
class Indexed:
    """What an index holds of a base. `embedded` counts the chunks with a vector."""

    files: int = 0
    chunks: int = 0
    embedded: int = 0
    skipped: tuple[str, ...] = ()
    """What was left out when the folder was last walked, and why; the first of it."""
    skipped_count: int = 0


@dataclass(frozen=True)
class Base:
    """A folder that is searched. `id` is the same for as long as it is."""

    id: int
    tenant: str
    workspace: str
    name: str
    folder: Path


class KnowledgeIndex(Protocol):
    """Finds chunks by words and by vectors. All of it can be made again from the files.

    Methods block: they are called in threads.
    """

    def marks(self, base: int) -> dict[str, FileMark]: ...
    def put(
        self, base: int, path: str, mark: FileMark, digest: str, chunks: Sequence[Chunk]
    ) -> bool:
        """Replace what is known of a file; False where only its mark has changed."""
        ...

    def put_unread(self, base: int, path: str, mark: FileMark) -> None:
        """Keep that a file is not searched, and why."""
        ...

    def drop(self, base: int, paths: Sequence[str]) -> None: ...
    def drop_base(self, base: int) -> None:
        """Forget it for good: what is put into it or noted of it later is not kept."""
        ...

    def note_skipped(self, base: int, skipped: Sequence[str], count: int) -> None: ...
    def indexed(self, base: int, model: str | None) -> Indexed: ...
    def missing(self, base: int, model: str, limit: int) -> list[tuple[str, str]]:
        """Digests and texts of chunks that have no vector of the model."""
        ...

    def claim(self, base: int, what: Claimed, owner: str, seconds: float) -> bool:
        """Whether `owner` may do it for so long: one does at a time, so that no file is read and
        no vector is paid for twice. Who has it may claim it anew."""
        ...

    def release(self, base: int, what: Claimed, owner: str) -> None: ...

    def put_vectors(self, model: str, vectors: Sequence[tuple[str, Sequence[float]]]) -> None: ...
    def by_words(self, bases: Sequence[int], query: str, limit: int) -> list[int]:
        """Chunks that share words with the query, the best first."""
        ...

    def by_vector(
        self, bases: Sequence[int], model: str, vector: Sequence[float], limit: int
    ) -> list[int]: ...
    def chunks(self, ids: Sequence[int]) -> dict[int, tuple[int, str, Chunk]]:
        """Base, path and content of chunks."""
        ...

    def close(self) -> None: ...


class Embedder(Protocol):
    """Makes vectors of texts; `model` names what they are comparable by."""

    @property
    def model(self) -> str: ...
    async def embed(self, texts: Sequence[str], wait_seconds: float) -> list[list[float]]:
        """Waits so long at most for a provider that cannot answer now; raises ModelError where
        it fails, or a budget is in the way."""
        ...


def digest_of(chunk: Chunk) -> str:
    """By its content, so that a vector outlives changes elsewhere in the file."""
    return hashlib.sha256(f"{chunk.heading}\n{chunk.text}".encode()).hexdigest()


RANK_SOFTENING = 60
"""The constant of reciprocal rank fusion; 60 is what its authors found to do well."""


def fused(*ranked: Sequence[int]) -> list[tuple[int, float]]:
    """One ranking of several, by reciprocal rank: what stands high in any of them, and higher
    what stands in more than one."""
    scores: dict[int, float] = {}
    for ranking in ranked:
        for rank, found in enumerate(ranking, start=1):
            scores[found] = scores.get(found, 0.0) + 1 / (RANK_SOFTENING + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))
