"""Attempts of a tool of files to leave the working folder: each is refused."""

import asyncio
import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from local_servers import SECRET

OUTSIDE = [
    "../secret.txt",
    "a/../../secret.txt",
    "./../secret.txt",
    "{secret}",
    "//{secret}",
    "/proc/self/root{secret}",
    "/proc/self/cwd/../secret.txt",
    "/dev/fd/0",
    "link",
    "chain",
    "up/secret.txt",
    "root{secret}",
    "proc/self/root{secret}",
    "link\0.txt",
    "~/secret.txt",
    "file:{secret}",
]


@pytest.fixture
def links(folder: Path, outside: Path) -> None:
    """What a command, or a checkout of somebody's, may have left in the folder."""
    (folder / "a").mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "chain").symlink_to("link")
    (folder / "up").symlink_to("..")
    (folder / "root").symlink_to("/")
    (folder / "proc").symlink_to("/proc")


@pytest.mark.usefixtures("links")
@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("name", ["read_file", "write_file", "edit_file"])
async def test_no_path_leads_out_of_the_folder(call, folder, outside, path, name):
    arguments = {
        "read_file": {},
        "write_file": {"content": "changed"},
        "edit_file": {"old": SECRET, "new": "changed"},
    }[name]

    result = await call(name, {"path": path.format(secret=outside), **arguments})

    assert result.failed or name == "write_file"
    assert SECRET not in result.text
    assert outside.read_text() == SECRET
    assert not list(outside.parent.glob("secret.txt?*"))


@pytest.mark.usefixtures("links")
@pytest.mark.parametrize(
    "path",
    [
        *("../secret.py", "{secret}", "/proc/self/root{secret}", "link.py", "up/secret.py"),
        *("root{secret}", "proc/self/root{secret}", "a/../../secret.py"),
    ],
)
async def test_no_symbols_are_found_out_of_the_folder(call, folder, outside, path):
    source = outside.with_suffix(".py")
    source.write_text("def canary(): ...\n")
    (folder / "link.py").symlink_to(source)
    (folder / "inside.py").write_text(source.read_text())

    result = await call("code", {"path": path.format(secret=source), "find": "symbols"})

    assert result.failed
    assert "canary" not in result.text
    inside = await call("code", {"path": "inside.py", "find": "symbols"})
    assert "canary" in inside.text


@pytest.mark.usefixtures("links")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("list_files", {"pattern": "../*"}),
        ("list_files", {"pattern": "/**"}),
        ("list_files", {"pattern": "up/**"}),
        ("list_files", {"pattern": "**"}),
        ("glob", {"pattern": "../*"}),
        ("glob", {"pattern": "up/*"}),
        ("glob", {"pattern": "**"}),
        ("grep", {"pattern": "canary"}),
        ("grep", {"pattern": "canary", "files": "up/*"}),
        ("grep", {"pattern": "canary", "files": "../*"}),
        ("code", {"find": "references", "name": "canary", "path": "up"}),
    ],
)
async def test_no_search_leaves_the_folder(call, name, arguments):
    result = await call(name, arguments)

    assert "secret.txt" not in result.text
    assert SECRET not in result.text


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[list[int]]:
    """Two names change places all the time, each time at once."""
    libc = ctypes.CDLL(None, use_errno=True)
    ended = threading.Event()
    swaps: list[int] = []
    paths = (os.fsencode(one), os.fsencode(other))

    def swap() -> None:
        while not ended.is_set():
            # RENAME_EXCHANGE
            swaps.append(libc.syscall(316, -100, paths[0], -100, paths[1], 2))

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield swaps
    finally:
        ended.set()
        thread.join()


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of renameat2 is x86_64's")
@pytest.mark.parametrize("name", ["read_file", "write_file", "edit_file"])
@pytest.mark.parametrize("swapped", ["file", "folder"])
async def test_no_race_with_a_link_leads_out_of_the_folder(call, folder, outside, name, swapped):
    (folder / "d").mkdir()
    (folder / "d/secret.txt").write_text("mine")
    if swapped == "file":
        path, pair = "d/secret.txt", (folder / "d/secret.txt", folder / "d/link")
        pair[1].symlink_to(outside)
    else:
        path, pair = "d/secret.txt", (folder / "d", folder / "e")
        pair[1].symlink_to(outside.parent)
    arguments = {
        "read_file": {},
        "write_file": {"content": "mine"},
        "edit_file": {"old": "mine", "new": "mine"},
    }[name]

    results = []
    with swapping(*pair) as swaps:
        async with asyncio.timeout(30):
            # A quick machine makes a hundred calls before the race has begun.
            while len(results) < 100 or swaps.count(0) < 50:
                results.append(await call(name, {"path": path, **arguments}))

    assert not any(SECRET in result.text for result in results)
    assert outside.read_text() == SECRET


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*a){25}$"])
async def test_no_expression_searches_for_ever(call, folder, monkeypatch, pattern):
    from everturn_activities.builtin import search

    monkeypatch.setattr(search, "SECONDS_MAX", 0.2)
    (folder / "a.txt").write_text("a" * 500 + "!")

    result = await call("grep", {"pattern": pattern})

    assert "matches" in result.text or "took too long" in result.text
