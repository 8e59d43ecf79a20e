"""glob and grep: finding files by their names, and lines by what they say."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def files(folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "src/a.py").write_text("import os\n\ndef one():\n    return 1\n\ndef two(): pass\n")
    (folder / "src/b.py").write_text("ONE = 'one'\n")
    (folder / "c.md").write_text("one and two\n")
    (folder / ".gitignore").write_text("left/\n")
    (folder / "left").mkdir()
    (folder / "left/d.py").write_text("one\n")
    (folder / "e.bin").write_bytes(b"one\0")
    for age, name in enumerate(("src/b.py", "src/a.py", "c.md")):
        os.utime(folder / name, (1000 - age, 1000 - age))


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"pattern": "**/*.py"}, "src/b.py\nsrc/a.py"),
        ({"pattern": "*.md"}, "c.md"),
        ({"pattern": "*.rs"}, "No file matches *.rs."),
        (
            {"pattern": "src/*", "limit": 1},
            "src/b.py\n[... 1 more; give a narrower pattern ...]",
        ),
    ],
)
async def test_files_are_found_by_a_pattern_the_newest_first(call, arguments, text):
    assert (await call("glob", arguments)).text == text


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"pattern": r"def (\w+)"}, "src/a.py:3: def one():\nsrc/a.py:6: def two(): pass"),
        ({"pattern": "one", "files": "*.md"}, "c.md:1: one and two"),
        ({"pattern": "^one", "ignore_case": True}, "c.md:1: one and two\nsrc/b.py:1: ONE = 'one'"),
        (
            {"pattern": "return", "around": 1},
            "src/a.py-3- def one():\nsrc/a.py:4:     return 1\nsrc/a.py-5-",
        ),
        (
            {"pattern": "import|pass", "around": 1},
            "src/a.py:1: import os\nsrc/a.py-2-\n--\nsrc/a.py-5-\nsrc/a.py:6: def two(): pass"
            "\nsrc/a.py-7-",
        ),
        (
            {"pattern": "one", "limit": 1},
            "c.md:1: one and two\n[... there are more than 1; narrow the search ...]",
        ),
        ({"pattern": "nothing"}, "No line of 4 files matches."),
    ],
)
async def test_lines_are_found_by_an_expression(call, arguments, text):
    found = (await call("grep", arguments)).text
    assert "\n".join(line.rstrip() for line in found.splitlines()) == text


async def test_what_is_no_expression_is_told(call):
    result = await call("grep", {"pattern": "("})

    assert result.failed
    assert result.text.startswith("'(' is no regular expression: ")


async def test_a_todo_list_is_answered_as_it_stands(call):
    items = [
        {"text": "read\nit", "state": "done"},
        {"text": "write it", "state": "doing"},
        {"text": "later"},
        {"text": "never", "state": "dropped"},
    ]

    result = await call("todo", {"items": items})
    two = await call("todo", {"items": [{"text": "a", "state": "doing"}] * 2})

    assert result.text == (
        "[x] read it\n[>] write it\n[ ] later\n[-] never\n2 of 4 items are left."
    )
    assert (two.failed, two.text) == (True, "2 items are being done; one at a time is.")
