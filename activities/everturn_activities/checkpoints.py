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
from dataclasses import asdict, replace
from pathlib import Path

from everturn.errors import NotThere, ToolFailed
from everturn.session import SessionKey
from everturn_activities import tree_index
from everturn_activities.blobs.folder import FolderBlobs
from everturn_activities.checkpoint_records import (
    age,
    changes_of,
    contents_of,
    digest_of,
    read_record,
    write_whole,
)
from everturn_activities.file_changes import (
    Change,
    Done,
    Record,
    Restored,
    Work,
    by_file,
    held_at,
)
from everturn_activities.folder_looks import FolderLooks, kept_for
from everturn_activities.paths import Place, WorkingFolder
from everturn_activities.tree_index import ABSENT, UNSAVED, Tree

OF_FILES, OF_TREES = ("write_file", "edit_file"), ("run_command", "code_execution")
FILE_BYTES_MAX = 10 * 1024 * 1024
CHANGES_MAX = 10_000
RECORDS_KEPT = 1_000
DAYS_KEPT = 30
BYTES_KEPT = 2 * 1024**3
SWEEP_SECONDS = 3600.0
EVERY = 2**31
_OPEN, _CLOSED, _TREE, _FORGOTTEN = ".open", ".json", "tree.json", "forgotten"


