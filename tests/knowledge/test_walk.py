"""Which files of a folder are searched."""

import os
from pathlib import Path

import pytest

from everturn_activities.knowledge.walk import FILE_BYTES_MAX, Unread, read, walk


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_what_ignore_rules_name_is_left_out_the_nearest_rule_wins(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            ".gitignore": "*.log\nbuild/\n",
            "a.md": "a",
            "x.log": "log",
            "build/out.md": "built",
            "sub/.gitignore": "!keep.log\n/only-here.md\n",
            "sub/keep.log": "kept",
            "sub/other.log": "log",
            "sub/only-here.md": "x",
            "sub/deeper/only-here.md": "stays",
            "node_modules/p/readme.md": "package",
            ".env": "SECRET=1",
            ".git/config": "git",
        },
    )
    found = walk(tmp_path)
    assert sorted(found.files) == ["a.md", "sub/deeper/only-here.md", "sub/keep.log"]
    assert found.skipped == []


def test_what_cannot_be_searched_is_told_by_its_name(tmp_path: Path) -> None:
    write(tmp_path, {"folder/a.md": "a", "outside.txt": "x"})
    (tmp_path / "big.txt").write_bytes(b"x" * (FILE_BYTES_MAX + 1))
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "link.md").symlink_to(tmp_path / "outside.txt")
    os.mkfifo(tmp_path / "pipe")
    found = walk(tmp_path)
    assert sorted(found.files) == ["folder/a.md", "outside.txt"]
    assert found.skipped == [
        "big.txt has 2,097,153 bytes, and the limit is 2,097,152",
        "link.md is a link or no file",
        "loop is a link or no file",
        "pipe is a link or no file",
    ]


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"a\0b", "is no text"), (b"ab\xff", "is not valid UTF-8 at byte 3")],
)
def test_what_is_no_text_is_not_read(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "file").write_bytes(content)
    assert read(tmp_path, "file") == Unread(why)
    assert read(tmp_path, "gone") == Unread("does not exist")
