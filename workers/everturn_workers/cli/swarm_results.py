"""The file that a swarm's results go to, one JSON object a line; it can be gone on with."""

import fcntl
import os
import sys
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Literal

import orjson

from everturn.errors import UsageError
from everturn.swarm_views import ItemView

Order = Literal["completion", "item"]


class ResultFile:
    """Lines of items that have ended: each item once, also when the file is gone on with.

    `after` is what to ask further results with. `unsure` are items that did not complete, so
    that they may be worked again, with their numbers in the order of ends.
    """

    def __init__(self, path: Path, order: Order, swarm: str) -> None:
        self.path = path
        self.order: Order = order
        self.unsure: dict[int, int] = {}
        self._known: dict[int, int] = {}
        self._swarm = swarm
        self._out = _opened(path)
        self._is_kept = path.is_file() and self._out is not sys.stdout.buffer
        try:
            self._take_up()
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._known)

    def close(self) -> None:
        if self._out is not sys.stdout.buffer:
            # What could not be written was said when it was added.
            with suppress(OSError):
                self._out.close()

    def add(self, items: Iterable[ItemView]) -> None:
        """Write the items that are not there, and let them be asked for no more; raises
        UsageError where there is no room for them."""
        try:
            self._add(items)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UsageError(
                f"{self.path} cannot be written: {error.strerror}. The swarm is kept; mend that,"
                f" and go on with 'everturn swarm attach {self._swarm} --output {self.path}"
                f" --order {self.order}'."
            ) from None

    def _add(self, items: Iterable[ItemView]) -> None:
        for item in items:
            if self.order == "item":
                self.after = item.n
            elif item.settled is not None:
                self.after = item.settled
            if item.n not in self._known:
                self._out.write(orjson.dumps(item.model_dump()) + b"\n")
                self._know(item.n, item.settled or 0, item.outcome)
        self._out.flush()

    def forget(self, numbers: Collection[int]) -> None:
        """Take out the lines of these items, for they are worked again: in the order of items
        all from the first of them on, which then come again."""
        if not numbers or not self._is_kept:
            return
        first = min(numbers)
        kept = []
        for line in self._lines():
            n = orjson.loads(line)["n"]
            if n not in numbers and not (self.order == "item" and n > first):
                kept.append(line)
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        beside.write_bytes(b"".join(kept))
        beside.replace(self.path)
        self._out.close()
        self._out = _opened(self.path)
        self._take_up()

    def _know(self, n: int, settled: int, outcome: str | None) -> None:
        self._known[n] = settled
        if outcome != "completed":
            self.unsure[n] = settled

    def _take_up(self) -> None:
        """Go on behind the lines that are there; one that was cut off is written anew."""
        self.unsure, self._known, self.after = {}, {}, 0
        if not self._is_kept:
            return
        whole = 0
        for number, line in enumerate(self._lines(), 1):
            if not line.endswith(b"\n"):
                break
            item = self._read(number, line)
            self._know(item["n"], item["settled"], item.get("outcome"))
            if self.order == "item" and item["n"] != number:
                raise UsageError(
                    f"{self.path} is not in the order of items; go on with --order completion, or"
                    " name another file."
                )
            whole += len(line)
        self._out.truncate(whole)
        if self.order == "item":
            self.after = len(self._known)
        else:
            # Up to where no number is missing; what lies behind and is known is not written again.
            ended = set(self._known.values())
            while self.after + 1 in ended:
                self.after += 1

    def _read(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            item = orjson.loads(line)
            n, settled, session = item["n"], item["settled"], item["session"]
        except (ValueError, LookupError, TypeError):
            n, settled, session = None, None, None
        if not isinstance(n, int) or not isinstance(settled, int):
            raise UsageError(
                f"Line {number} of {self.path} is no result of a swarm; name another file."
            )
        if session is not None and not str(session).startswith(f"{self._swarm}:"):
            raise UsageError(
                f"{self.path} has results of another swarm (line {number} is session {session!a});"
                " name another file, or remove it."
            )
        found: dict[str, Any] = item
        return found

    def _lines(self) -> Iterable[bytes]:
        with self.path.open("rb") as read:
            yield from read


def _opened(path: Path) -> IO[bytes]:
    if str(path) == "-":
        return sys.stdout.buffer
    try:
        out = path.open("ab")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}; name another.") from None
    try:
        fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        out.close()
        raise UsageError(
            f"{path} is being written by another command; wait for it, or name another file."
        ) from None
    return out
