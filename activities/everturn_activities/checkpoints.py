"""File checkpoints: what files held before a tool changed them, and putting that back.

A record stands for a call that may change files. What it says of a file is what the file held
before, and what the call left: so a file that somebody else has changed since is known, and kept.
"""

import hashlib
import itertools
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from everturn.errors import NotThere, ToolFailed
from everturn.session import SessionKey
from everturn_activities import tree_index
from everturn_activities.bounded import Bounded
from everturn_activities.paths import Place, WorkingFolder
from everturn_activities.tree_index import ABSENT, UNSAVED, Objects, Tree

OF_FILES, OF_TREES = ("write_file", "edit_file"), ("run_command", "code_execution")
FILE_BYTES_MAX = 10 * 1024 * 1024
CHANGES_MAX = 2_000
RECORDS_KEPT = 200
DAYS_KEPT = 30
BYTES_KEPT = 2 * 1024**3
SWEEP_SECONDS = 3600.0
TREES_KEPT = 16
DIFFERENCE_CHARACTERS_MAX = 200_000
_OPEN, _CLOSED, _TREE = ".open", ".json", "tree.json"
_BASE, _SINCE = ".base", ".since"


@dataclass(frozen=True)
class Change:
    """Digests of a file's content, or ABSENT, or UNSAVED; `mode` is that before. One that is
    `restoring` is written before it is made, and so may never have been."""

    before: str
    after: str
    mode: int = 0o644
    restoring: bool = False

    @property
    def is_none(self) -> bool:
        return self.before == self.after != UNSAVED


@dataclass(frozen=True)
class Record:
    """What a call did to the files of `root`. `left_out` counts files that were not looked at, or
    whose content was not kept."""

    turn: int
    step: int
    call: str
    tool: str
    root: str
    at: float
    left_out: int = 0
    changes: dict[str, Change] = field(default_factory=dict)

    @property
    def place(self) -> tuple[int, int]:
        return self.turn, self.step

    def with_change(self, path: str, change: Change) -> "Record":
        return replace(self, changes={**self.changes, path: change})


