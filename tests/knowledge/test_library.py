"""Folders are searched by words and by meanings, and read again when they change."""

import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from index_places import Place

from everturn.errors import ModelUnavailable, UsageError
from everturn.views import KnowledgeView
from everturn_activities.gateways.scripted import Script
from everturn_activities.knowledge import Indexed, KnowledgeIndex
from everturn_activities.knowledge.library import Library
from everturn_activities.store.database import Database
from everturn_activities.store.knowledge_bases import SqlKnowledgeBases

DOCS = {
    "guide.md": "# Setup\nInstall the package with uv.\n\n# Errors\nA timeout means a slow disk.",
    "src/cache.py": "def evict_oldest(cache):\n    '''Drop the entry that was used least.'''\n",
    "cars.md": "The automobile stands in the garage.",
}


class ScriptedEmbedder:
    """The scripted model's vectors, in process."""

    model = "openai/embed"

    def __init__(self) -> None:
        self.script = Script(meanings={"car": "automobile", "vehicle": "automobile"})
        self.asked: list[str] = []
        self.away = False

    async def embed(self, texts: Sequence[str], wait_seconds: float) -> list[list[float]]:
        if self.away:
            raise ModelUnavailable("The endpoint cannot be reached.")
        self.asked += texts
        return [self.script.vector(text) for text in texts]


class Shelf:
    """A library on a folder, whose time passes with each look."""

    def __init__(self, folder: Path, database: Database, index: KnowledgeIndex) -> None:
        self.folder = folder
        self.embedder: ScriptedEmbedder | None = None
        self.now = 0.0
        self.library = Library(
            SqlKnowledgeBases(database),
            index,
            lambda tenant, workspace: self.embedder,
            lambda: self.now,
        )

    async def add(self, name: str = "docs", workspace: str = "/w", tenant: str = "t") -> None:
        await self.library.add(tenant, workspace, name, str(self.folder))

    async def find(self, text: str, workspace: str = "/w", tenant: str = "t") -> list[str]:
        self.now += 10
        answer = await self.library.query(tenant, workspace, text, 5)
        assert answer.notes == ()
        return [f"{found.path}:{found.first}-{found.last}" for found in answer.passages]

    async def view(self) -> KnowledgeView:
        await self.find("anything")
        (view,) = await self.library.list("t", "/w")
        return view


@pytest.fixture
async def shelf(tmp_path: Path, place: Place) -> AsyncIterator[Shelf]:
    folder = tmp_path / "docs"
    for name, text in DOCS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    async with place.opened() as (database, index):
        shelf = Shelf(folder, database, index)
        yield shelf
        await shelf.library.close()


async def test_E8_passages_come_with_their_file_and_lines(shelf: Shelf) -> None:
    await shelf.add()
    assert await shelf.find("why a timeout?") == ["guide.md:4-5"]
    assert (await shelf.find("evict the oldest entry"))[0] == "src/cache.py:1-2"
    assert await shelf.find("installing packages") == ["guide.md:1-3"]
    assert await shelf.find('"; SELECT nonsense * ^ NEAR(') == []


async def test_a_file_that_changes_is_read_again_and_one_that_goes_is_found_no_more(
    shelf: Shelf,
) -> None:
    await shelf.add()
    assert await shelf.find("garage") == ["cars.md:1-1"]
    (shelf.folder / "cars.md").write_text("Nothing is here.\nThe bicycle stands outside.")
    assert await shelf.find("garage") == []
    assert await shelf.find("bicycle") == ["cars.md:1-2"]
    (shelf.folder / "cars.md").unlink()
    assert await shelf.find("bicycle") == []
    view = await shelf.view()
    assert (view.files, view.indexing, view.skipped_count) == (2, False, 0)


