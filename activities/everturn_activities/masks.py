"""Keeping what configures the runtime read-only while commands run in the working folder."""

import fcntl
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from everturn.errors import ToolFailed
from everturn_activities.paths import protected_parts

# Which protected paths are files; any other that does not exist is masked as a folder.
_FILES = ("everturn.toml", ".mcp.json", "config")
_LOCK_TRIES = 50

Bind = tuple[str, Path, str]
"""A bwrap option, the host's path, and the path below the working folder."""


def may_be_placeholder(path: str, mode: int, size: int) -> bool:
    """Whether a file that came or went may be one of ours, which stands while a command runs."""
    return os.path.basename(path) in _FILES and size == 0 and not mode & 0o222


_placeholders: set[Path] = set()
"""Placeholders that this process created and has not removed."""


@contextmanager
def masked(root: Path, protected: Sequence[Path]) -> Iterator[list[Bind]]:
    """Binds that make the protected paths below `root` read-only.

    The folder is locked by every command that runs in it, in any process, and placeholders
    are removed by one that finds itself alone: removing one that is in use would unmask it.
    """
    paths = sorted(set(protected_parts(root, tuple(protected))[0]), key=len)
    lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock_shared(lock)
        yield _binds(root, paths)
    finally:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_placeholders(root)
        os.close(lock)


def _lock_shared(lock: int) -> None:
    for _ in range(_LOCK_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return
        # Another command is removing placeholders, which takes microseconds.
        time.sleep(0.001)
    raise ToolFailed(
        "Commands are refused while another process holds a lock on the working folder;"
        " end it, or try again later."
    )


def _binds(root: Path, paths: Sequence[tuple[str, ...]]) -> list[Bind]:
    binds: list[Bind] = []
    bound: set[tuple[str, ...]] = set()
    for parts in paths:
        if any(bind == "--ro-bind" and parts[: len(Path(at).parts)] == Path(at).parts
               for bind, _, at in binds):  # fmt: skip
            continue
        for length in range(1 if parts else 0, len(parts) + 1):
            prefix = parts[:length]
            path = root.joinpath(*prefix)
            mode = _mode(path, length == len(parts))
            if mode is None:
                break
            if stat.S_ISLNK(mode):
                raise ToolFailed(
                    f"Commands are refused while {'/'.join(prefix)} is a symbolic link: the"
                    " sandbox cannot protect it; put the real file or folder there."
                )
            final = length == len(parts) or path in _placeholders or not stat.S_ISDIR(mode)
            if final:
                binds.append(("--ro-bind", path, "/".join(prefix)))
                break
            if prefix not in bound:
                # A mount point of its own: else the folder around the protected path could be
                # renamed, and another put in its place.
                binds.append(("--bind", path, "/".join(prefix)))
                bound.add(prefix)
    return binds


def _mode(path: Path, last: bool) -> int | None:
    """The mode of what is at `path`, after putting a placeholder where nothing is.

    None where nothing is and nothing can be created, by a command neither.
    """
    with suppress(FileNotFoundError):
        return path.lstat().st_mode
    try:
        if last and path.name in _FILES:
            path.touch(mode=0o444, exist_ok=False)
        else:
            path.mkdir(mode=0o555)
        _placeholders.add(path)
    except FileExistsError:
        pass
    except OSError:
        return None
    return path.lstat().st_mode


def _remove_placeholders(root: Path) -> None:
    ours = [path for path in _placeholders if path.is_relative_to(root)]
    for path in sorted(ours, key=lambda path: len(path.parts), reverse=True):
        _placeholders.discard(path)
        with suppress(OSError):
            if path.is_dir():
                path.rmdir()
            elif path.stat().st_size == 0:
                path.unlink()
