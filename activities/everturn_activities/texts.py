"""Texts of files that people write for a context: bounded, trusted, and kept until they change."""

import errno
import os
import stat
from codecs import getincrementaldecoder
from collections import OrderedDict
from pathlib import Path

from everturn.errors import WorkspaceError
from everturn_activities.threads import in_thread
from everturn_activities.trust import require_trusted_status

BYTES_MAX = 1024 * 1024
LOOPS = "is a symbolic link that leads back to itself; remove it"
_KEPT_CHARS = 32 * 1024 * 1024
EXCERPT_BYTES = 64 * 1024
_CONTINUED = bytes(range(0x80, 0xC0))
# A longer read could hold up the event loop for more than a millisecond.
_QUICK_BYTES = 256 * 1024

Stamp = tuple[int, int, int, int, int]
"""Changes when a file does: its time, size, inode, mode and owner."""


class UnreadableError(Exception):
    """Why a file is left out, as a sentence that names it as it was `shown`."""


class TooLongError(UnreadableError):
    """The same of a file that is too long; `excerpt` is its beginning and its end."""

    def __init__(self, shown: str, size: int, bytes_max: int, excerpt: str) -> None:
        super().__init__(shown, size, bytes_max, excerpt)
        self.size, self.excerpt = size, excerpt

    def __str__(self) -> str:
        shown, size, bytes_max, _ = self.args
        return (
            f"{shown} has {size:,} bytes and the limit is {bytes_max:,}, so it is left out;"
            " shorten it."
        )


def stamp(status: os.stat_result) -> Stamp:
    return (
        status.st_mtime_ns,
        status.st_size,
        status.st_ino,
        status.st_mode,
        status.st_uid,
    )


def why_not(error: OSError) -> str:
    """The end of a sentence that begins with the file."""
    match error.errno:
        case errno.ELOOP:
            return LOOPS
        case errno.ENOENT:
            return "is a symbolic link that leads nowhere; remove it"
        case errno.EACCES | errno.EPERM:
            return "may not be read by this process; change its rights"
        case _:
            return f"cannot be read: {error.strerror}; mend that"


def read(file: str, shown: str, bytes_max: int = BYTES_MAX) -> tuple[Stamp, str]:
    """The text of a file, checked on the very file that is read. Raises UnreadableError."""
    try:
        # A pipe that nobody writes to would be waited for.
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise UnreadableError(f"{shown} {why_not(error)}.") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableError(f"{shown} is no file that could be read; remove it.")
        try:
            require_trusted_status(Path(file), status)
        except WorkspaceError as error:
            raise UnreadableError(str(error).replace(file, shown)) from None
        content = _bytes(descriptor, status.st_size, bytes_max)
        if len(content) > bytes_max:
            size = max(status.st_size, len(content))
            excerpt = _excerpt(descriptor, size, shown)
            raise TooLongError(shown, size, bytes_max, excerpt)
    except OSError as error:
        raise UnreadableError(f"{shown} {why_not(error)}.") from None
    finally:
        os.close(descriptor)
    _demand_text(content, shown)
    try:
        # Some editors begin a file with a byte order mark.
        return stamp(status), content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UnreadableError(
            f"{shown} line {line} is not valid UTF-8, so it is left out; save it as UTF-8."
        ) from None


def _demand_text(content: bytes, shown: str) -> None:
    if b"\0" in content:
        raise UnreadableError(f"{shown} is not a text file, as it has NUL bytes; it is left out.")


def _excerpt(descriptor: int, size: int, shown: str) -> str:
    """The beginning and the end of a file, without what the cut goes through."""
    half = EXCERPT_BYTES // 2
    head, tail = os.pread(descriptor, half, 0), os.pread(descriptor, half, size - half)
    _demand_text(head + tail, shown)
    note = f"\n[... {size - 2 * half:,} of {size:,} bytes left out here ...]\n"
    try:
        begins = getincrementaldecoder("utf-8-sig")().decode(head)
        return begins + note + tail.lstrip(_CONTINUED).decode()
    except UnicodeDecodeError:
        raise UnreadableError(
            f"{shown} is not valid UTF-8, so it is left out; save it as UTF-8."
        ) from None


def _bytes(descriptor: int, size: int, bytes_max: int) -> bytes:
    if size > bytes_max:
        return b"x" * (bytes_max + 1)  # It is refused by its length: none of it is read.
    pieces: list[bytes] = []
    length = 0
    # Counted while reading: it may grow, and the size of some files is not told.
    while length <= bytes_max and (piece := os.read(descriptor, 1 << 20)):
        pieces.append(piece)
        length += len(piece)
    return b"".join(pieces)


_Asked = tuple[str, int]


class Texts:
    """Texts that were read, each until its file changes; what cannot be read is kept as that."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Asked, tuple[Stamp, str | UnreadableError]] = OrderedDict()
        self._chars = 0

    async def of(self, file: str, shown: str, bytes_max: int = BYTES_MAX) -> str | None:
        """The text of a file, None where there is none. Raises UnreadableError."""
        try:
            status = os.stat(file)
        except NotADirectoryError:
            return None
        except OSError as error:
            if error.errno == errno.ENOENT and not _is_link(file):
                return None
            raise UnreadableError(f"{shown} {why_not(error)}.") from None
        found = stamp(status)
        asked = (file, bytes_max)
        known = self._kept.get(asked)
        if known is not None and known[0] == found:
            self._kept.move_to_end(asked)
            return _given(known[1])
        text: str | UnreadableError
        try:
            if status.st_size > _QUICK_BYTES:
                found, text = await in_thread(read, file, shown, bytes_max)
            else:
                found, text = read(file, shown, bytes_max)
        except UnreadableError as error:
            text = error
        self._keep(asked, found, text)
        return _given(text)

    def _keep(self, asked: _Asked, found: Stamp, text: str | UnreadableError) -> None:
        known = self._kept.pop(asked, None)
        self._chars += _length(text) - (_length(known[1]) if known is not None else 0)
        self._kept[asked] = (found, text)
        while self._chars > _KEPT_CHARS:
            _, (_, dropped) = self._kept.popitem(last=False)
            self._chars -= _length(dropped)


def _is_link(file: str) -> bool:
    return os.path.islink(file)


def _length(text: str | UnreadableError) -> int:
    # A name and a stamp take about so much beside the text.
    return 300 + (len(text) if isinstance(text, str) else len(str(text.args)))


def _given(text: str | UnreadableError) -> str:
    if isinstance(text, UnreadableError):
        raise type(text)(*text.args)
    return text
