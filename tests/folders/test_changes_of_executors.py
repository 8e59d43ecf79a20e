"""What executors did to files goes back with the step of the session that they worked for."""

import time
from pathlib import Path

import pytest

from everturn.session import SessionKey
from everturn_activities.checkpoints import Checkpoints
from everturn_activities.file_changes import Change, Done, Record, Work, by_file

PARENT, CHILD, OTHER = (SessionKey("default", name) for name in ("s", "c", "d"))
AFTER_ALL = (99, 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def writes(
    checkpoints: Checkpoints, key: SessionKey, place: tuple[int, int], path: Path, text: str
) -> None:
    call = f"{key.session}{place[0]}-{place[1]}{path.name}"
    record = Record(*place, call, "write_file", str(path.parent), time.time())
    checkpoints.before(key, record, path.name)
    path.write_text(text)
    checkpoints.after(key, call)


def test_files_that_executors_changed_go_back_with_their_parents_step(
    tmp_path: Path, folder: Path
) -> None:
    checkpoints, a, b = Checkpoints(tmp_path), folder / "a.txt", folder / "b.txt"
    a.write_text("old")
    writes(checkpoints, PARENT, (1, 1), a, "by the parent")
    writes(checkpoints, CHILD, (1, 1), b, "an earlier task")
    writes(checkpoints, CHILD, (2, 1), a, "by the executor")
    writes(checkpoints, OTHER, (1, 3), b, "by its executor")
    below = [Work(CHILD, 1, (1, 2)), Work(CHILD, 2, (2, 1)), Work(OTHER, 1, (2, 1))]

    restored = checkpoints.restore(PARENT, (2, 0), AFTER_ALL, (), "r", below)

    assert sorted(restored.files) == ["a.txt", "b.txt"]
    assert (a.read_text(), b.read_text()) == ("by the parent", "an earlier task")
    assert checkpoints.restore(PARENT, (1, 1), AFTER_ALL, (), "q", below).kept == ()
    assert (a.read_text(), b.exists()) == ("old", False)


def test_a_file_that_a_person_changed_between_two_executors_is_kept(
    tmp_path: Path, folder: Path
) -> None:
    checkpoints, a = Checkpoints(tmp_path), folder / "a.txt"
    writes(checkpoints, CHILD, (1, 1), a, "one")
    a.write_text("by a person")
    writes(checkpoints, OTHER, (1, 1), a, "two")
    below = [Work(CHILD, 1, (1, 1)), Work(OTHER, 1, (1, 1))]
    restored = checkpoints.restore(PARENT, (1, 0), AFTER_ALL, (), "r", below)
    assert restored.kept == (("a.txt", "somebody else has changed it since"),)
    assert a.read_text() == "two"


def test_a_call_that_an_executors_worker_left_open_goes_back_too(
    tmp_path: Path, folder: Path
) -> None:
    checkpoints, a = Checkpoints(tmp_path), folder / "a.txt"
    record = Record(1, 1, "call", "write_file", str(folder), time.time())
    checkpoints.before(CHILD, record, "a.txt")
    a.write_text("half")
    below = [Work(CHILD, 1, (1, 1))]
    assert checkpoints.restore(PARENT, (1, 0), AFTER_ALL, (), "r", below).files == ("a.txt",)
    assert not a.exists()


def record(step: int, at: float, until: float, before: str, after: str) -> Record:
    return Record(1, step, "", "", "/", at, changes={"a": Change(before, after)}, until=until)


def test_calls_beside_each_other_are_one_change_that_the_last_to_end_decides() -> None:
    # Two executors run commands at once, and each sees what the other does.
    slow, quick = record(1, 1.0, 9.0, "old", "new"), record(1, 2.0, 3.0, "old", "half")
    later = record(2, 10.0, 11.0, "new", "newer")
    done = [Done((1, 1), CHILD, later), Done((1, 1), OTHER, quick), Done((1, 1), CHILD, slow)]
    ((root, path, changes),) = by_file(done)
    assert (root, path) == ("/", "a")
    assert [(one.before, one.after) for one in changes] == [("old", "new"), ("new", "newer")]
