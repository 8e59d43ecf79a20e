"""Knowledge on the command line."""

import json

from by_hand import Runtime
from commands import Commands


async def test_a_folder_is_added_listed_queried_and_removed(
    runtime: Runtime, commands: Commands
) -> None:
    docs = runtime.workspace / "docs"
    docs.mkdir()
    (docs / "guide.md").write_text("# Errors\nA timeout means a slow disk.")
    (docs / "logo.png").write_bytes(b"\x89PNG\0")

    added = await commands("knowledge", "add", "docs", "--json")
    assert added.code == 0, added.err
    view = json.loads(added.out)
    assert (view["name"], view["files"], view["indexing"]) == ("docs", 1, False)
    listed = await commands("knowledge", "list")
    assert "docs" in listed.out
    assert listed.err == "Left out of docs: logo.png is no text.\n"
    found = await commands("knowledge", "query", "what is a timeout")
    assert found.out.startswith("docs: guide.md:1-2  Errors\n# Errors\nA timeout")
    nothing = await commands("knowledge", "query", "zebra")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "No passage matches.\n")
    unknown = await commands("knowledge", "query", "timeout", "--name", "other")
    assert unknown.code == 2
    assert "'other'" in unknown.err
    removed = await commands("knowledge", "remove", "docs")
    assert (removed.code, removed.err) == (0, "Knowledge docs is searched no more.\n")
    gone = await commands("knowledge", "query", "timeout")
    assert gone.code == 2
    assert gone.err.count("\n") == 1


async def test_of_many_files_that_are_left_out_the_first_are_named(
    runtime: Runtime, commands: Commands
) -> None:
    docs = runtime.workspace / "docs"
    docs.mkdir()
    for number in range(12):
        (docs / f"logo{number:02}.png").write_bytes(b"\x89PNG\0")
    added = await commands("knowledge", "add", "docs")
    assert added.err.count(" is no text.\n") == 10
    assert added.err.endswith("Left out of docs: 2 more.\n")
