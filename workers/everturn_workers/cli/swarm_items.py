"""Items of a swarm from a file: one JSON object a line, checked whole before anything begins."""

import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import orjson

from everturn.errors import EverturnError, UsageError
from everturn.inputs import BODY_BYTES_MAX
from everturn.swarms import ITEMS_MAX, checked_item

PIECE_ITEMS = 500
PIECE_BYTES = BODY_BYTES_MAX // 2
LINE_BYTES_MAX = BODY_BYTES_MAX - 4096


class Items:
    """The items of a file, or of stdin where it is called `-`; `count` is how many there are.

    It is read line by line, once to be checked and once to be sent, and is never held whole.
    """

    def __init__(self, file: Path, template: str) -> None:
        self._opened = _opened(file)
        self._what = "stdin" if str(file) == "-" else str(file)
        self._template = template
        try:
            self.count = self._checked()
        except BaseException:
            self._opened.close()
            raise

    def __enter__(self) -> "Items":
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def pieces(self) -> Iterator[list[dict[str, Any]]]:
        """The items in pieces that are sent in one request each."""
        piece: list[dict[str, Any]] = []
        size = read = 0
        for _, line in islice(self._lines(), self.count):
            if piece and (len(piece) == PIECE_ITEMS or size + len(line) > PIECE_BYTES):
                yield piece
                piece, size = [], 0
            try:
                piece.append(orjson.loads(line))
            except orjson.JSONDecodeError:
                break
            size, read = size + len(line), read + 1
        if read < self.count:
            raise UsageError(
                f"{self._what} has changed since it was checked: item {read + 1:,} of"
                f" {self.count:,} is not there any more; put it back."
            )
        yield piece

    def _checked(self) -> int:
        named: dict[str, int] = {}
        count = 0
        for count, (number, line) in enumerate(self._lines(), 1):
            if count > ITEMS_MAX:
                raise UsageError(
                    f"{self._what} has more than {ITEMS_MAX:,} items, which is the limit of a"
                    " swarm; divide it."
                )
            name = self._name(number, line, count)
            if name in named:
                raise UsageError(
                    f"Lines {named[name]} and {number} of {self._what} have the same id {name!r};"
                    " an id names its item's result."
                )
            named[name] = number
        if not count:
            raise UsageError(f"{self._what} has no items; write one JSON object a line.")
        return count

    def _name(self, number: int, line: bytes, n: int) -> str:
        try:
            item = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise UsageError(
                f"Line {number} of {self._what} is no JSON ({error.msg}, column {error.colno});"
                " write each item as an object on a line of its own."
            ) from None
        try:
            return checked_item(self._template, item, n)
        except EverturnError as error:
            raise type(error)(f"Line {number} of {self._what}: {error}") from None

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not empty, with their numbers."""
        self._opened.seek(0)
        number = 0
        while line := self._line():
            number += 1
            if len(line) > LINE_BYTES_MAX:
                raise UsageError(
                    f"Line {number} of {self._what} is longer than {LINE_BYTES_MAX:,} bytes, which"
                    " is the limit; put what is large into a file, and name the file in the item."
                )
            if line.strip():
                yield number, line

    def _line(self) -> bytes:
        try:
            return self._opened.readline(LINE_BYTES_MAX + 1)
        except OSError as error:
            raise _unreadable(self._what, error) from None


def _opened(file: Path) -> IO[bytes]:
    if str(file) == "-":
        return _kept(sys.stdin.buffer)
    try:
        opened = file.open("rb")
        if opened.seekable():
            return opened
        # A pipe, such as a shell makes of <(COMMAND).
        with opened:
            return _kept(opened)
    except OSError as error:
        raise _unreadable(str(file), error) from None


def _kept(given: IO[bytes]) -> IO[bytes]:
    # Read twice, it must be kept somewhere; beyond some megabytes that is the disk.
    kept = tempfile.SpooledTemporaryFile(max_size=16 * BODY_BYTES_MAX)  # noqa: SIM115
    while piece := given.read(BODY_BYTES_MAX):
        kept.write(piece)
    return kept


def _unreadable(what: str, error: OSError) -> UsageError:
    return UsageError(f"{what} cannot be read: {error.strerror}; name another.")