class Checkpoints:
    """Checkpoints below the folder `home`, of the sessions of all workers on it."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "checkpoints"
        self._blobs = FolderBlobs(home / "blobs")
        self._swept = self._folder / "swept"
        self._looks = FolderLooks(self._blobs, self._swept)

    # Around a call.

    def before(self, key: SessionKey, record: Record, path: str | None) -> None:
        """Keep what the file `path`, or every file of the folder, holds; once a call.

        Raises ToolFailed for a path that no tool may change.
        """
        folder = self._of(key)
        self._close_older(folder, record)
        place = _place(folder, record.call)
        if place.exists():
            return
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path is not None:
            content, mode = _read(WorkingFolder(Path(record.root)), path)
            change = Change(self._kept(content), UNSAVED, mode)
            record = replace(record, changes={os.path.normpath(path): change})
        else:
            tree = self._looks.before(record.root, self._tree(record.root), place)
            record = replace(record, left_out=tree.left_out + tree.unsaved)
        # Of calls beside each other the one comes first that cannot have seen what others did.
        record = replace(record, at=time.time())
        write_whole(place, json.dumps(asdict(record)))
        self._bound(folder)

    def after(self, key: SessionKey, call: str) -> None:
        """Record what the call has left."""
        place = _place(self._of(key), call)
        if (record := read_record(place)) is not None:
            self._close(place, record)

    def _close(self, place: Path, record: Record) -> None:
        if record.tool in OF_TREES:
            asked = time.monotonic()
            with self._looks.alone_with(record.root):
                # Whoever comes later may find it closed.
                if place.exists():
                    self._write_closed(place, self._with_changes(place, record, asked))
            return
        folder = WorkingFolder(Path(record.root))
        changes = {
            path: replace(change, after=self._kept(_read(folder, path)[0]))
            for path, change in record.changes.items()
        }
        self._write_closed(place, replace(record, changes=changes))

    def _with_changes(self, place: Path, record: Record, asked: float) -> Record:
        was, now = self._looks.after(record.root, place, asked)
        found = [one for one in changes_of(was, now, record.at) if not one[1].is_none]
        unrecorded = max(0, len(found) - CHANGES_MAX)
        return replace(record, changes=dict(found[:CHANGES_MAX]), unrecorded=unrecorded)

    def _write_closed(self, place: Path, record: Record) -> None:
        # A call that changed nothing is forgotten.
        changes = {path: one for path, one in record.changes.items() if not one.is_none}
        if changes:
            closed = replace(record, changes=changes, until=time.time())
            write_whole(place.with_suffix(_CLOSED), json.dumps(asdict(closed)))
        self._forget(place)

    def _forget(self, place: Path) -> None:
        self._looks.forget(place)
        place.unlink(missing_ok=True)

    def _close_older(self, folder: Path, record: Record) -> None:
        """Close what calls of earlier steps left open: they were cut off, or their worker lost."""
        for place in folder.glob(f"*{_OPEN}"):
            with suppress(OSError, ValueError, ToolFailed):
                older = read_record(place)
                if older is not None and older.place < record.place:
                    self._close(place, older)

    def _kept(self, content: bytes | None) -> str:
        return ABSENT if content is None else self._blobs.put(content)

    # Looking, and putting back.

    def records(self, key: SessionKey) -> list[Record]:
        """What calls of the session changed, in the order in which they began."""
        found = [read_record(path) for path in self._of(key).glob(f"*{_CLOSED}")]
        return sorted((one for one in found if one is not None), key=lambda one: one.at)

    def done(self, key: SessionKey, below: Sequence[Work] = ()) -> list[Done]:
        """What calls of the session changed, and those of executors in the turns `below`."""
        found = [Done(record.place, key, record) for record in self.records(key)]
        places = {(work.key, work.turn): work.place for work in below}
        for executor in {work.key for work in below}:
            for record in self.records(executor):
                place = places.get((executor, record.turn))
                if place is not None:
                    found.append(Done(place, executor, record))
        return found

    def restore(
        self,
        key: SessionKey,
        since: tuple[int, int],
        until: tuple[int, int],
        protected: Sequence[Path],
        name: str,
        below: Sequence[Work] = (),
    ) -> Restored:
        """Put the files back that calls from step `since` up to before step `until` changed, and
        those that executors changed for these, in the turns `below`.

        A file that is not as the last of those calls left it, or that somebody else changed
        between two of them, is kept. The restoring is a record itself, called `name`.
        """
        folder = self._of(key)
        self._close_older(folder, Record(*until, "", "", "", 0.0))
        for executor in {work.key for work in below if since <= work.place < until}:
            self._close_older(self._of(executor), Record(EVERY, 0, "", "", "", 0.0))
        did = [one for one in self.done(key, below) if since <= one.place < until]
        done, kept = [], []
        for root, path, changes in by_file(did):
            target, now = changes[0].before, self._now(root, path)
            if now == target != UNSAVED:
                continue
            why = self._why_kept(changes, now)
            if why is None:
                change = Change(now, target, changes[0].mode, restoring=True)
                why = self._put(folder, since, root, path, change, protected, name)
            if why is None:
                done.append(path)
            else:
                kept.append((path, why))
        return Restored(tuple(done), tuple(kept), tuple(self._notes(did, key, since)))

    def _notes(self, did: Sequence[Done], key: SessionKey, since: tuple[int, int]) -> Iterator[str]:
        unrecorded = sum(one.record.unrecorded for one in did)
        if unrecorded:
            yield (
                f"Changes of files that commands made beyond the first {CHANGES_MAX:,} of a call"
                f" are not recorded, and still stand: {unrecorded:,}."
            )
        turn, step = forgotten = _forgotten(self._of(key) / _FORGOTTEN)
        if forgotten >= since:
            yield f"What calls did up to step {turn}.{step} is kept no more, and may still stand."

    def _why_kept(self, changes: Sequence[Change], now: str) -> str | None:
        if changes[-1].restoring and now == changes[-1].before:
            changes = changes[:-1]
        between = itertools.pairwise(changes)
        if changes[0].before == UNSAVED:
            return "what it held was too much to be kept"
        if any(one.after == UNSAVED for one in changes):
            return "what a tool left in it was too much to be kept"
        if now != changes[-1].after or any(one.after != two.before for one, two in between):
            return "somebody else has changed it since"
        known = changes[0].before == ABSENT or self._blobs.get(changes[0].before) is not None
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
        # The session itself may not have changed a file, only its executors.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        at = folder / f"{name}-{digest_of(root)[:8]}{_CLOSED}"
        # It may have been begun before, and cut off.
        restoring = read_record(at) or Record(*since, at.stem, "restore", root, time.time())
        write_whole(at, json.dumps(asdict(restoring.with_change(path, change))))
        working = WorkingFolder(Path(root), protected)
        try:
            with working.writing(path, create_folders=change.after != ABSENT) as place:
                if change.after == ABSENT:
                    place.remove()
                else:
                    content = self._blobs.get(change.after)
                    assert content is not None
                    place.replace(content, mode=change.mode)
        except ToolFailed as error:
            write_whole(at, json.dumps(asdict(restoring)))
            return str(error)
        return None

    def carry(
        self,
        key: SessionKey,
        place: tuple[int, int],
        below: Sequence[Work],
        source: Path,
        target: Path,
    ) -> Restored:
        """Give files of `target`, made of the session's folder `source`, what they held behind a
        step there. Doing it again changes nothing."""
        done, kept = [], []
        held = held_at(self.done(key, below), place)
        for (root, path), change in sorted(held.items()):
            place_of = Path(root).resolve()
            if not place_of.is_relative_to(source):
                continue
            folder = target / place_of.relative_to(source)
            if self._now(str(folder), path) == change.after:
                continue
            why = self._carry(folder, path, change)
            if why is None:
                done.append(path)
            else:
                kept.append((path, why))
        return Restored(tuple(done), tuple(kept))

    def _carry(self, folder: Path, path: str, change: Change) -> str | None:
        content = None
        if change.after != ABSENT:
            content = None if change.after == UNSAVED else self._blobs.get(change.after)
            if content is None:
                return "what it held is kept no more"
        try:
            with WorkingFolder(folder).writing(path, create_folders=content is not None) as place:
                if content is None:
                    place.remove()
                else:
                    place.replace(content, mode=change.mode)
        except ToolFailed as error:
            return str(error)
        return None

    # Bounds.

    def _bound(self, folder: Path) -> None:
        """Forget the oldest records of a session that has too many, and now and then contents."""
        found = list(folder.glob(f"*{_CLOSED}"))
        if len(found) > RECORDS_KEPT:
            for path in sorted(found, key=age)[: len(found) - RECORDS_KEPT]:
                self._let_go(path)
        with suppress(OSError):
            if time.time() - self._swept.stat().st_mtime < SWEEP_SECONDS:
                return
        self._swept.touch()
        self.sweep()

    def _let_go(self, path: Path) -> None:
        """Forget a record, and remember up to which step there are none."""
        forgotten = path.with_name(_FORGOTTEN)
        record = read_record(path)
        if record is not None and record.place > _forgotten(forgotten):
            write_whole(forgotten, json.dumps(record.place))
        self._forget(path)

    def sweep(self, bytes_kept: int = BYTES_KEPT) -> None:
        """Forget what is old, or more than is kept, and remove contents that nothing names."""
        oldest = time.time() - DAYS_KEPT * 86400
        named: set[str] = set()
        size = 0
        paths = [*self._folder.glob(f"*/*{_CLOSED}"), *self._folder.glob(f"*/*{_OPEN}")]
        for path in sorted(paths, key=age, reverse=True):
            if path.name == _TREE:
                named |= self._named_by_tree(path, oldest)
                continue
            record = read_record(path)
            contents = set() if record is None else contents_of(record) - named
            size += sum(self._size(digest) for digest in contents)
            if record is None or age(path) < oldest or size > bytes_kept:
                self._let_go(path)
                continue
            named |= contents
            if path.suffix == _OPEN and record.tool in OF_TREES:
                with suppress(OSError, ValueError):
                    named |= _named(kept_for(path))
        for path in self._blobs.folder.glob("??/*"):
            with suppress(OSError):
                # What was written of late may be named by a record in the making.
                if path.name not in named and path.stat().st_mtime < time.time() - SWEEP_SECONDS:
                    path.unlink()

    def _named_by_tree(self, path: Path, oldest: float) -> set[str]:
        if age(path) < oldest:
            path.unlink(missing_ok=True)
            return set()
        with suppress(OSError, ValueError):
            return _named(tree_index.loaded(path.read_text()))
        return set()

    def _size(self, digest: str) -> int:
        with suppress(OSError):
            return self._blobs.path(digest).stat().st_size
        return 0

    def _of(self, key: SessionKey) -> Path:
        return self._folder / f"s-{digest_of(f'{key.tenant}/{key.session}')}"

    def _tree(self, root: str) -> Path:
        return self._folder / f"t-{digest_of(os.path.realpath(root))}" / _TREE


def _place(folder: Path, call: str) -> Path:
    """Where a call that runs is recorded; one that ended and runs again has a record more."""
    for n in itertools.count(1):
        place = folder / f"{call}{'' if n == 1 else f'-{n}'}{_OPEN}"
        if not place.with_suffix(_CLOSED).exists():
            return place
    raise AssertionError


def _forgotten(path: Path) -> tuple[int, int]:
    """The last step of which a record was forgotten."""
    with suppress(OSError, ValueError):
        turn, step = json.loads(path.read_text())
        return turn, step
    return 0, 0


def _named(tree: Tree) -> set[str]:
    return {entry.content for entry in tree.entries.values()}


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
