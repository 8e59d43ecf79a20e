"""read_file, write_file, edit_file and list_files."""

import asyncio
import fcntl
import os
from pathlib import Path

import pytest

from everturn_activities import paths
from everturn_activities.builtin import files


async def test_t11_a_file_of_one_byte_above_the_limit_is_an_error_result(call, folder):
    (folder / "large").write_bytes(b"a" * files.FILE_BYTES_MAX)
    assert not (await call("read_file", {"path": "large"})).failed

    (folder / "large").write_bytes(b"a" * 10485761)
    result = await call("read_file", {"path": "large"})

    assert result.failed
    assert result.text == "large has 10485761 bytes, and the limit is 10485760."


async def test_a_file_is_read_whole_or_by_lines(call, folder):
    (folder / "notes.txt").write_text("one\ntwo\nthree\n")

    assert (await call("read_file", {"path": "./notes.txt"})).text == "one\ntwo\nthree\n"
    part = await call("read_file", {"path": "notes.txt", "first_line": 2, "lines": 1})
    assert part.text == "two\n"
    past = await call("read_file", {"path": "notes.txt", "first_line": 4})
    assert past.failed
    assert past.text == "notes.txt has 3 lines; line 4 is past its end."


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x89PNG\r\n", "picture is not a text file: byte 0 is not valid UTF-8."),
        (b"a\0b", "picture is not a text file: it contains NUL bytes."),
    ],
)
async def test_a_file_that_is_no_text_is_an_error_result(call, folder, content, reason):
    (folder / "picture").write_bytes(content)
    result = await call("read_file", {"path": "picture"})
    assert (result.text, result.failed) == (reason, True)


async def test_what_is_no_file_is_an_error_result_and_never_waited_for(call, folder):
    os.mkfifo(folder / "pipe")
    (folder / "sub").mkdir()

    assert (await call("read_file", {"path": "nothing"})).text == "nothing does not exist."
    assert "sub is a folder" in (await call("read_file", {"path": "sub"})).text
    assert "pipe is a special file" in (await call("read_file", {"path": "pipe"})).text
    assert (
        "pipe is a special file" in (await call("write_file", {"path": "pipe", "content": ""})).text
    )


OUTSIDE = ["../outside.txt", "sub/../../outside.txt", "link", "links/outside.txt", "/etc/passwd"]


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("walking", [False, True], ids=["openat2", "walking"])
async def test_t28_no_path_leads_out_of_the_working_folder(
    call, folder, monkeypatch, path, walking
):
    if walking:
        monkeypatch.setattr(paths, "has_openat2", lambda: False)
    outside = folder.parent / "outside.txt"
    outside.write_text("outside")
    (folder / "sub").mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "links").symlink_to(folder.parent)

    read = await call("read_file", {"path": path})
    written = await call("write_file", {"path": path, "content": "changed"})
    edited = await call("edit_file", {"path": path, "old": "outside", "new": "changed"})

    assert [read.failed, written.failed, edited.failed] == [True, True, True]
    assert "root:" not in read.text
    assert str(folder.parent) not in read.text + written.text + edited.text
    assert outside.read_text() == "outside"
    assert sorted(os.listdir(folder.parent)) == ["folder", "outside.txt"]


async def test_a_link_that_stays_inside_is_read_through_and_never_written_through(call, folder):
    (folder / "real.txt").write_text("real")
    (folder / "link.txt").symlink_to("real.txt")

    assert (await call("read_file", {"path": "link.txt"})).text == "real"
    written = await call("write_file", {"path": "link.txt", "content": "changed"})

    assert written.text == "link.txt is a symbolic link, not a file."
    assert (folder / "real.txt").read_text() == "real"


