"""What a process keeps in memory: the values used last, up to a weight."""

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """Values by key. Beyond `count_max` of them, or `weight_max` together, those that were
    not used for longest are let go; the newest always stays. Threads may share it."""

    def __init__(self, count_max: int, weight_max: int) -> None:
        self._count_max = count_max
        self._weight_max = weight_max
        self._weight = 0
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, key: K) -> V | None:
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, weight: int = 0) -> None:
        with self._lock:
            self.pop(key)
            self._kept[key] = (value, weight)
            self._weight += weight
            while len(self._kept) > 1 and (
                len(self._kept) > self._count_max or self._weight > self._weight_max
            ):
                self._weight -= self._kept.popitem(last=False)[1][1]

    def pop(self, key: K) -> None:
        with self._lock:
            found = self._kept.pop(key, None)
            if found is not None:
                self._weight -= found[1]