async def test_what_is_read_to_its_end_while_it_is_counted_is_not_told_as_read(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, counted = shelf.library._index, shelf.library._index.indexed

    def counted_late(base: int, model: str | None) -> Indexed:
        held = counted(base, model)
        until = time.monotonic() + 20
        while shelf.library._reading and time.monotonic() < until:
            time.sleep(0.01)
        return held

    monkeypatch.setattr(index, "indexed", counted_late)
    view = await shelf.library.add("t", "/w", "docs", str(shelf.folder))
    assert view.indexing


async def test_what_is_left_out_is_told_and_is_found_once_it_can_be_read(shelf: Shelf) -> None:
    (shelf.folder / "logo.bin").write_bytes(b"\0\1\2")
    await shelf.add()
    for _ in range(2):
        view = await shelf.view()
        assert view.skipped == ("logo.bin is no text",)
        assert view.files == 3
    (shelf.folder / "logo.bin").write_text("a drawing of an owl")
    assert await shelf.find("owl") == ["logo.bin:1-1"]
    assert (await shelf.view()).skipped == ()


async def test_meanings_are_found_where_a_model_makes_vectors_and_each_is_paid_for_once(
    shelf: Shelf,
) -> None:
    shelf.embedder = ScriptedEmbedder()
    await shelf.add()
    assert await shelf.find("a car") == ["cars.md:1-1"] + [
        place for place in await shelf.find("a car") if place != "cars.md:1-1"
    ]
    chunks = [text for text in shelf.embedder.asked if text != "a car"]
    assert len(chunks) == 4
    (shelf.folder / "guide.md").write_text(DOCS["guide.md"] + "\n\n# More\nNew words.")
    view = await shelf.view()
    assert (view.chunks, view.embedded, view.embedding_model) == (5, 5, "openai/embed")
    again = [text for text in shelf.embedder.asked if text not in ("a car", "anything")]
    assert len(again) == 5


async def test_words_are_searched_where_the_embedding_model_is_away(shelf: Shelf) -> None:
    shelf.embedder = ScriptedEmbedder()
    await shelf.add()
    await shelf.view()
    shelf.embedder.away = True
    answer = await shelf.library.query("t", "/w", "garage", 5)
    assert [found.path for found in answer.passages] == ["cars.md"]
    assert answer.notes == (
        "Only words were searched, not meanings: The endpoint cannot be reached.",
    )


async def test_E6_a_folder_is_searched_for_its_own_tenant_and_workspace_only(
    shelf: Shelf,
) -> None:
    await shelf.add()
    for workspace, tenant in (("/other", "t"), ("/w", "other")):
        with pytest.raises(UsageError, match="No folder of knowledge was added"):
            await shelf.find("garage", workspace, tenant)
    await shelf.library.remove("t", "/w", "docs")
    with pytest.raises(UsageError, match="everturn knowledge add FOLDER"):
        await shelf.find("garage")


async def test_what_cannot_be_added_or_asked_is_one_sentence(shelf: Shelf, tmp_path: Path) -> None:
    await shelf.add()
    with pytest.raises(UsageError, match=r"is the folder .*; choose another name"):
        await shelf.library.add("t", "/w", "docs", str(tmp_path))
    with pytest.raises(UsageError, match="no knowledge 'nothing'"):
        await shelf.library.remove("t", "/w", "nothing")
    with pytest.raises(UsageError, match="no knowledge 'nothing'; there is docs"):
        await shelf.library.query("t", "/w", "x", 5, "nothing")


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_an_index_that_is_damaged_is_made_again(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "knowledge.db").write_bytes(b"no database at all" * 100)
    await shelf.add()
    assert await shelf.find("garage") == ["cars.md:1-1"]


async def test_a_folder_that_is_gone_is_told_and_keeps_what_was_read(shelf: Shelf) -> None:
    await shelf.add()
    await shelf.view()
    shelf.folder.rename(shelf.folder.with_name("moved"))
    shelf.now += 10
    answer = await shelf.library.query("t", "/w", "garage", 5)
    assert len(answer.passages) == 1
    assert "is not there any more" in answer.notes[0]
