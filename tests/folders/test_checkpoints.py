"""What tools change can be put back, and never over what somebody else has changed since."""

import os
from pathlib import Path

import pytest
from checkpointed import AFTER_ALL, KEY, Folder, settled

from everturn_activities import tree_index
from everturn_activities.blobs.folder import FolderBlobs
from everturn_activities.checkpoints import Checkpoints
from everturn_activities.file_changes import Restored
from everturn_activities.paths import Place
from everturn_activities.tree_index import UNSAVED, look


def test_files_that_tools_wrote_go_back_to_what_they_held(folder: Folder):
    folder.write("a.txt", "old")
    (folder.path / "a.txt").chmod(0o750)
    folder.writes((1, 1), "a.txt", "first")
    folder.writes((1, 2), "a.txt", "second")
    folder.writes((1, 2), "new/b.txt", "made")

    assert folder.restore((1, 2)).files == ("a.txt", "new/b.txt")
    assert (folder.read("a.txt"), folder.read("new/b.txt")) == ("first", None)
    assert folder.restore((1, 1), "again").files == ("a.txt",)
    assert folder.read("a.txt") == "old"
    assert (folder.path / "a.txt").stat().st_mode & 0o777 == 0o750


def test_what_a_command_did_goes_back_too(folder: Folder):
    folder.write("kept.txt", "kept")
    folder.write("changed.txt", "old")
    folder.write("removed.txt", "precious")
    (folder.path / "removed.txt").chmod(0o700)

    def command() -> None:
        folder.write("changed.txt", "new")
        folder.write("made/deep.txt", "made")
        (folder.path / "removed.txt").unlink()

    folder.runs((1, 1), command)
    assert folder.restore((1, 1)).files == ("changed.txt", "made/deep.txt", "removed.txt")
    assert folder.read("changed.txt") == "old"
    assert folder.read("removed.txt") == "precious"
    assert (folder.path / "removed.txt").stat().st_mode & 0o777 == 0o700
    assert folder.read("made/deep.txt") is None


def test_a_file_that_somebody_changed_since_is_kept_and_named(folder: Folder):
    folder.write("a.txt", "old")
    folder.writes((1, 1), "a.txt", "by the tool")
    folder.write("a.txt", "by a person")
    assert folder.restore((1, 1)) == Restored(
        (), (("a.txt", "somebody else has changed it since"),)
    )
    assert folder.read("a.txt") == "by a person"


def test_a_file_that_somebody_changed_between_two_calls_is_kept(folder: Folder):
    folder.write("a.txt", "old")
    folder.writes((1, 1), "a.txt", "first")
    folder.write("a.txt", "by a person")
    folder.writes((1, 2), "a.txt", "second")
    assert folder.restore((1, 1)).kept == (("a.txt", "somebody else has changed it since"),)
    assert folder.restore((1, 2)).files == ("a.txt",)
    assert folder.read("a.txt") == "by a person"


def test_what_was_put_back_is_no_change_of_somebody_else(folder: Folder):
    folder.write("a.txt", "old")
    folder.writes((1, 1), "a.txt", "first")
    folder.writes((2, 1), "a.txt", "rolled back")
    folder.restore((2, 0), "rollback-2")
    folder.writes((3, 1), "a.txt", "third")
    assert folder.restore((1, 1)).files == ("a.txt",)
    assert folder.read("a.txt") == "old"


def test_a_call_that_runs_again_keeps_what_was_there_before_its_first_run(folder: Folder):
    folder.write("a.txt", "old")
    call = folder.begin((1, 1), "write_file", "a.txt")
    folder.write("a.txt", "new")
    # Its worker is killed here, and the next runs it again.
    assert folder.begin((1, 1), "write_file", "a.txt") == call
    folder.write("a.txt", "new")
    Checkpoints(folder.home).after(KEY, call)
    assert folder.restore((1, 1)).files == ("a.txt",)
    assert folder.read("a.txt") == "old"


def test_a_command_whose_end_nobody_saw_goes_back(folder: Folder):
    folder.write("a.txt", "old")
    folder.begin((1, 1), "run_command", None)
    folder.write("a.txt", "new")
    assert Checkpoints(folder.home).restore(KEY, (1, 1), AFTER_ALL, (), "r").files == ("a.txt",)
    assert folder.read("a.txt") == "old"


def test_a_command_whose_end_nobody_saw_is_no_part_of_later_steps(folder: Folder):
    folder.write("a.txt", "old")
    folder.begin((1, 1), "run_command", None)
    folder.write("a.txt", "new")
    folder.writes((1, 2), "a.txt", "written")
    assert folder.restore((1, 2)).files == ("a.txt",)
    assert folder.read("a.txt") == "new"
    assert folder.restore((1, 1), "more").files == ("a.txt",)
    assert folder.read("a.txt") == "old"


def test_calls_of_one_step_beside_each_other_are_one_change(folder: Folder):
    folder.write("a.txt", "old")
    one = folder.begin((1, 1), "run_command", None, "one")
    two = folder.begin((1, 1), "run_command", None, "two")
    folder.write("a.txt", "new")
    folder.checkpoints.after(KEY, one)
    folder.checkpoints.after(KEY, two)
    assert folder.restore((1, 1)).files == ("a.txt",)
    assert folder.read("a.txt") == "old"


