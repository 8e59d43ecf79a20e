"""A fork's own folder holds what its origin's held behind the step at which it begins."""

from pathlib import Path

import pytest
from test_changes_of_executors import AFTER_ALL, CHILD, PARENT, writes

from everturn_activities.checkpoints import EVERY, Checkpoints
from everturn_activities.file_changes import Restored, Work


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Checkpoints, Path, Path]:
    source, target = tmp_path / "work", tmp_path / "fork"
    for folder in (source, target):
        (folder / "src").mkdir(parents=True)
    return Checkpoints(tmp_path / "home"), source, target


def copied(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file():
            (target / path.relative_to(source)).write_text(path.read_text())


def test_files_are_as_they_were_behind_the_step(folders: tuple[Checkpoints, Path, Path]) -> None:
    checkpoints, source, target = folders
    a, b, c = source / "a.txt", source / "src" / "b.txt", source / "c.txt"
    a.write_text("old")
    writes(checkpoints, PARENT, (1, 1), a, "first")
    writes(checkpoints, PARENT, (1, 2), b, "made")
    writes(checkpoints, CHILD, (1, 1), a, "by an executor")
    c.write_text("of a person")
    writes(checkpoints, PARENT, (2, 2), c, "later")
    writes(checkpoints, PARENT, (2, 3), c, "latest")
    b.unlink()
    below = [Work(CHILD, 1, (2, 1))]
    copied(source, target)

    carried = checkpoints.carry(PARENT, (1, EVERY), below, source, target)

    assert carried == Restored(("a.txt", "c.txt", "b.txt"))
    assert (target / "a.txt").read_text() == "first"
    assert (target / "src" / "b.txt").read_text() == "made"
    assert (target / "c.txt").read_text() == "of a person"
    # Who was cut off does it again.
    assert checkpoints.carry(PARENT, (1, EVERY), below, source, target) == Restored()
    assert checkpoints.carry(PARENT, (2, 1), below, source, target).files == ("a.txt",)
    assert (target / "a.txt").read_text() == "by an executor"
    # The origin's own files are left alone.
    assert (a.read_text(), c.read_text()) == ("by an executor", "latest")


def test_what_was_put_back_since_is_as_it_was_at_the_step(
    folders: tuple[Checkpoints, Path, Path],
) -> None:
    checkpoints, source, target = folders
    a = source / "a.txt"
    writes(checkpoints, PARENT, (1, 1), a, "first")
    writes(checkpoints, PARENT, (2, 1), a, "second")
    checkpoints.restore(PARENT, (2, 0), AFTER_ALL, (), "r")
    assert a.read_text() == "first"
    copied(source, target)
    assert checkpoints.carry(PARENT, (2, 1), (), source, target).files == ("a.txt",)
    assert (target / "a.txt").read_text() == "second"


def test_a_file_whose_content_is_gone_is_named_and_others_roots_are_left(
    folders: tuple[Checkpoints, Path, Path], tmp_path: Path
) -> None:
    checkpoints, source, target = folders
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    writes(checkpoints, PARENT, (1, 1), source / "a.txt", "first")
    writes(checkpoints, PARENT, (1, 2), elsewhere / "b.txt", "first")
    for path in (tmp_path / "home" / "blobs").rglob("*"):
        if path.is_file():
            path.unlink()
    carried = checkpoints.carry(PARENT, (1, EVERY), (), source, target)
    assert carried == Restored((), (("a.txt", "what it held is kept no more"),))
