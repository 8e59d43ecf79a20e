"""What the files of a folder hold, by their digests: read again only where a file has changed."""

import json
import operator
import os
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from everturn_activities.blobs.folder import FolderBlobs

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
_NAME = operator.attrgetter("name")

ABSENT, UNSAVED = "absent", "unsaved"


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


def look(root: Path, known: Mapping[str, Entry], blobs: FolderBlobs) -> Tree:
    """The files below `root`; contents that `known` does not tell are read and kept, within
    bounds. Links are not followed, and our own data is left out."""
    return _Look(known, blobs, READ_SECONDS).at(root)


def look_again(root: Path, known: Mapping[str, Entry], blobs: FolderBlobs) -> Tree:
    """The same after a command: files that it left alone are not read, if they never were."""
    return _Look(known, blobs, None).at(root)


class _Look:
    """One look, and what it has left of its bounds."""

    def __init__(
        self, known: Mapping[str, Entry], blobs: FolderBlobs, first_seconds: float | None
    ) -> None:
        self._known = known
        self._blobs = blobs
        self._first_seconds = first_seconds
        self._tree = Tree()
        self._room = BYTES_MAX
        self._now, self._began = time.time_ns(), time.monotonic()

    def at(self, root: Path) -> Tree:
        folder, ours = os.open(root, _FOLDER), None
        with suppress(OSError):
            ours = self._blobs.folder.parent.stat().st_ino
        try:
            self._below(folder, "", 0, ours)
        finally:
            os.close(folder)
        return self._tree

    def _below(self, folder: int, prefix: str, depth: int, ours: int | None) -> None:
        tree, entries, known = self._tree, self._tree.entries, self._known
        try:
            with os.scandir(folder) as found:
                members = sorted(found, key=_NAME)
        except OSError:
            tree.left_out += 1
            return
        # A folder may have 100,000 files, and two looks a command: this loop has to be quick.
        for one in members:
            path = prefix + one.name
            try:
                if one.is_dir(follow_symlinks=False):
                    if one.name not in NEVER and one.inode() != ours:
                        self._enter(folder, one.name, f"{path}/", depth, ours)
                    continue
                if not one.is_file(follow_symlinks=False):
                    continue
                if len(entries) >= FILES_MAX:
                    tree.left_out += 1
                    continue
                status = one.stat(follow_symlinks=False)
            except OSError:
                # It is gone meanwhile.
                continue
            entry = known.get(path)
            if (
                entry is not None
                and entry.is_of(status)
                and (entry.content != UNSAVED or self._first_seconds is None)
            ):
                entries[path] = entry
            else:
                entries[path] = self._read(path, one.name, folder, status)

    def _enter(self, folder: int, name: str, prefix: str, depth: int, ours: int | None) -> None:
        if depth >= DEPTH_MAX:
            self._tree.left_out += 1
            return
        try:
            inner = os.open(name, _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError:
            self._tree.left_out += 1
            return
        try:
            self._below(inner, prefix, depth + 1, ours)
        finally:
            os.close(inner)

    def _read(self, path: str, name: str, folder: int, status: os.stat_result) -> Entry:
        """The file as it is now, its content kept where the bounds allow that."""
        entry, first = self._known.get(path), self._first_seconds
        changed = entry is not None and not entry.is_of(status)
        seconds = CHANGED_SECONDS if first is None or changed else first
        content, marks = None, _marks(status)
        in_time = time.monotonic() - self._began < seconds
        if in_time and status.st_size <= min(FILE_BYTES_MAX, self._room) and is_text(path):
            content = _kept(name, folder, self._blobs)
            self._room -= status.st_size
            latest = max(status.st_mtime_ns, status.st_ctime_ns)
            if content is not None and latest >= self._now - RACY_NS:
                # It is read again: what follows within the same tick leaves no trace.
                marks = (*marks[:3], 0, marks[4])
        return Entry(content or UNSAVED, *marks)


def is_text(path: str) -> bool:
    """Whether all who are told of a file can read its name. One that is no text is not put back."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _marks(status: os.stat_result) -> tuple[int, int, int, int, int]:
    mode = stat.S_IMODE(status.st_mode)
    return mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _kept(name: str, folder: int, blobs: FolderBlobs) -> str | None:
    try:
        descriptor = os.open(name, _READ, dir_fd=folder)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        try:
            content = file.read(FILE_BYTES_MAX + 1)
        except OSError:
            return None
    return blobs.put(content) if len(content) <= FILE_BYTES_MAX else None


def saved(tree: Tree) -> str:
    return json.dumps({"left_out": tree.left_out, "entries": tree.entries})


def loaded(text: str) -> Tree:
    made = json.loads(text)
    return Tree({path: Entry(*entry) for path, entry in made["entries"].items()}, made["left_out"])


def difference(was: Tree, now: Tree) -> str:
    """What makes `was` into `now`, in a few words where that is little."""
    changed = {path: entry for path, entry in now.entries.items() if was.entries.get(path) != entry}
    gone = [path for path in was.entries if path not in now.entries]
    return json.dumps({"changed": changed, "gone": gone, "left_out": now.left_out})


def changed(was: Tree, difference: str) -> Tree:
    made = json.loads(difference)
    entries = dict(was.entries)
    entries |= {path: Entry(*entry) for path, entry in made["changed"].items()}
    for path in made["gone"]:
        del entries[path]
    return Tree(entries, made["left_out"])
