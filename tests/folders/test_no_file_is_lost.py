"""Putting files back removes no content that is not kept, and says what it could not do."""

import asyncio
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from checkpointed import AFTER_ALL, KEY, Folder, record_of, settled

from everturn_activities import checkpoints as rules
from everturn_activities import folder_looks, tree_index
from everturn_activities.blobs.folder import FolderBlobs, part_of
from everturn_activities.call_checkpoints import CallCheckpoints
from everturn_activities.checkpoint_records import changes_of
from everturn_activities.checkpoints import Checkpoints
from everturn_activities.file_changes import Restored
from everturn_activities.toolbox import ToolOutcome
from everturn_activities.tree_index import UNSAVED, Entry, Tree, look
from everturn_activities.workspace import load
from everturn_activities.workspaces import Workspaces


def test_commands_beside_each_other_are_all_recorded_at_one_look(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    for n in range(300):
        folder.write(f"{n}.txt", f"{n}")
    looks, began, failed = [], threading.Barrier(6), []

    def counted(*given: object) -> tree_index.Tree:
        looks.append(given)
        return look(*given)  # type: ignore[arg-type]

    def begin(n: int) -> None:
        began.wait()
        try:
            folder.begin((1, 1), "run_command", None, f"c{n}")
        except OSError as error:
            failed.append(error)

    monkeypatch.setattr(tree_index, "look", counted)
    threads = [threading.Thread(target=begin, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(looks) < 6
    folder.write("0.txt", "new")
    for n in range(6):
        folder.checkpoints.after(KEY, f"c{n}")
    assert {record.call for record in folder.checkpoints.records(KEY)} == {
        f"c{n}" for n in range(6)
    }


def test_a_look_is_shared_by_who_asked_before_it_began_and_by_nobody_else(folder: Folder):
    folder.write("a.txt", "old")
    folder.begin((1, 1), "run_command", None, "one")
    folder.write("a.txt", "by a person")
    folder.begin((1, 2), "run_command", None, "two")
    folder.write("a.txt", "by a command")
    folder.checkpoints.after(KEY, "two")
    assert folder.restore((1, 2)).files == ("a.txt",)
    assert folder.read("a.txt") == "by a person"


def test_a_file_whose_content_is_not_kept_is_not_removed_where_it_was_moved(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    folder.write("src/large.bin", "precious")
    with monkeypatch.context() as patch:
        patch.setattr(tree_index, "READ_SECONDS", 0)
        folder.runs((1, 1), lambda: (folder.path / "src").rename(folder.path / "lib"))
    restored = folder.restore((1, 1))
    assert restored.files == ()
    assert {path for path, _ in restored.kept} == {"src/large.bin", "lib/large.bin"}
    assert folder.read("lib/large.bin") == "precious"


def test_a_large_file_that_a_command_left_is_not_removed(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tree_index, "FILE_BYTES_MAX", 4)
    monkeypatch.setattr(rules, "FILE_BYTES_MAX", 8)
    folder.runs((1, 1), lambda: folder.write("large.bin", "made by a command"))
    assert folder.restore((1, 1)).kept == (
        ("large.bin", "what a tool left in it was too much to be kept"),
    )
    folder.write("large.bin", "and changed by a person")
    assert folder.restore((1, 1), "again").files == ()
    assert folder.read("large.bin") == "and changed by a person"


def test_a_large_file_that_two_commands_changed_is_told_and_left(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tree_index, "FILE_BYTES_MAX", 8)
    folder.write("a.txt", "old")
    folder.runs((1, 1), lambda: folder.write("a.txt", "much too much"))
    folder.write("a.txt", "as much by a person")
    folder.runs((1, 2), lambda: folder.write("a.txt", "new"))
    assert folder.restore((1, 1)).kept == (
        ("a.txt", "what a tool left in it was too much to be kept"),
    )
    assert folder.read("a.txt") == "new"


def test_a_file_that_only_came_into_view_is_none_that_a_command_made(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tree_index, "FILES_MAX", 1)
    folder.write("a.txt", "old")
    folder.write("b.txt", "beyond what is looked at")
    settled()
    settled()
    folder.runs((1, 1), lambda: (folder.path / "a.txt").unlink())
    assert folder.restore((1, 1)) == Restored(("a.txt",))
    assert folder.read("b.txt") == "beyond what is looked at"


def test_a_file_whose_name_is_no_text_is_left_alone_under_any_name(folder: Folder):
    bad = os.fsencode(folder.path) + b"/\xff.txt"
    with open(bad, "w") as file:
        file.write("precious")
    folder.runs((1, 1), lambda: os.rename(bad, folder.path / "good.txt"))
    assert folder.restore((1, 1)).files == ()
    assert folder.read("good.txt") == "precious"
    (record,) = folder.checkpoints.records(KEY)
    assert (record.left_out, [*record.changes]) == (1, ["good.txt"])


def test_a_change_of_a_file_that_was_and_is_too_large_is_told(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tree_index, "FILE_BYTES_MAX", 4)
    monkeypatch.setattr(rules, "FILE_BYTES_MAX", 8)
    folder.write("large.bin", "much too large")
    folder.runs((1, 1), lambda: folder.write("large.bin", "as large, and another"))
    assert folder.restore((1, 1)).kept == (("large.bin", "what it held was too much to be kept"),)


def test_files_that_did_not_change_take_no_room_in_a_record(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rules, "CHANGES_MAX", 1)
    for name in ("a.txt", "b.txt", "c.txt"):
        folder.write(name, "written a moment ago")
    folder.runs((1, 1), lambda: (settled(), folder.write("c.txt", "new")))
    assert folder.restore((1, 1)) == Restored(("c.txt",))


def test_of_calls_beside_each_other_the_first_is_who_looked_first(folder: Folder):
    folder.write("a.txt", "old")
    late = replace(record_of(folder, "one"), at=time.time() + 60)
    folder.checkpoints.before(KEY, late, None)
    folder.write("a.txt", "by the first")
    folder.checkpoints.before(KEY, record_of(folder, "two"), None)
    folder.write("a.txt", "by both")
    folder.checkpoints.after(KEY, "one")
    folder.checkpoints.after(KEY, "two")
    assert folder.restore((1, 1)).files == ("a.txt",)
    assert folder.read("a.txt") == "old"


def test_a_file_is_the_same_by_all_of_its_names(folder: Folder):
    folder.write("a.txt", "old")
    folder.writes((1, 1), "./a.txt", "first")
    folder.writes((1, 2), "a.txt", "second")
    assert folder.restore((1, 1)).files == ("a.txt",)
    assert folder.read("a.txt") == "old"


def test_changes_beyond_what_a_record_holds_are_told(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rules, "CHANGES_MAX", 2)

    def command() -> None:
        for n in range(5):
            folder.write(f"{n}.txt", "made")

    folder.runs((1, 1), command)
    restored = folder.restore((1, 1))
    assert restored.files == ("0.txt", "1.txt")
    assert str(restored) == (
        "Put back as they were: 0.txt, 1.txt. Changes of files that commands made beyond the first"
        " 2 of a call are not recorded, and still stand: 3."
    )


def test_it_is_told_where_records_are_kept_no_more(folder: Folder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rules, "RECORDS_KEPT", 2)
    for step in range(1, 5):
        folder.writes((1, step), f"{step}.txt", "made")
        settled()
    note = "What calls did up to step 1.1 is kept no more, and may still stand."
    assert folder.restore((1, 1)).notes == (note,)
    assert folder.restore((1, 2), "again").notes == ()


def test_it_is_told_up_to_which_step_a_sweep_has_forgotten_all(folder: Folder):
    for step in (1, 2):
        folder.writes((1, step), "a.txt", f"{step}")
        settled()
    folder.checkpoints.sweep(bytes_kept=0)
    assert folder.restore((1, 1)) == Restored(
        (), (), ("What calls did up to step 1.2 is kept no more, and may still stand.",)
    )


def test_a_closed_call_leaves_its_record_and_nothing_else(folder: Folder):
    folder.runs((1, 1), lambda: folder.write("a.txt", "made"))
    folder.runs((1, 2), lambda: None)
    (kept,) = (folder.home / "checkpoints").glob("s-*/*")
    assert kept.suffix == ".json"


def test_a_folder_is_written_down_again_only_where_much_has_changed(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    folder.write("a.txt", "old")

    def written() -> int:
        (tree,) = (folder.home / "checkpoints").glob("t-*/tree.json")
        return tree.stat().st_ino

    folder.runs((1, 1), lambda: folder.write("b.txt", "made"))
    first = written()
    folder.runs((1, 2), lambda: folder.write("c.txt", "made"))
    assert written() == first
    monkeypatch.setattr(folder_looks, "DIFFERENCE_CHARACTERS_MAX", 0)
    folder.runs((1, 3), lambda: None)
    assert written() != first


def test_another_worker_reads_only_what_has_changed_since(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    folder.write("a.txt", "old")
    settled()
    folder.runs((1, 1), lambda: None)
    folder.write("b.txt", "new")
    settled()
    read, kept = [], tree_index._kept
    monkeypatch.setattr(
        tree_index, "_kept", lambda name, *rest: (read.append(name), kept(name, *rest))[1]
    )
    Checkpoints(folder.home).before(KEY, record_of(folder, "next"), None)
    assert read == ["b.txt"]


def test_what_the_sandbox_puts_in_a_folder_for_a_moment_is_no_change_of_it(folder: Folder):
    placeholder = folder.path / ".mcp.json"
    placeholder.touch(mode=0o444)
    folder.write("everturn.toml", "")

    def command() -> None:
        placeholder.unlink()
        (folder.path / "everturn.toml").unlink()
        (folder.path / "config").touch(mode=0o444)

    folder.runs((1, 1), command)
    (record,) = folder.checkpoints.records(KEY)
    assert [*record.changes] == ["everturn.toml"]


def test_what_makes_one_tree_into_another_is_all_that_differs():
    entry = Entry("one", 0o644, 1, 2, 3, 4)
    was = Tree({"kept": entry, "changed": entry, "gone": entry}, 1)
    now = Tree({"kept": entry, "changed": entry._replace(size=9), "made": entry}, 2)
    assert tree_index.changed(was, tree_index.difference(was, now)) == now


def test_a_file_that_was_read_only_after_a_call_began_has_not_changed_by_that():
    entry = Entry(tree_index.UNSAVED, 0o644, 1, 2, 3, 4)
    was, now = Tree({"a": entry}), Tree({"a": entry._replace(content="digest")})
    assert list(changes_of(was, now, 0.0)) == []


@pytest.mark.parametrize("differs", ["st_size", "st_mtime_ns", "st_ctime_ns", "st_ino"])
def test_a_file_that_differs_in_one_mark_is_another(differs: str):
    marks: dict[str, Any] = {"st_size": 1, "st_mtime_ns": 2, "st_ctime_ns": 3, "st_ino": 4}
    entry = Entry("digest", 0o644, 1, 2, 3, 4)
    assert entry.is_of(cast(os.stat_result, SimpleNamespace(**marks)))
    assert not entry.is_of(cast(os.stat_result, SimpleNamespace(**{**marks, differs: 9})))


def test_a_changed_file_is_read_though_new_ones_are_no_more(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    blobs = FolderBlobs(folder.home / "blobs")
    folder.write("known.txt", "old")
    known = look(folder.path, {}, blobs)
    settled()
    folder.write("known.txt", "newer")
    folder.write("new.txt", "new")
    monkeypatch.setattr(tree_index, "READ_SECONDS", 0)
    tree = look(folder.path, known.entries, blobs)
    assert tree.entries["known.txt"].content != UNSAVED
    assert tree.entries["new.txt"].content == UNSAVED


def test_a_look_reads_no_more_than_it_may_of_all_files_together(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tree_index, "BYTES_MAX", 5)
    for name in ("a.txt", "b.txt"):
        folder.write(name, "four")
    assert look(folder.path, {}, FolderBlobs(folder.home / "blobs")).unsaved == 1


def test_what_is_no_file_by_the_time_it_is_opened_is_not_read(folder: Folder):
    os.mkfifo(folder.path / "pipe")
    opened = os.open(folder.path, os.O_RDONLY)
    try:
        assert tree_index._kept("pipe", opened, FolderBlobs(folder.home / "blobs")) is None
    finally:
        os.close(opened)


def test_a_folder_that_cannot_be_read_is_counted(folder: Folder, monkeypatch: pytest.MonkeyPatch):
    folder.write("inner/a.txt", "x")
    scandir, seen = os.scandir, []

    def refuses(opened: int) -> Any:
        seen.append(opened)
        if len(seen) > 1:
            raise PermissionError
        return scandir(opened)

    monkeypatch.setattr(os, "scandir", refuses)
    assert look(folder.path, {}, FolderBlobs(folder.home / "blobs")).left_out == 1


def test_threads_write_no_part_of_each_others_files(tmp_path: Path):
    parts: list[Path] = []
    thread = threading.Thread(target=lambda: parts.append(part_of(tmp_path / "a")))
    thread.start()
    thread.join()
    assert part_of(tmp_path / "a") not in parts


def test_content_that_a_power_cut_left_half_written_is_written_again_and_never_put_back(
    folder: Folder,
):
    blobs = FolderBlobs(folder.home / "blobs")
    digest = blobs.put(b"content")
    blobs.path(digest).write_bytes(b"")
    assert blobs.get(digest) is None
    assert blobs.put(b"content") == digest
    assert blobs.get(digest) == b"content"


def test_content_that_was_swept_away_is_kept_anew_before_the_next_command(folder: Folder):
    folder.write("a.txt", "old")
    settled()
    folder.runs((1, 1), lambda: folder.write("made.txt", "x"))
    # Only this process remembers what a person wrote meanwhile.
    folder.write("b.txt", "by a person")
    settled()
    folder.runs((1, 2), lambda: None)
    for path in (folder.home / "blobs").glob("*/*"):
        os.utime(path, (0, 0))
    os.utime(folder.home / "checkpoints" / "swept", (0, 0))
    Checkpoints(folder.home).before(KEY, record_of(folder, "elsewhere"), "c.txt")

    def command() -> None:
        folder.write("a.txt", "by a command")
        folder.write("b.txt", "by a command")

    folder.runs((1, 4), command)
    assert folder.restore((1, 4)).files == ("a.txt", "b.txt")
    assert (folder.read("a.txt"), folder.read("b.txt")) == ("old", "by a person")


def test_what_a_folder_held_before_a_call_is_not_swept_away_while_it_runs(folder: Folder):
    folder.write("a.txt", "old")
    folder.runs((1, 1), lambda: folder.write("made.txt", "x"))
    folder.write("b.txt", "by a person")
    settled()
    folder.begin((1, 2), "run_command", None, "long")
    for path in (folder.home / "blobs").glob("*/*"):
        os.utime(path, (0, 0))
    folder.checkpoints.sweep()
    folder.write("b.txt", "by a command")
    folder.checkpoints.after(KEY, "long")
    assert folder.restore((1, 2)).files == ("b.txt",)
    assert folder.read("b.txt") == "by a person"


def test_a_call_whose_worker_died_as_it_began_is_compared_with_what_it_found_itself(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    folder.write("a.txt", "old")
    with monkeypatch.context() as patch:
        patch.setattr(rules, "write_whole", lambda *given: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            folder.begin((1, 1), "run_command", None, "call")
    folder.write("a.txt", "by a person")
    settled()
    Checkpoints(folder.home).before(KEY, record_of(folder, "call"), None)
    folder.write("a.txt", "by a command")
    later = Checkpoints(folder.home)
    assert later.restore(KEY, (1, 1), AFTER_ALL, (), "r").files == ("a.txt",)
    assert folder.read("a.txt") == "by a person"


def test_a_worker_does_not_take_what_another_wrote_of_a_folder_for_its_own(folder: Folder):
    folder.write("a.txt", "old")
    folder.runs((1, 1), lambda: folder.write("made.txt", "x"))
    folder.write("b.txt", "by a person, who removes it again")
    settled()
    # Another worker writes down the folder as it is now; this one still has its own writing.
    elsewhere = Checkpoints(folder.home)
    elsewhere.before(KEY, record_of(folder, "elsewhere", (1, 2)), None)
    elsewhere.after(KEY, "elsewhere")
    folder.write("a.txt", "by a person")
    (folder.path / "b.txt").unlink()
    settled()
    folder.begin((1, 3), "run_command", None, "here")
    folder.write("a.txt", "by a command")
    Checkpoints(folder.home).after(KEY, "here")
    assert folder.restore((1, 3)).files == ("a.txt",)
    assert (folder.read("a.txt"), folder.read("b.txt")) == ("by a person", None)


def test_a_command_that_runs_again_after_its_end_was_seen_is_recorded_again(folder: Folder):
    folder.write("a.txt", "old")
    folder.begin((1, 1), "run_command", None, "call")
    folder.write("a.txt", "half")
    folder.checkpoints.after(KEY, "call")
    folder.begin((1, 1), "run_command", None, "call")
    folder.write("a.txt", "whole")
    folder.checkpoints.after(KEY, "call")
    assert folder.restore((1, 1)).files == ("a.txt",)
    assert folder.read("a.txt") == "old"


async def test_what_a_person_changes_after_a_command_was_cancelled_is_no_part_of_it(
    folder: Folder,
):
    folder.write("a.txt", "old")
    (folder.path / "everturn.toml").write_text("")
    spec, workspaces = load(folder.path).spec(), Workspaces()
    described = spec.tool("run_command")
    assert described is not None
    context = workspaces.context(spec, KEY, 1, 1, 0, 1)

    async def command() -> ToolOutcome:
        folder.write("b.txt", "by the command")
        await asyncio.Event().wait()
        raise AssertionError

    checkpoints = CallCheckpoints(folder.checkpoints)

    async def of_a_workspace() -> ToolOutcome:
        folder.write("c.txt", "by a tool that has only the name of ours")
        return ToolOutcome("done", failed=False)

    theirs = described.model_copy(update={"source": "workspace"})
    await checkpoints.around(context, theirs, {}, of_a_workspace())
    assert folder.checkpoints.records(KEY) == []

    around = checkpoints.around(context, described, {}, command())
    call = asyncio.ensure_future(around)
    while folder.read("b.txt") is None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    while not folder.checkpoints.records(KEY):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    folder.write("a.txt", "by a person")
    assert folder.restore((1, 1)).files == ("b.txt",)
    assert folder.read("a.txt") == "by a person"
