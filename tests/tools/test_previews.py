"""Previews: what a call would do, before anybody is asked and without doing it."""

import os

import pytest

from everturn import tool
from everturn_activities.builtin import builtins
from everturn_activities.toolbox import preview_call
from everturn_activities.workspace import tool_spec


@pytest.fixture
def preview(context):
    async def preview(name, **arguments):
        found = builtins()[name]
        return await preview_call(found, tool_spec(found), arguments, context)

    return preview


async def test_T4_an_edit_is_shown_as_a_diff_and_the_file_is_unchanged(preview, folder):
    (folder / "a.txt").write_text("one\ntwo\nthree")
    before = os.stat(folder / "a.txt")

    shown = await preview("edit_file", path="a.txt", old="three", new="3")

    assert shown == ("--- a.txt\n+++ a.txt\n@@ -1,3 +1,3 @@\n one\n two\n-three\n+3\n")
    assert (folder / "a.txt").read_text() == "one\ntwo\nthree"
    assert os.stat(folder / "a.txt").st_ino == before.st_ino


async def test_T4_a_file_that_is_written_is_shown_as_a_diff_and_not_created(preview, folder):
    (folder / "a.txt").write_text("one\n")

    old = await preview("write_file", path="a.txt", content="two\n")
    new = await preview("write_file", path="d/b.txt", content="x\n")

    assert old == "--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-one\n+two\n"
    assert new == "--- d/b.txt\n+++ d/b.txt\n@@ -0,0 +1 @@\n+x\n"
    assert os.listdir(folder) == ["a.txt"]
    assert (folder / "a.txt").read_text() == "one\n"


@pytest.mark.parametrize(
    ("name", "arguments", "shown"),
    [
        ("edit_file", {"path": "gone", "old": "a", "new": "b"}, "gone does not exist."),
        (
            "edit_file",
            {"path": "a.txt", "old": "x", "new": "b"},
            "a.txt does not contain the old text; read the file and give it exactly.",
        ),
        (
            "write_file",
            {"path": "everturn.toml", "content": "x"},
            "everturn.toml configures the runtime and cannot be changed by tools; ask the person"
            " to change it.",
        ),
        (
            "write_file",
            {"path": "../a", "content": "x"},
            "'../a' has a '..' in it; give a path below the working folder without any.",
        ),
    ],
)
async def test_a_call_that_would_fail_says_so_in_its_preview(
    preview, folder, name, arguments, shown
):
    (folder / "a.txt").write_text("one\n")
    assert await preview(name, **arguments) == f"There is no preview: {shown}"


async def test_T25_a_tool_without_a_preview_has_none_and_is_not_run(context):
    @tool(effect="once")
    def act() -> str:
        raise AssertionError("it ran")

    assert await preview_call(act, tool_spec(act), {}, context) is None
