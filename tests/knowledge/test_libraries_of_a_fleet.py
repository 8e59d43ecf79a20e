"""Several processes on one index: each file is read by one of them, and none waits for ever."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from index_places import Place

from everturn_activities.knowledge import Indexed
from everturn_activities.knowledge import library as libraries
from everturn_activities.knowledge.library import Library
from everturn_activities.knowledge.walk import Unread, read
from everturn_activities.store.knowledge_bases import SqlKnowledgeBases

FILES = 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number}.md").write_text(f"The owl of number {number}.")
    return folder


@pytest.fixture
async def two(place: Place) -> AsyncIterator[list[Library]]:
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(2):
            database, index = await stack.enter_async_context(place.opened())
            made.append(Library(SqlKnowledgeBases(database), index, lambda *_: None, place.clock))
            stack.push_async_callback(made[-1].close)
        yield made


async def found(library: Library) -> int:
    answer = await library.query("t", "/w", "owl", 50)
    assert answer.notes == ()
    return len(answer.passages)


async def test_a_file_is_read_by_one_of_several_processes(
    two: list[Library], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: list[str] = []

    def counted(root: Path, path: str) -> str | Unread:
        files.append(path)
        return read(root, path)

    monkeypatch.setattr(libraries, "read", counted)
    for library in two:
        await library.add("t", "/w", "docs", str(folder))

    assert await asyncio.gather(*map(found, two)) == [FILES, FILES]
    assert sorted(files) == sorted(f"{number}.md" for number in range(FILES))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The first file that is read is read until this is called."""
    goes_on, first = threading.Event(), threading.Lock()

    def slow(root: Path, path: str) -> str | Unread:
        if first.acquire(blocking=False):
            goes_on.wait(20)
        return read(root, path)

    monkeypatch.setattr(libraries, "read", slow)
    return goes_on.set


async def test_who_waits_for_anothers_reading_can_be_closed(
    two: list[Library], folder: Path, held: Callable[[], None]
) -> None:
    reader, waiter = two
    base = await reader.add("t", "/w", "docs", str(folder))
    assert base.indexing
    async with asyncio.timeout(20):
        while not await asyncio.to_thread(is_claimed, reader):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await waiter.add("t", "/w", "docs", str(folder))
    (waiting,) = waiter._reading.values()

    waiter._closed = True
    async with asyncio.timeout(5):
        await waiting

    assert (await waiter.list("t", "/w"))[0].problem == (
        "Knowledge 'docs': another process was reading the folder."
    )
    held()
    assert await found(reader) == FILES


def is_claimed(library: Library) -> bool:
    """Whether somebody reads the first folder: nobody else can claim it."""
    if library._index.claim(1, "reading", "a look", 60.0):
        library._index.release(1, "reading", "a look")
        return False
    return True


async def test_who_reads_for_long_claims_it_anew(
    two: list[Library], folder: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, other = two
    taken: list[bool] = []

    def slow(root: Path, path: str) -> str | Unread:
        # Each file takes three quarters of what a claim lasts.
        place.clock.now += 0.75
        taken.append(other._index.claim(1, "reading", "another", 1.0))
        return read(root, path)

    monkeypatch.setattr(libraries, "CLAIM_SECONDS", 1.0)
    monkeypatch.setattr(libraries, "read", slow)
    await reader.add("t", "/w", "docs", str(folder))
    assert await found(reader) == FILES
    assert taken == [False] * FILES


async def test_a_folder_that_is_removed_while_another_process_reads_it_stays_removed(
    two: list[Library], folder: Path, held: Callable[[], None]
) -> None:
    reader, other = two
    await reader.add("t", "/w", "docs", str(folder))
    (reading,) = reader._reading.values()
    async with asyncio.timeout(20):
        while not await asyncio.to_thread(is_claimed, reader):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    await other.remove("t", "/w", "docs")
    held()
    await reading

    assert await asyncio.to_thread(other._index.indexed, 1, None) == Indexed()
    await other.add("t", "/w", "docs", str(folder))
    assert await found(reader) == FILES