async def test_a_written_file_is_whole_keeps_its_mode_and_leaves_nothing_beside_it(call, folder):
    script = folder / "run.sh"
    script.write_text("old")
    script.chmod(0o750)

    await call("write_file", {"path": "run.sh", "content": "new"})
    await call("write_file", {"path": "deep/er/new.txt", "content": "half \ud800"})

    assert (script.read_text(), script.stat().st_mode & 0o777) == ("new", 0o750)
    assert (folder / "deep/er/new.txt").read_text() == "half ?"
    assert sorted(os.listdir(folder)) == ["deep", "run.sh"]


PROTECTED = [
    "everturn.toml",
    "agents",
    "agents/default.md",
    "tools/x.py",
    "hooks/x",
    ".git",
    ".git/config",
    ".git/hooks/pre-commit",
    ".mcp.json",
    "./skills//x.md",
]


@pytest.mark.parametrize("path", PROTECTED)
async def test_a_path_that_configures_the_runtime_is_never_changed_even_before_it_exists(
    call, folder, path
):
    written = await call("write_file", {"path": path, "content": "x"})

    assert written.failed
    assert "configures the runtime" in written.text
    assert os.listdir(folder) == []


async def test_a_protected_path_is_protected_in_any_case_where_the_file_system_ignores_case(
    call, folder, monkeypatch
):
    arguments = {"path": "Agents/x.md", "content": "x"}
    monkeypatch.setattr(paths, "_ignores_case", lambda folder: True)
    assert (await call("write_file", arguments)).failed

    monkeypatch.setattr(paths, "_ignores_case", lambda folder: False)
    assert not (await call("write_file", arguments)).failed


async def test_protection_holds_for_a_working_folder_that_is_named_through_a_link(call, folder):
    alias = folder.parent / "alias"
    alias.symlink_to(folder)

    written = await call("write_file", {"path": "tools/x.py", "content": "x"}, working_dir=alias)

    assert written.failed


async def test_b1_an_edit_replaces_the_only_occurrence(call, folder):
    (folder / "config.toml").write_text("[server]\nport = 8080\n")

    result = await call(
        "edit_file", {"path": "config.toml", "old": "port = 8080", "new": "port = 9090"}
    )

    assert result.text == "Edited config.toml: replaced 1 occurrence."
    assert (folder / "config.toml").read_text() == "[server]\nport = 9090\n"


async def test_an_edit_that_is_not_exact_and_unique_changes_nothing(call, folder):
    (folder / "notes.txt").write_text("a a")

    absent = await call("edit_file", {"path": "notes.txt", "old": "b", "new": "c"})
    twice = await call("edit_file", {"path": "notes.txt", "old": "a", "new": "c"})

    assert "does not contain the old text" in absent.text
    assert "contains the old text 2 times" in twice.text
    assert (folder / "notes.txt").read_text() == "a a"

    every = await call(
        "edit_file", {"path": "notes.txt", "old": "a", "new": "c", "replace_all": True}
    )
    assert every.text == "Edited notes.txt: replaced 2 occurrences."
    assert (folder / "notes.txt").read_text() == "c c"


async def test_an_edit_whose_result_was_lost_is_not_done_again(call, folder):
    """After x -> xy the file holds x once more; only the key tells that it was done."""
    (folder / "notes.txt").write_text("x")
    edit = {"path": "notes.txt", "old": "x", "new": "xy"}
    first = await call("edit_file", edit, idempotency_key="1" * 64)
    other = await call("edit_file", edit, idempotency_key="2" * 64)

    again = await call("edit_file", edit, idempotency_key="1" * 64, attempt=2)

    assert again == first == other
    assert (folder / "notes.txt").read_text() == "xyy"


async def test_without_extended_attributes_a_repeated_edit_that_cannot_tell_is_refused(
    call, folder, monkeypatch
):
    monkeypatch.setattr(files, "read_marks", lambda descriptor: None)
    (folder / "notes.txt").write_text("x")
    edit = {"path": "notes.txt", "old": "x", "new": "xy"}
    await call("edit_file", edit)

    again = await call("edit_file", edit, attempt=2)

    assert again.failed
    assert "read the file before editing it again" in again.text
    assert (folder / "notes.txt").read_text() == "xy"


