"""What calls have done to files, in the order of time, through a session and its executors."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from everturn.session import SessionKey
from everturn_activities.tree_index import UNSAVED


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
    """What a call did to the files of `root`, from `at` to `until`. `left_out` counts files that
    were not looked at, or whose content was not kept; `unrecorded` those that it changed beyond
    what a record holds."""

    turn: int
    step: int
    call: str
    tool: str
    root: str
    at: float
    left_out: int = 0
    unrecorded: int = 0
    changes: dict[str, Change] = field(default_factory=dict)
    until: float = 0.0

    @property
    def place(self) -> tuple[int, int]:
        return self.turn, self.step

    def with_change(self, path: str, change: Change) -> "Record":
        return replace(self, changes={**self.changes, path: change})


@dataclass(frozen=True)
class Restored:
    """Files that are as they were before, those that were kept, with why, and what else is not as
    it was, in sentences."""

    files: tuple[str, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = []
        if self.files:
            said.append(f"Put back as they were: {_some(self.files)}.")
        if self.kept:
            kept = [f"{path} ({why})" for path, why in self.kept]
            said.append(f"Left as they are: {_some(kept)}.")
        said += self.notes
        return " ".join(said) or "No file had to be put back."


@dataclass(frozen=True)
class Work:
    """A turn of an executor, and the step of the session above all for which it worked."""

    key: SessionKey
    turn: int
    place: tuple[int, int]


class Done(NamedTuple):
    """A record, for which step of the session above all, and in whose session it was made."""

    place: tuple[int, int]
    session: SessionKey
    record: Record


def by_file(done: Iterable[Done]) -> Iterator[tuple[str, str, list[Change]]]:
    """Each file's changes in the order of time, one for calls that ran beside each other: those
    of one step, and those of executors."""
    files: dict[tuple[str, str], list[_Beside]] = {}
    for session, record in sorted(((one.session, one.record) for one in done), key=_begun):
        step = (session, *record.place, record.tool == "restore" and record.call)
        for path, change in record.changes.items():
            known = files.setdefault((record.root, path), [])
            if known and (known[-1].step == step or record.at < known[-1].until):
                known[-1] = known[-1].with_change(step, record, change)
            else:
                known.append(_Beside(step, record.until, change))
    for (root, path), groups in files.items():
        yield root, path, [group.change for group in groups]


def held_at(done: Iterable[Done], place: tuple[int, int]) -> dict[tuple[str, str], Change]:
    """What files held behind a step, as `after`, by root and path: those that calls changed up to
    there or later."""
    in_time = sorted(done, key=lambda one: one.record.at)
    # What was put back after the step is a later change, too, though it names an earlier step.
    up_to = [
        n for n, one in enumerate(in_time) if one.record.tool != "restore" and one.place <= place
    ]
    behind = up_to[-1] + 1 if up_to else 0
    held: dict[tuple[str, str], Change] = {}
    for one in in_time[:behind]:
        for path, change in one.record.changes.items():
            held[one.record.root, path] = change
    for one in in_time[behind:]:
        for path, change in one.record.changes.items():
            was = replace(change, after=change.before)
            held.setdefault((one.record.root, path), was)
    return held


def _begun(one: tuple[SessionKey, Record]) -> float:
    return one[1].at


class _Beside(NamedTuple):
    """What calls beside each other did to a file, the last of which ended at `until`."""

    step: tuple[object, ...]
    until: float
    change: Change

    def with_change(self, step: tuple[object, ...], record: Record, change: Change) -> "_Beside":
        # What a file holds in the end says who ended last.
        after = change.after if record.until >= self.until else self.change.after
        return _Beside(step, max(self.until, record.until), replace(self.change, after=after))


def _some(names: Sequence[str], most: int = 10) -> str:
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
