"""What the files of a folder hold, by their digests: read again only where a file has changed."""

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

FILES_MAX = 100_000
FILE_BYTES_MAX = 4 * 1024 * 1024
BYTES_MAX = 256 * 1024 * 1024
READ_SECONDS = 0.5
"""How long a look may read files that it sees for the first time; the others come later."""
CHANGED_SECONDS = 2.0
"""How long it may read those that have changed."""

RACY_NS = 20_000_000
"""A file that changed so shortly before a look may change again without a trace."""

NEVER = frozenset(
    {".git", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache"}
    | {".pytest_cache", ".ruff_cache"}
)
DEPTH_MAX = 60
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

ABSENT, UNSAVED = "absent", "unsaved"

Found = tuple[str, str, int, os.stat_result]
"""A file's path and name, its open folder, and its status."""


class Entry(NamedTuple):
    """A file's content, or UNSAVED where that was not read; and by what a change is known."""

    content: str
    mode: int
    size: int
    modified_ns: int
    changed_ns: int
    inode: int

    def is_of(self, status: os.stat_result) -> bool:
        """Whether the file is as it was. A change of its mode changes a time too."""
        return (
            self.changed_ns == status.st_ctime_ns
            and self.modified_ns == status.st_mtime_ns
            and self.size == status.st_size
            and self.inode == status.st_ino
        )


@dataclass
class Tree:
    """The files of a folder by their paths. `left_out` counts those that were not looked at."""

    entries: dict[str, Entry] = field(default_factory=dict)
    left_out: int = 0

    @property
    def unsaved(self) -> int:
        return sum(entry.content == UNSAVED for entry in self.entries.values())


class Objects:
    """Contents of files by their digests, in a folder; each is written once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        path = self.path(digest)
        with suppress(FileNotFoundError):
            # A sweep leaves alone what was in use of late.
            os.utime(path)
            return digest
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_name(f".{digest}.{os.getpid()}")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        part.replace(path)
        return digest

    def content(self, digest: str) -> bytes | None:
        """None where it is kept no more."""
        with suppress(FileNotFoundError):
            return self.path(digest).read_bytes()
        return None

    def path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest


def look(root: Path, known: Mapping[str, Entry], objects: Objects) -> Tree:
    """The files below `root`; contents that `known` does not tell are read and kept, within
    bounds. Links are not followed, and our own data is left out."""
    return _looked(root, known, objects, READ_SECONDS)


def look_again(root: Path, known: Mapping[str, Entry], objects: Objects) -> Tree:
    """The same after a command: files that it left alone are not read, if they never were."""
    return _looked(root, known, objects, None)


def _looked(
    root: Path, known: Mapping[str, Entry], objects: Objects, first_seconds: float | None
) -> Tree:
    tree, now, began, room = Tree(), time.time_ns(), time.monotonic(), BYTES_MAX
    for path, name, folder, status in _files(root, tree, objects.folder.parent):
        entry = known.get(path)
        same = entry is not None and entry.is_of(status)
        if entry is not None and same and (first_seconds is None or entry.content != UNSAVED):
            tree.entries[path] = entry
            continue
        first = first_seconds is not None and (same or entry is None)
        seconds = first_seconds if first and first_seconds is not None else CHANGED_SECONDS
        content, marks = None, _marks(status)
        if status.st_size <= min(FILE_BYTES_MAX, room) and time.monotonic() - began < seconds:
            content = _kept(name, folder, objects)
            room -= status.st_size
            if content is not None and max(status.st_mtime_ns, status.st_ctime_ns) >= now - RACY_NS:
                # It is read again: what follows within the same tick leaves no trace.
                marks = (*marks[:3], 0, marks[4])
        tree.entries[path] = Entry(content or UNSAVED, *marks)
    return tree


def _files(root: Path, tree: Tree, home: Path) -> Iterator[Found]:
    folder, ours = os.open(root, _FOLDER), None
    with suppress(OSError):
        ours = home.stat().st_ino
    try:
        yield from _below(folder, "", 0, tree, ours)
    finally:
        os.close(folder)


def _below(folder: int, prefix: str, depth: int, tree: Tree, ours: int | None) -> Iterator[Found]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda one: one.name)
    except OSError:
        return
    for entry in entries:
        path = prefix + entry.name
        with suppress(OSError, UnicodeEncodeError):
            if entry.is_dir(follow_symlinks=False):
                if entry.name in NEVER or entry.inode() == ours:
                    continue
                if depth >= DEPTH_MAX:
                    tree.left_out += 1
                    continue
                inner = os.open(entry.name, _FOLDER, dir_fd=folder)
                try:
                    yield from _below(inner, f"{path}/", depth + 1, tree, ours)
                finally:
                    os.close(inner)
            elif entry.is_file(follow_symlinks=False):
                path.encode()
                if len(tree.entries) >= FILES_MAX:
                    tree.left_out += 1
                else:
                    yield path, entry.name, folder, entry.stat(follow_symlinks=False)


def _marks(status: os.stat_result) -> tuple[int, int, int, int, int]:
    mode = stat.S_IMODE(status.st_mode)
    return mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _kept(name: str, folder: int, objects: Objects) -> str | None:
    try:
        descriptor = os.open(name, _READ, dir_fd=folder)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(FILE_BYTES_MAX + 1)
    return objects.keep(content) if len(content) <= FILE_BYTES_MAX else None


def saved(tree: Tree) -> str:
    return json.dumps({"left_out": tree.left_out, "entries": tree.entries})


def loaded(text: str) -> Tree:
    made = json.loads(text)
    return Tree({path: Entry(*entry) for path, entry in made["entries"].items()}, made["left_out"])


def difference(was: Tree, now: Tree) -> str:
    """What makes `was` into `now`, in a few words where that is little."""
    changed = {path: entry for path, entry in now.entries.items() if was.entries.get(path) != entry}
    gone = [path for path in was.entries if path not in now.entries]
    return json.dumps({"changed": changed, "gone": gone})


def changed(was: Tree, difference: str) -> Tree:
    made = json.loads(difference)
    entries = dict(was.entries)
    entries |= {path: Entry(*entry) for path, entry in made["changed"].items()}
    for path in made["gone"]:
        del entries[path]
    return Tree(entries, was.left_out)