async def test_edits_of_one_file_at_the_same_time_all_take_effect(call, folder):
    (folder / "list.txt").write_text("\n".join(f"<{n}>" for n in range(20)))

    results = await asyncio.gather(
        *(
            call(
                "edit_file",
                {"path": "list.txt", "old": f"<{n}>", "new": f"[{n}]"},
                idempotency_key=f"{n:064}",
            )
            for n in range(20)
        )
    )

    assert [result.failed for result in results] == [False] * 20
    assert (folder / "list.txt").read_text() == "\n".join(f"[{n}]" for n in range(20))


async def test_an_edit_works_on_what_another_left_just_before_it_had_the_lock(
    call, folder, monkeypatch
):
    (folder / "notes.txt").write_text("old a")
    (folder / "new.txt").write_text("new a")
    lock = fcntl.flock

    def lock_late(descriptor: int, operation: int) -> None:
        if (folder / "new.txt").exists():
            (folder / "new.txt").rename(folder / "notes.txt")
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock_late)

    result = await call("edit_file", {"path": "notes.txt", "old": "a", "new": "b"})

    assert not result.failed
    assert (folder / "notes.txt").read_text() == "new b"


async def test_files_are_listed_by_pattern_without_following_links(call, folder: Path):
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/d.txt", ".git/config"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "out").symlink_to("/etc")

    async def listed(pattern: str, limit: int = 500) -> list[str]:
        return (await call("list_files", {"pattern": pattern, "limit": limit})).text.split("\n")

    assert await listed("**") == ["a.py", "out", "src/b.py", "src/d.txt", "src/deep/c.py"]
    assert await listed("**/*.py") == ["a.py", "src/b.py", "src/deep/c.py"]
    assert await listed("*.py") == ["a.py"]
    assert await listed("src/*") == ["src/b.py", "src/d.txt"]
    assert await listed("**", limit=2) == [
        "a.py",
        "out",
        "[... 3 more; give a narrower pattern ...]",
    ]
    assert await listed("*.md") == ["No file matches *.md."]
    assert (await call("list_files", {"pattern": "../*"})).failed


@pytest.mark.parametrize(
    ("pattern", "fitting", "other"),
    [
        ("**", "a a/b a/b/c", ""),
        ("*", "a", "a/b"),
        ("a/**", "a/b a/b/c", "a b/a"),
        ("**/a", "a b/a b/c/a", "b a/b"),
        ("**/*.py", "x.py a/x.py a/b/x.py", "x.pyc x.py/a"),
        ("a/**/b", "a/b a/x/b a/x/y/b a/b/b", "a b a/b/c"),
        ("**/a/**", "a/b x/a/b a/a/a", "a x/a"),
        ("**/**", "a a/b", ""),
        ("[ab]/?", "a/x b/y", "c/x a/xy"),
    ],
)
def test_a_pattern_fits_part_by_part_and_two_stars_fit_any_folders(pattern, fitting, other):
    def fits(path: str) -> bool:
        return files.matches(tuple(pattern.split("/")), tuple(path.split("/")))

    assert [path for path in fitting.split() if not fits(path)] == []
    assert [path for path in other.split() if fits(path)] == []


def test_a_pattern_of_many_stars_takes_no_more_steps_than_parts_times_parts(monkeypatch):
    """Tried one after the other, the places of the stars would be millions."""
    compared = []

    def compare(part: str, pattern: str) -> bool:
        compared.append(part)
        assert len(compared) <= 60 * 41, "The time is not bounded by the lengths."
        return pattern in ("*", part)

    monkeypatch.setattr(files.fnmatch, "fnmatchcase", compare)

    assert not files.matches(("**", "*") * 20 + ("zz",), ("d",) * 60)
    compared.clear()
    assert files.matches(("**", "*") * 20 + ("d",), ("d",) * 60)