def test_a_call_leaves_those_open_that_run_beside_it(folder: Folder):
    folder.write("a.txt", "old")
    beside = folder.begin((1, 1), "run_command", None)
    folder.writes((1, 1), "b.txt", "made")
    folder.write("a.txt", "new")
    folder.checkpoints.after(KEY, beside)
    assert folder.restore((1, 1)).files == ("a.txt", "b.txt")
    assert folder.read("a.txt") == "old"


def test_what_an_earlier_command_did_is_no_part_of_one_that_was_cut_off(folder: Folder):
    folder.write("a.txt", "old")
    folder.write("b.txt", "old")
    folder.runs((1, 1), lambda: folder.write("a.txt", "new"))
    folder.begin((1, 2), "run_command", None)
    folder.write("b.txt", "new")
    later = Checkpoints(folder.home)
    assert later.restore(KEY, (1, 2), AFTER_ALL, (), "r").files == ("b.txt",)
    assert (folder.read("a.txt"), folder.read("b.txt")) == ("new", "old")


def test_only_the_steps_that_are_named_are_put_back(folder: Folder):
    folder.writes((1, 1), "a.txt", "made")
    folder.writes((2, 1), "b.txt", "made")
    assert folder.checkpoints.restore(KEY, (1, 0), (2, 0), (), "r").files == ("a.txt",)
    assert folder.read("b.txt") == "made"


def test_a_file_whose_content_is_kept_no_more_is_left_and_named(folder: Folder):
    folder.write("a.txt", "old")
    folder.writes((1, 1), "a.txt", "new")
    for path in (folder.home / "blobs").glob("*/*"):
        path.unlink()
    assert folder.restore((1, 1)).kept == (("a.txt", "what it held is kept no more"),)
    assert folder.read("a.txt") == "new"


def test_a_restore_that_was_cut_off_goes_on(folder: Folder, monkeypatch: pytest.MonkeyPatch):
    for name in ("a.txt", "b.txt"):
        folder.writes((1, 1), name, "new")
        folder.writes((1, 2), name, "newer")
    put, done = Place.replace, []

    def dies(self: Place, *args: object, **more: object) -> None:
        if done:
            raise KeyboardInterrupt
        done.append(self.path)
        put(self, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Place, "replace", dies)
    with pytest.raises(KeyboardInterrupt):
        folder.restore((1, 2))
    monkeypatch.undo()
    assert folder.restore((1, 2)).files == ("b.txt",)
    assert (folder.read("a.txt"), folder.read("b.txt")) == ("new", "new")
    assert folder.restore((1, 1), "all").files == ("a.txt", "b.txt")
    assert folder.read("a.txt") is None


def test_no_file_is_put_back_that_tools_may_not_change(folder: Folder):
    folder.write("everturn.toml", "old")
    folder.writes((1, 1), "everturn.toml", "new")
    protected = (folder.path / "everturn.toml",)
    restored = folder.checkpoints.restore(KEY, (1, 1), AFTER_ALL, protected, "r")
    assert "configures the runtime" in restored.kept[0][1]
    assert folder.read("everturn.toml") == "new"
    done = [record for record in folder.checkpoints.records(KEY) if record.tool == "restore"]
    assert all(record.changes == {} for record in done)


def test_nothing_outside_of_the_folder_is_kept_or_written(folder: Folder, tmp_path: Path):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.txt").write_text("secret")
    (folder.path / "link.txt").symlink_to(secret)
    (folder.path / "folder").symlink_to(outside)
    tree = look(folder.path, {}, FolderBlobs(folder.home / "blobs"))
    assert (tree.entries, tree.left_out) == ({}, 0)
    folder.runs((1, 1), lambda: folder.write("a.txt", "made"))
    assert all(b"secret" not in path.read_bytes() for path in (folder.home / "blobs").glob("*/*"))

    folder.writes((1, 2), "inner/x.txt", "new")
    (folder.path / "inner" / "x.txt").unlink()
    (folder.path / "inner").rmdir()
    (folder.path / "inner").symlink_to(outside)
    restored = folder.restore((1, 2))
    assert restored.files == ()
    assert (outside / "x.txt").read_text() == "secret"


def test_only_files_that_changed_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("one")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_text("x")
    blobs, read = FolderBlobs(tmp_path.parent / "home" / "blobs"), []
    kept = tree_index._kept
    monkeypatch.setattr(
        tree_index, "_kept", lambda name, *rest: (read.append(name), kept(name, *rest))[1]
    )
    settled()
    first = look(tmp_path, {}, blobs)
    assert sorted(read) == ["a.txt", "b.txt"]
    settled()
    (tmp_path / "b.txt").write_text("two")
    settled()
    second = look(tmp_path, first.entries, blobs)
    assert read[2:] == ["b.txt"]
    assert second.entries["a.txt"] == first.entries["a.txt"]
    # The same size and time, and other content: only the kernel's own time tells.
    times = (tmp_path / "a.txt").stat()
    (tmp_path / "a.txt").write_text("eno")
    os.utime(tmp_path / "a.txt", ns=(times.st_atime_ns, times.st_mtime_ns))
    settled()
    assert look(tmp_path, second.entries, blobs).entries["a.txt"] != first.entries["a.txt"]


