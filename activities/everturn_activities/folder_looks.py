"""Looks at working folders around commands, and what a process remembers of them."""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from everturn_activities import tree_index
from everturn_activities.blobs.folder import FolderBlobs, part_of
from everturn_activities.bounded import Bounded
from everturn_activities.tree_index import Entry, Tree

TREES_KEPT = 16
DIFFERENCE_CHARACTERS_MAX = 200_000
_LOCKS = 16
_BASE, _SINCE = ".base", ".since"

Mark = tuple[int, int] | None


class _Seen(NamedTuple):
    """A folder as a look found it that began at `began`, after the sweep `swept`."""

    tree: Tree
    began: float
    swept: Mark


class FolderLooks:
    """Looks at folders, one at a time each: who asks while another looks shares the next look.

    What a folder holds before a call is kept beside the call's record, for whoever closes it: as
    a link to what is written of the folder, `written`, and what has changed in it since.
    """

    def __init__(self, blobs: FolderBlobs, swept: Path) -> None:
        self._blobs = blobs
        self._swept = swept
        self._locks = tuple(threading.RLock() for _ in range(_LOCKS))
        # Folders as they were seen last, as they are written down, and before calls under way.
        self._seen: Bounded[str, _Seen] = Bounded(TREES_KEPT, 0)
        self._written: Bounded[str, tuple[Mark, Tree]] = Bounded(TREES_KEPT, 0)
        self._begun: Bounded[str, Tree] = Bounded(TREES_KEPT, 0)

    @contextmanager
    def alone_with(self, root: str) -> Iterator[None]:
        """Nobody else of this process looks at the folder meanwhile, or closes a call in it."""
        with self._locks[hash(root) % _LOCKS]:
            yield

    def before(self, root: str, written: Path, place: Path) -> Tree:
        """The folder as it is now, kept for the call whose record will be at `place`."""
        asked = time.monotonic()
        with self.alone_with(root):
            tree = self._shared(root, asked)
            if tree is None:
                tree = self._look(root, self._known(root, written).entries, again=False)
            self._keep(root, tree, written, place)
        self._begun.put(str(place), tree)
        return tree

    def after(self, root: str, place: Path, asked: float) -> tuple[Tree, Tree]:
        """The folder as it was before the call at `place`, and as it is, at `asked` or later.

        Raises OSError or ValueError where what it was is kept no more.
        """
        was = self._begun.get(str(place)) or kept_for(place)
        with self.alone_with(root):
            now = self._shared(root, asked)
            return was, now or self._look(root, was.entries, again=True)

    def forget(self, place: Path) -> None:
        self._begun.pop(str(place))
        for suffix in (_BASE, _SINCE):
            place.with_suffix(suffix).unlink(missing_ok=True)

    def _shared(self, root: str, asked: float) -> Tree | None:
        seen = self._seen.get(root)
        return seen.tree if seen is not None and seen.began >= asked else None

    def _look(self, root: str, known: Mapping[str, Entry], again: bool) -> Tree:
        began, swept = time.monotonic(), _mark(self._swept)
        look = tree_index.look_again if again else tree_index.look
        tree = look(Path(root), known, self._blobs)
        self._seen.put(root, _Seen(tree, began, swept))
        return tree

    def _known(self, root: str, written: Path) -> Tree:
        """The folder as this process saw it last, or any before it.

        A sweep removes contents that only a process remembers: then what is written counts.
        """
        seen = self._seen.get(root)
        if seen is not None and seen.swept == _mark(self._swept):
            return seen.tree
        with suppress(OSError, ValueError):
            return tree_index.loaded(written.read_text())
        return Tree()

    def _keep(self, root: str, tree: Tree, written: Path, place: Path) -> None:
        base = place.with_suffix(_BASE)
        # There is one already where a worker died before it wrote the record.
        with suppress(OSError):
            os.link(written, base)
        mark, known = self._written.get(root) or (None, Tree())
        since = tree_index.difference(known, tree)
        if mark is None or _mark(base) != mark or len(since) > DIFFERENCE_CHARACTERS_MAX:
            self._write(root, tree, written, base)
            since = tree_index.difference(tree, tree)
        place.with_suffix(_SINCE).write_text(since)

    def _write(self, root: str, tree: Tree, written: Path, base: Path) -> None:
        """Write all of `tree` to `base`, and make that what is written of the folder."""
        base.unlink(missing_ok=True)
        base.write_text(tree_index.saved(tree))
        written.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = part_of(written)
        with suppress(OSError):
            part.unlink(missing_ok=True)
            os.link(base, part)
            part.replace(written)
            self._written.put(root, (_mark(base), tree))


def kept_for(place: Path) -> Tree:
    """The folder as it was before the call whose record is at `place`. Raises OSError."""
    base = tree_index.loaded(place.with_suffix(_BASE).read_text())
    return tree_index.changed(base, place.with_suffix(_SINCE).read_text())


def _mark(path: Path) -> Mark:
    """What tells one writing of a file from the next; None where it is not there."""
    with suppress(OSError):
        status = path.stat()
        return status.st_ino, status.st_mtime_ns
    return None