@dataclass(frozen=True)
class Restored:
    """Files that are as they were before, and those that were kept, with why."""

    files: tuple[str, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        said = []
        if self.files:
            said.append(f"Put back as they were: {_some(self.files)}.")
        if self.kept:
            kept = [f"{path} ({why})" for path, why in self.kept]
            said.append(f"Left as they are: {_some(kept)}.")
        return " ".join(said) or "No file had to be put back."


class Checkpoints:
    """Checkpoints below the folder `home`, of the sessions of all workers on it."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "checkpoints"
        self._objects = Objects(home / "blobs")
        # Folders as they were seen last, as they are written down, and before calls under way.
        self._trees: Bounded[str, Tree] = Bounded(TREES_KEPT, 0)
        self._written: Bounded[str, tuple[int, Tree]] = Bounded(TREES_KEPT, 0)
        self._begun: Bounded[str, Tree] = Bounded(TREES_KEPT, 0)

    # Around a call.

    def before(self, key: SessionKey, record: Record, path: str | None) -> None:
        """Keep what the file `path`, or every file of the folder, holds; once a call.

        Raises ToolFailed for a path that no tool may change.
        """
        folder = self._of(key)
        place = folder / f"{record.call}{_OPEN}"
        self._close_older(folder, record)
        if place.exists() or place.with_suffix(_CLOSED).exists():
            return
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path is not None:
            content, mode = _read(WorkingFolder(Path(record.root)), path)
            change = Change(self._kept(content), UNSAVED, mode)
            record = replace(record, changes={os.path.normpath(path): change})
        else:
            tree = self._look(record.root)
            self._base(record.root, tree, place)
            self._begun.put(record.call, tree)
            record = replace(record, left_out=tree.left_out + tree.unsaved)
        _write(place, json.dumps(asdict(record)))
        self._bound(folder)

    def after(self, key: SessionKey, call: str) -> None:
        """Record what the call has left."""
        place = self._of(key) / f"{call}{_OPEN}"
        if (record := _record(place)) is not None:
            self._close(place, record)

    def _close(self, place: Path, record: Record) -> None:
        if record.tool in OF_TREES:
            was = self._begun.get(record.call)
            if was is None:
                base = tree_index.loaded(place.with_suffix(_BASE).read_text())
                was = tree_index.changed(base, place.with_suffix(_SINCE).read_text())
            now = tree_index.look_again(Path(record.root), was.entries, self._objects)
            self._begun.pop(record.call)
            self._trees.put(record.root, now)
            changes = dict(_changes(was, now))
            left_out = record.left_out + max(0, len(changes) - CHANGES_MAX)
            changes = dict(list(changes.items())[:CHANGES_MAX])
        else:
            folder, left_out = WorkingFolder(Path(record.root)), record.left_out
            changes = {
                path: replace(change, after=self._kept(_read(folder, path)[0]))
                for path, change in record.changes.items()
            }
        # A call that changed nothing is forgotten.
        changes = {path: one for path, one in changes.items() if not one.is_none}
        if changes:
            closed = replace(record, left_out=left_out, changes=changes)
            _write(place.with_suffix(_CLOSED), json.dumps(asdict(closed)))
        _forget(place)

    def _close_older(self, folder: Path, record: Record) -> None:
        """Close what calls of earlier steps left open: they were cut off, or their worker lost."""
        for place in folder.glob(f"*{_OPEN}"):
            with suppress(OSError, ValueError, ToolFailed):
                older = _record(place)
                if older is not None and older.place < record.place:
                    self._close(place, older)

    def _kept(self, content: bytes | None) -> str:
        return ABSENT if content is None else self._objects.keep(content)

    def _look(self, root: str) -> Tree:
        """The folder as it is, read where it has changed since it was looked at last."""
        tree = tree_index.look(Path(root), self._known(root).entries, self._objects)
        self._trees.put(root, tree)
        return tree

    def _known(self, root: str) -> Tree:
        """The folder as this process saw it last, or any before it."""
        if (tree := self._trees.get(root)) is not None:
            return tree
        with suppress(OSError, ValueError):
            return tree_index.loaded(self._tree(root).read_text())
        return Tree()

    def _base(self, root: str, tree: Tree, place: Path) -> None:
        """Keep `tree`, as the folder is now, for whoever closes the call at `place`: as a link to
        what is written of the folder, and what has changed in it since."""
        path = self._tree(root)
        mark, written = self._written.get(root) or (0, Tree())
        with suppress(OSError):
            if path.stat().st_mtime_ns != mark:
                written = Tree()
        differing = tree_index.difference(written, tree)
        if len(differing) > DIFFERENCE_CHARACTERS_MAX or not written.entries:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(path, tree_index.saved(tree))
            self._written.put(root, (path.stat().st_mtime_ns, tree))
            differing = tree_index.difference(tree, tree)
        place.with_suffix(_SINCE).write_text(differing)
        with suppress(FileExistsError):
            os.link(path, place.with_suffix(_BASE))

    # Looking, and putting back.

    def records(self, key: SessionKey) -> list[Record]:
        """What calls of the session changed, in the order in which they began."""
        found = [_record(path) for path in self._of(key).glob(f"*{_CLOSED}")]
        return sorted((one for one in found if one is not None), key=lambda one: one.at)

    def restore(
        self,
        key: SessionKey,
        since: tuple[int, int],
        until: tuple[int, int],
        protected: Sequence[Path],
        name: str,
    ) -> Restored:
        """Put the files back that calls from step `since` up to before step `until` changed.

        A file that is not as the last of those calls left it, or that somebody else changed
        between two of them, is kept. The restoring is a record itself, called `name`.
        """
        folder = self._of(key)
        self._close_older(folder, Record(*until, "", "", "", 0.0))
        records = [one for one in self.records(key) if since <= one.place < until]
        done, kept = [], []
        for root, path, changes in _by_file(records):
            target, now = changes[0].before, self._now(root, path)
            if now == target:
                continue
            why = self._why_kept(changes, now)
            if why is None:
                change = Change(now, target, changes[0].mode, restoring=True)
                why = self._put(folder, since, root, path, change, protected, name)
            if why is None:
                done.append(path)
            else:
                kept.append((path, why))
        return Restored(tuple(done), tuple(kept))

    def _why_kept(self, changes: Sequence[Change], now: str) -> str | None:
        if changes[-1].restoring and now == changes[-1].before:
            changes = changes[:-1]
        between = itertools.pairwise(changes)
        if changes[0].before == UNSAVED:
            return "what it held was too much to be kept"
        if now != changes[-1].after or any(one.after != two.before for one, two in between):
            return "somebody else has changed it since"
        known = changes[0].before == ABSENT or self._objects.content(changes[0].before) is not None
        return None if known else "what it held is kept no more"

    def _now(self, root: str, path: str) -> str:
        try:
            content, _ = _read(WorkingFolder(Path(root)), path)
        except ToolFailed:
            return UNSAVED
        return ABSENT if content is None else hashlib.sha256(content).hexdigest()

    def _put(
        self,
        folder: Path,
        since: tuple[int, int],
        root: str,
        path: str,
        change: Change,
        protected: Sequence[Path],
        name: str,
    ) -> str | None:
        """Make a change, recorded first; why that cannot be, or None."""
        at = folder / f"{name}-{_digest(root)[:8]}{_CLOSED}"
        # It may have been begun before, and cut off.
        restoring = _record(at) or Record(*since, at.stem, "restore", root, time.time())
        _write(at, json.dumps(asdict(restoring.with_change(path, change))))
        working = WorkingFolder(Path(root), protected)
        try:
            with working.writing(path, create_folders=change.after != ABSENT) as place:
                if change.after == ABSENT:
                    place.remove()
                else:
                    content = self._objects.content(change.after)
                    assert content is not None
                    place.replace(content, mode=change.mode)
        except ToolFailed as error:
            _write(at, json.dumps(asdict(restoring)))
            return str(error)
        return None

    # Bounds.

    def _bound(self, folder: Path) -> None:
        """Forget the oldest records of a session that has too many, and now and then contents."""
        found = list(folder.glob(f"*{_CLOSED}"))
        for path in sorted(found, key=_age)[: max(0, len(found) - RECORDS_KEPT)]:
            _forget(path)
        swept = self._folder / "swept"
        with suppress(OSError):
            if time.time() - swept.stat().st_mtime < SWEEP_SECONDS:
                return
        swept.touch()
        self.sweep()

    def sweep(self, bytes_kept: int = BYTES_KEPT) -> None:
        """Forget what is old, or more than is kept, and remove contents that nothing names."""
        oldest = time.time() - DAYS_KEPT * 86400
        named: set[str] = set()
        size = 0
        paths = [*self._folder.glob(f"*/*{_CLOSED}"), *self._folder.glob(f"*/*{_OPEN}")]
        for path in sorted(paths, key=_age, reverse=True):
            if path.name == _TREE:
                named |= self._named_by_tree(path, oldest)
                continue
            record = _record(path)
            contents = set() if record is None else _contents(record) - named
            size += sum(self._size(digest) for digest in contents)
            if record is None or _age(path) < oldest or size > bytes_kept:
                _forget(path)
            else:
                named |= contents
        for path in self._objects.folder.glob("??/*"):
            with suppress(OSError):
                # What was written of late may be named by a record in the making.
                if path.name not in named and path.stat().st_mtime < time.time() - SWEEP_SECONDS:
                    path.unlink()

    def _named_by_tree(self, path: Path, oldest: float) -> set[str]:
        if _age(path) < oldest:
            _forget(path)
            return set()
        with suppress(OSError, ValueError):
            tree = tree_index.loaded(path.read_text())
            return {entry.content for entry in tree.entries.values()}
        return set()

    def _size(self, digest: str) -> int:
        with suppress(OSError):
            return self._objects.path(digest).stat().st_size
        return 0

    def _of(self, key: SessionKey) -> Path:
        return self._folder / f"s-{_digest(f'{key.tenant}/{key.session}')}"

    def _tree(self, root: str) -> Path:
        return self._folder / f"t-{_digest(os.path.realpath(root))}" / _TREE


def _changes(was: Tree, now: Tree) -> Iterator[tuple[str, Change]]:
    for path in sorted({*was.entries, *now.entries}):
        before, after = was.entries.get(path), now.entries.get(path)
        if before is not None and after is not None and before[1:] == after[1:]:
            continue
        mode = 0o644 if before is None else before.mode
        held = ABSENT if before is None else before.content
        left = ABSENT if after is None else after.content
        yield path, Change(held, left, mode)


def _by_file(records: Sequence[Record]) -> Iterator[tuple[str, str, list[Change]]]:
    """Each file's changes, one a step: calls of one step ran beside each other."""
    files: dict[tuple[str, str], list[tuple[tuple[object, ...], Change]]] = {}
    for record in records:
        at = (*record.place, record.tool == "restore" and record.call)
        for path, change in record.changes.items():
            known = files.setdefault((record.root, path), [])
            if known and known[-1][0] == at:
                known[-1] = (at, replace(known[-1][1], after=change.after))
            else:
                known.append((at, change))
    for (root, path), changes in files.items():
        yield root, path, [change for _, change in changes]


def _read(folder: WorkingFolder, path: str) -> tuple[bytes | None, int]:
    """What the file holds, None where there is none, and its mode. Raises ToolFailed."""
    try:
        with folder.writing(path) as place, place.reading() as descriptor:
            return _content(place, descriptor)
    except NotThere:
        return None, 0o644


def _content(place: Place, descriptor: int) -> tuple[bytes, int]:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise ToolFailed(f"{place.path} has more than {FILE_BYTES_MAX} bytes.")
    return content, os.fstat(descriptor).st_mode & 0o777


def _contents(record: Record) -> set[str]:
    return {
        digest
        for change in record.changes.values()
        for digest in (change.before, change.after)
        if digest not in (ABSENT, UNSAVED)
    }


def _record(path: Path) -> Record | None:
    try:
        made = json.loads(path.read_text())
        changes = {name: Change(**change) for name, change in made.pop("changes").items()}
        return Record(**made, changes=changes)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text)
    part.replace(path)


def _forget(path: Path) -> None:
    for suffix in (_BASE, _SINCE):
        path.with_suffix(suffix).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _age(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def _some(names: Sequence[str], most: int = 10) -> str:
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