def test_a_file_that_changed_a_moment_ago_is_read_again(tmp_path: Path):
    blobs = FolderBlobs(tmp_path.parent / "home" / "blobs")
    path = tmp_path / "a.txt"
    path.write_text("one")
    first = look(tmp_path, {}, blobs)
    marked = first.entries["a.txt"]._replace(content="of another text")
    assert look(tmp_path, {"a.txt": marked}, blobs).entries["a.txt"].content != marked.content


@pytest.mark.parametrize("bound", ["FILE_BYTES_MAX", "BYTES_MAX", "READ_SECONDS"])
def test_what_is_beyond_the_bounds_is_told_and_left_alone(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, bound: str
):
    monkeypatch.setattr(tree_index, bound, 0)
    folder.write("a.txt", "old")
    folder.runs((1, 1), lambda: folder.write("a.txt", "changed"))
    (record,) = folder.checkpoints.records(KEY)
    assert record.left_out == 1
    assert record.changes["a.txt"].before == UNSAVED
    assert folder.restore((1, 1)) == Restored(
        (), (("a.txt", "what it held was too much to be kept"),)
    )
    assert folder.read("a.txt") == "changed"


def test_what_was_not_read_at_first_is_read_by_later_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "a.txt").write_text("one")
    settled()
    blobs = FolderBlobs(tmp_path.parent / "home" / "blobs")
    with monkeypatch.context() as patch:
        patch.setattr(tree_index, "READ_SECONDS", 0)
        first = look(tmp_path, {}, blobs)
    assert first.unsaved == 1
    assert tree_index.look_again(tmp_path, first.entries, blobs) == first
    assert look(tmp_path, first.entries, blobs).unsaved == 0


def test_folders_that_lie_too_deep_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tree_index, "DEPTH_MAX", 1)
    (tmp_path / "one" / "two").mkdir(parents=True)
    (tmp_path / "one" / "two" / "a.txt").write_text("x")
    (tmp_path / "one" / "b.txt").write_text("x")
    tree = look(tmp_path, {}, FolderBlobs(tmp_path.parent / "home" / "blobs"))
    assert ([*tree.entries], tree.left_out) == (["one/b.txt"], 1)


def test_our_own_data_in_the_folder_is_left_out(tmp_path: Path):
    (tmp_path / "a.txt").write_text("x")
    blobs = FolderBlobs(tmp_path / ".everturn" / "blobs")
    for _ in range(2):
        assert [*look(tmp_path, {}, blobs).entries] == ["a.txt"]


def test_too_many_files_are_counted_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tree_index, "FILES_MAX", 2)
    for n in range(5):
        (tmp_path / f"{n}.txt").write_text("x")
    tree = look(tmp_path, {}, FolderBlobs(tmp_path.parent / "home" / "blobs"))
    assert (len(tree.entries), tree.left_out) == (2, 3)


def test_a_session_keeps_so_many_records_and_no_more(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("everturn_activities.checkpoints.RECORDS_KEPT", 3)
    for step in range(1, 7):
        folder.writes((1, step), "a.txt", f"{step}")
        settled()
    assert [record.step for record in folder.checkpoints.records(KEY)] == [3, 4, 5, 6]


def test_contents_that_nothing_names_are_swept_away_after_a_while(folder: Folder):
    folder.write("a.txt", "old")
    folder.writes((1, 1), "a.txt", "new")
    blobs = folder.home / "blobs"
    lost = blobs / "ab" / "abandoned"
    lost.parent.mkdir(exist_ok=True)
    lost.write_text("x")
    for path in blobs.glob("*/*"):
        os.utime(path, (0, 0))
    folder.checkpoints.sweep()
    assert not lost.exists()
    assert folder.restore((1, 1)).files == ("a.txt",)

    folder.writes((2, 1), "a.txt", "newer")
    for path in blobs.glob("*/*"):
        os.utime(path, (0, 0))
    folder.checkpoints.sweep(bytes_kept=0)
    assert folder.checkpoints.records(KEY) == []
    assert list(blobs.glob("*/*")) == []


def test_what_was_kept_a_moment_ago_is_not_swept_away(folder: Folder):
    blobs = FolderBlobs(folder.home / "blobs")
    digest = blobs.put(b"not named yet")
    os.utime(blobs.path(digest), (0, 0))
    assert blobs.put(b"not named yet") == digest
    folder.writes((1, 1), "a.txt", "new")
    folder.checkpoints.sweep()
    assert blobs.get(digest) == b"not named yet"


def test_records_are_forgotten_after_a_month(folder: Folder):
    folder.writes((1, 1), "a.txt", "new")
    for path in (folder.home / "checkpoints").glob("*/*"):
        os.utime(path, (0, 0))
    folder.checkpoints.sweep()
    assert folder.checkpoints.records(KEY) == []
