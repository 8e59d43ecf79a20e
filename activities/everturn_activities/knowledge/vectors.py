"""Vectors of chunks in memory: the nearest of them by the cosine."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

KEPT = 16
"""Bases whose vectors stay in memory."""


def packed(vector: Sequence[float]) -> bytes:
    """A vector of length one, as it is stored."""
    import numpy

    made = numpy.asarray(vector, dtype="<f4")
    length = float(numpy.linalg.norm(made))
    return bytes((made / length if length else made).tobytes())


class Vectors:
    """The newest matrix of each base and model. Used by one thread at a time."""

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[int, str], tuple[int, list[int], Any]] = OrderedDict()

    def knows(self, base: int, model: str, generation: int) -> bool:
        known = self._made.get((base, model))
        return known is not None and known[0] == generation

    def put(
        self, base: int, model: str, generation: int, rows: Sequence[tuple[int, bytes]]
    ) -> None:
        # Imported late: it takes a fifth of a second, and most have no embedding model.
        import numpy

        # A provider that changed its model's dimensions leaves vectors that fit no other.
        length = max((len(vector) for _, vector in rows), default=0)
        kept = [(id_, vector) for id_, vector in rows if len(vector) == length]
        joined = b"".join(vector for _, vector in kept)
        matrix = numpy.frombuffer(joined, dtype="<f4").reshape(len(kept), length // 4)
        self._made[(base, model)] = (generation, [id_ for id_, _ in kept], matrix)
        self._made.move_to_end((base, model))
        if len(self._made) > KEPT:
            self._made.popitem(last=False)

    def nearest(
        self, base: int, model: str, vector: Sequence[float], limit: int
    ) -> list[tuple[float, int]]:
        """The nearest chunks of a known base with their cosines, in no order."""
        import numpy

        _, ids, matrix = self._made[(base, model)]
        asked = numpy.frombuffer(packed(vector), dtype="<f4")
        if not ids or matrix.shape[1] != asked.shape[0]:
            return []
        cosines = matrix @ asked
        count = min(limit, len(ids))
        best = numpy.argpartition(-cosines, count - 1)[:count]
        return [(float(cosines[n]), ids[n]) for n in best]
