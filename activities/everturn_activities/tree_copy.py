"""Copying a folder: by reference where the file system can, else byte by byte."""

import fcntl
import os
import shutil
import stat
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from everturn.errors import ToolFailed
from everturn_activities.knowledge.walk import ignoring

_FICLONE = 0x40049409
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PIECE = 1 << 24
CHANGED_MAX = 1000


def copy(
    source: Path,
    target: Path,
    ignore: Sequence[str],
    but: Sequence[Path],
    stop: threading.Event,
) -> None:
    """Copy `source` to `target`, which must not exist, without what `ignore` names as a .gitignore
    would, and without the folders `but`. Links are copied as links; sockets and devices are
    left out. Raises ToolFailed once `stop` is set.
    """
    ignored = ignoring(ignore)
    left_out = {(status.st_dev, status.st_ino) for status in _statuses(but)}
    times: list[tuple[Path, int, int]] = []
    for folder, folders, names, descriptor in os.fwalk(source, follow_symlinks=False):
        prefix = os.path.relpath(folder, source)
        prefix = "" if prefix == "." else f"{prefix}/"
        into = target / prefix
        status = os.fstat(descriptor)
        os.mkdir(into, stat.S_IMODE(status.st_mode) & 0o777 | 0o700)
        times.append((into, status.st_atime_ns, status.st_mtime_ns))
        for name in list(folders):
            try:
                inner = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISLNK(inner.st_mode):
                folders.remove(name)
                names.append(name)
            elif (inner.st_dev, inner.st_ino) in left_out or ignored(f"{prefix}{name}/"):
                folders.remove(name)
        for name in names:
            if stop.is_set():
                raise ToolFailed("it was ended with its turn")
            if not ignored(f"{prefix}{name}"):
                # What is gone meanwhile is not copied.
                with suppress(FileNotFoundError):
                    _copy_one(name, descriptor, into / name)
    for into, accessed, modified in reversed(times):
        os.utime(into, ns=(accessed, modified))


def _statuses(paths: Sequence[Path]) -> list[os.stat_result]:
    found = []
    for path in paths:
        with suppress(OSError):
            found.append(path.stat())
    return found


def _copy_one(name: str, folder: int, target: Path) -> None:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(name, dir_fd=folder), target)
        return
    if not stat.S_ISREG(status.st_mode):
        return
    reading = os.open(name, _READ, dir_fd=folder)
    try:
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _copy_content(reading, writing)
            os.fchmod(writing, stat.S_IMODE(status.st_mode) & 0o777)
            os.utime(writing, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _copy_content(reading: int, writing: int) -> None:
    with suppress(OSError):
        fcntl.ioctl(writing, _FICLONE, reading)
        return
    shared: Callable[[int, int, int], int] | None = getattr(os, "copy_file_range", None)
    if shared is not None:
        with suppress(OSError):
            while shared(reading, writing, _PIECE):
                pass
            return
        os.lseek(reading, 0, os.SEEK_SET)
        os.ftruncate(writing, 0)
        os.lseek(writing, 0, os.SEEK_SET)
    with os.fdopen(os.dup(reading), "rb") as source, os.fdopen(os.dup(writing), "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)


def changed(root: Path, source: Path) -> list[str]:
    """The files below `root` that are not, as they are, below `source`: the first thousand."""
    found: list[str] = []
    for folder, folders, names in os.walk(root, followlinks=False):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            relative = path.relative_to(root)
            if not _alike(path, source / relative):
                found.append(str(relative))
                if len(found) >= CHANGED_MAX:
                    return found
    return found


def _alike(one: Path, other: Path) -> bool:
    try:
        ours, theirs = one.lstat(), other.lstat()
    except OSError:
        return False
    if stat.S_ISLNK(ours.st_mode):
        return stat.S_ISLNK(theirs.st_mode) and os.readlink(one) == os.readlink(other)
    return (ours.st_mode, ours.st_size, ours.st_mtime_ns) == (
        theirs.st_mode,
        theirs.st_size,
        theirs.st_mtime_ns,
    )


def remove(root: Path) -> None:
    """Remove a tree, folders without leave to write in them too."""

    def unlocked(function: Callable[..., object], path: str, _: object) -> None:
        with suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            if stat.S_ISDIR(os.lstat(path).st_mode):
                os.chmod(path, 0o700)
        if function in (os.unlink, os.rmdir):
            function(path)
        else:
            shutil.rmtree(path, ignore_errors=True)

    shutil.rmtree(root, onerror=unlocked)
