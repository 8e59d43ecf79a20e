"""Which files of a folder are searched, and what they say."""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pathspec import GitIgnoreSpec

from everturn.errors import ToolFailed
from everturn_activities.knowledge import FileMark
from everturn_activities.paths import WorkingFolder

FILE_BYTES_MAX = 2 * 1024 * 1024
FILES_MAX = 20_000
DEPTH_MAX = 40
IGNORE_FILE = ".gitignore"
IGNORE_BYTES_MAX = 256 * 1024
NEVER = frozenset({"node_modules", "__pycache__"})
SKIPPED_MAX = 100


@dataclass
class Walk:
    """The files of a walked folder by their paths in it. `skipped` tells of the first files
    that were left out for what they are; those that an ignore rule names are not told."""

    files: dict[str, FileMark] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    skipped_count: int = 0

    def skip(self, path: str, why: str) -> None:
        self.skipped_count += 1
        if len(self.skipped) < SKIPPED_MAX:
            self.skipped.append(f"{path} {why}")


def walk(root: Path) -> Walk:
    """The files below `root`. Links are not followed; names that begin with a dot, what a
    .gitignore names and folders of packages are left out."""
    found = Walk()
    _enter(root, "", [], found, 0)
    return found


def _enter(
    folder: Path, prefix: str, rules: list[tuple[str, GitIgnoreSpec]], found: Walk, depth: int
) -> None:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        found.skip(prefix or ".", f"cannot be read: {error.strerror}")
        return
    own = _rules(folder)
    if own is not None:
        rules = [*rules, (prefix, own)]
    for entry in entries:
        path = prefix + entry.name
        if entry.name.startswith(".") or entry.name in NEVER:
            continue
        try:
            status = entry.stat(follow_symlinks=False)
            path.encode()
        except (OSError, UnicodeEncodeError):
            found.skip(ascii(path), "cannot be looked at")
            continue
        is_folder = stat.S_ISDIR(status.st_mode)
        if _ignored(rules, f"{path}/" if is_folder else path):
            continue
        if is_folder:
            if depth >= DEPTH_MAX:
                found.skip(path, f"is deeper than {DEPTH_MAX} folders")
            else:
                _enter(folder / entry.name, f"{path}/", rules, found, depth + 1)
        elif not stat.S_ISREG(status.st_mode):
            found.skip(path, "is a link or no file")
        elif status.st_size > FILE_BYTES_MAX:
            found.skip(path, f"has {status.st_size:,} bytes, and the limit is {FILE_BYTES_MAX:,}")
        elif len(found.files) >= FILES_MAX:
            found.skip(path, f"comes after the first {FILES_MAX:,} files")
        else:
            found.files[path] = FileMark(status.st_mtime_ns, status.st_size)


def _rules(folder: Path) -> GitIgnoreSpec | None:
    """The folder's own ignore rules."""
    try:
        file = folder / IGNORE_FILE
        status = file.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > IGNORE_BYTES_MAX:
            return None
        return GitIgnoreSpec.from_lines(file.read_text("utf-8", "replace").splitlines())
    except (OSError, ValueError):
        return None


def ignoring(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Whether lines as in a .gitignore leave a path out; that of a folder ends in a slash."""
    if not patterns:
        return lambda path: False
    spec = GitIgnoreSpec.from_lines(patterns)
    return lambda path: bool(spec.check_file(path).include)


def _ignored(rules: list[tuple[str, GitIgnoreSpec]], path: str) -> bool:
    """Whether the nearest folder's rules that speak of `path` leave it out."""
    for prefix, spec in reversed(rules):
        said = spec.check_file(path[len(prefix) :]).include
        if said is not None:
            return said
    return False


@dataclass(frozen=True)
class Unread:
    """Why a file is not searched."""

    why: str


def read(root: Path, path: str) -> str | Unread:
    """The file's text."""
    try:
        with WorkingFolder(root).reading(path) as descriptor:
            content = b"".join(_content(descriptor))
    except ToolFailed as error:
        return Unread(str(error).removeprefix(f"{path} ").rstrip("."))
    except OSError as error:
        return Unread(f"cannot be read: {error.strerror}")
    if len(content) > FILE_BYTES_MAX:
        return Unread(f"has more than {FILE_BYTES_MAX:,} bytes")
    if b"\0" in content:
        return Unread("is no text")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Unread(f"is not valid UTF-8 at byte {error.start + 1}")


def _content(descriptor: int) -> Iterator[bytes]:
    left = FILE_BYTES_MAX + 1
    while left > 0 and (piece := os.read(descriptor, min(left, 1 << 20))):
        left -= len(piece)
        yield piece
