"""What a command did to a folder, and records of calls as files."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from everturn_activities.blobs.folder import part_of
from everturn_activities.file_changes import Change, Record
from everturn_activities.masks import may_be_placeholder
from everturn_activities.tree_index import ABSENT, RACY_NS, UNSAVED, Tree, is_text


def changes_of(was: Tree, now: Tree, at: float) -> Iterator[tuple[str, Change]]:
    """What a command that began at `at` changed, and what it may have moved: a file in whose place
    another stood that is not kept is known by its inode, and no file that the command has made."""
    unsaved = {entry.inode for entry in was.entries.values() if entry.content == UNSAVED}
    began_ns = int(at * 1e9) - RACY_NS
    for path in sorted({*was.entries, *now.entries}):
        before, after = was.entries.get(path), now.entries.get(path)
        if before is not None and after is not None and before[1:] == after[1:]:
            continue
        if not is_text(path):
            continue
        one = before or after
        if (
            (before is None or after is None)
            and one
            and may_be_placeholder(path, one.mode, one.size)
        ):
            # Of a command that ran beside this one.
            continue
        held = ABSENT if before is None else before.content
        if before is None and after is not None:
            if was.left_out and after.changed_ns < began_ns:
                # It was there, and only now comes into view.
                continue
            if after.inode in unsaved:
                held = UNSAVED
        mode = 0o644 if before is None else before.mode
        yield path, Change(held, ABSENT if after is None else after.content, mode)


def contents_of(record: Record) -> set[str]:
    return {
        digest
        for change in record.changes.values()
        for digest in (change.before, change.after)
        if digest not in (ABSENT, UNSAVED)
    }


def read_record(path: Path) -> Record | None:
    try:
        made = json.loads(path.read_text())
        changes = {name: Change(**change) for name, change in made.pop("changes").items()}
        return Record(**made, changes=changes)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_whole(path: Path, text: str) -> None:
    part = part_of(path)
    part.write_text(text)
    part.replace(path)


def age(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def digest_of(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]
