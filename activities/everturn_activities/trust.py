"""Whose files may decide what this process does."""

import os
import stat
from pathlib import Path

from everturn.errors import WorkspaceError

TEXT_BYTES_MAX = 1024 * 1024


def require_trusted(path: Path) -> None:
    """Refuse what another user owns or anybody may write: its content would run as us."""
    require_trusted_status(path, path.stat())


def resolved(path: Path) -> Path:
    """`path` without links. Raises WorkspaceError where they lead in a circle."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        raise WorkspaceError(
            f"{path} is a symbolic link that leads back to itself; remove it, or name another."
        ) from None


def read_code(path: Path) -> bytes:
    """The content of a file that is trusted, checked on the very file that is read."""
    try:
        with open(path, "rb", opener=_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise WorkspaceError(f"{path} is no file that could be read; remove it.")
            require_trusted_status(path, status)
            return file.read(TEXT_BYTES_MAX + 1)
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be read: {error.strerror}; mend that.") from None


def _at_once(path: str, flags: int) -> int:
    # A pipe that nobody writes to would be waited for.
    return os.open(path, flags | os.O_NONBLOCK)


def read_text(path: Path) -> str:
    """The same as text."""
    content = read_code(path)
    if len(content) > TEXT_BYTES_MAX:
        raise WorkspaceError(f"{path} is longer than {TEXT_BYTES_MAX:,} bytes; shorten it.")
    try:
        # Some editors begin a file with a byte order mark.
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise WorkspaceError(
            f"{path} line {line} is not valid UTF-8; save the file as UTF-8."
        ) from None


def require_trusted_status(path: Path, status: os.stat_result) -> None:
    """The same of a file that is open, or was looked at."""
    user = os.geteuid()
    if status.st_uid not in (user, 0):
        raise WorkspaceError(
            f"{path} belongs to user {status.st_uid}, and this process runs as user {user}:"
            " another user's settings and code are never loaded; change the owner, or run as it."
        )
    if status.st_mode & stat.S_IWOTH:
        raise WorkspaceError(
            f"{path} may be written by every user, so it is not loaded;"
            f" take that right away by: chmod o-w {path}"
        )
