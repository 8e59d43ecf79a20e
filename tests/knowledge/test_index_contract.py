"""What every index of knowledge does, in a file or in PostgreSQL, for one process or several."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa
from index_places import Place

from everturn_activities.knowledge import (
    Chunk,
    FileMark,
    Indexed,
    KnowledgeIndex,
    digest_of,
    postgres,
)

T = TypeVar("T")
MARK = FileMark(1, 2)
MODEL = "openai/embed"


def piece(text: str, heading: str = "") -> Chunk:
    return Chunk(1, 1, heading, text)


async def in_thread(work: Callable[..., T], *given: Any) -> T:
    return await asyncio.to_thread(work, *given)


async def filled(index: KnowledgeIndex, base: int, files: dict[str, Sequence[Chunk]]) -> None:
    for path, chunks in files.items():
        text = "".join(chunk.heading + chunk.text for chunk in chunks)
        await in_thread(index.put, base, path, MARK, text, chunks)


async def paths(index: KnowledgeIndex, query: str, *bases: int) -> list[str]:
    found = await in_thread(index.by_words, bases or (1,), query, 10)
    known = await in_thread(index.chunks, found)
    return [known[id_][1] for id_ in found]


async def test_two_processes_that_put_one_file_at_once_leave_its_chunks_once(place: Place) -> None:
    async with place.opened() as (_, one), place.opened() as (_, other):
        pieces = [piece("first owl"), piece("second owl")]
        for round_ in range(5):
            given = (1, "a.md", MARK, f"digest {round_}", pieces)
            changed = await asyncio.gather(*(in_thread(each.put, *given) for each in (one, other)))
            assert sorted(changed) == [False, True]

        held = await in_thread(one.indexed, 1, None)
        assert (held.files, held.chunks) == (1, 2)
        assert await paths(other, "owl") == ["a.md", "a.md"]


async def test_processes_that_first_use_an_index_at_once_all_can(place: Place) -> None:
    async with place.opened() as (_, one), place.opened() as (_, other):
        marks = await asyncio.gather(*(in_thread(each.marks, 1) for each in (one, other)))

        assert marks == [{}, {}]


async def test_what_is_claimed_is_anothers_until_it_is_released_or_too_old(place: Place) -> None:
    async with place.opened() as (_, one), place.opened() as (_, other):
        assert await in_thread(one.claim, 1, "reading", "one", 10.0)
        assert not await in_thread(other.claim, 1, "reading", "other", 10.0)
        assert await in_thread(other.claim, 1, "vectors", "other", 10.0)
        assert await in_thread(other.claim, 2, "reading", "other", 10.0)
        place.clock.now += 9
        assert await in_thread(one.claim, 1, "reading", "one", 10.0)
        place.clock.now += 9
        assert not await in_thread(other.claim, 1, "reading", "other", 10.0)
        await in_thread(other.release, 1, "reading", "other")
        assert not await in_thread(other.claim, 1, "reading", "other", 10.0)
        await in_thread(one.release, 1, "reading", "one")
        assert await in_thread(other.claim, 1, "reading", "other", 10.0)
        place.clock.now += 11
        assert await in_thread(one.claim, 1, "reading", "one", 10.0)


@pytest.mark.parametrize(
    "query",
    ["owl & !cat", "'owl' <-> x", "owl:*A", '"owl" NEAR(x)', "owl | (", "OWL", "owls", "Öwl"],
)
async def test_what_would_be_syntax_is_only_words(place: Place, query: str) -> None:
    async with place.opened() as (_, index):
        await filled(index, 1, {"a.md": [piece("The owl sleeps.")]})

        assert await paths(index, query) == ["a.md"]
        assert await paths(index, "'; -- !&|():*<->") == []
        assert await paths(index, "") == []


async def test_words_are_found_by_stems_without_accents_and_inside_of_names(place: Place) -> None:
    async with place.opened() as (_, index):
        files = {
            "src/cache_store.py": [piece("def evict_oldest(cache): ...")],
            "menu.md": [piece("Crème brûlée, served cold. 12ab and 2.5e3 \0 are odd.")],
            "other.md": [piece("Nothing of it.")],
        }
        await filled(index, 1, files)

        assert await paths(index, "evicting") == ["src/cache_store.py"]
        assert await paths(index, "store") == ["src/cache_store.py"]
        assert await paths(index, "creme BRULEE") == ["menu.md"]
        assert await paths(index, "12ab") == ["menu.md"]
        assert await paths(index, "serve") == ["menu.md"]


async def test_rare_words_count_more_than_common_ones_and_headings_more_than_texts(
    place: Place,
) -> None:
    async with place.opened() as (_, index):
        files = {f"f{n}.md": [piece("the plan for the day and the week")] for n in range(8)}
        files["rare.md"] = [piece("an axolotl")]
        files["body.md"] = [piece("wombat", heading="animals")]
        files["head.md"] = [piece("animals", heading="wombat")]
        await filled(index, 1, files)

        assert (await paths(index, "the axolotl of the day"))[0] == "rare.md"
        assert await paths(index, "wombat") == ["head.md", "body.md"]


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_common_words_are_left_out_where_too_many_would_be_ranked(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "RANKED_MAX", 4)
    async with place.opened() as (_, index):
        files = {f"f{n}.md": [piece("the plan")] for n in range(5)}
        files |= {"a.md": [piece("axolotl")], "b.md": [piece("bear")], "c.md": [piece("bear")]}
        await filled(index, 1, files)

        assert sorted(await paths(index, "the bear and the axolotl")) == ["a.md", "b.md", "c.md"]
        assert len(await paths(index, "the")) == 5


async def test_a_base_is_searched_and_dropped_alone(place: Place) -> None:
    async with place.opened() as (_, index):
        await filled(index, 1, {"a.md": [piece("an owl")]})
        await filled(index, 2, {"b.md": [piece("an owl")]})
        assert await paths(index, "owl", 1) == ["a.md"]
        assert sorted(await paths(index, "owl", 1, 2)) == ["a.md", "b.md"]

        await in_thread(index.drop_base, 1)

        assert await paths(index, "owl", 1, 2) == ["b.md"]
        assert await in_thread(index.marks, 1) == {}


async def test_nothing_is_put_into_a_base_that_another_process_has_dropped(place: Place) -> None:
    async with place.opened() as (_, reader), place.opened() as (_, other):
        await filled(reader, 1, {"a.md": [piece("an owl")]})
        await in_thread(other.drop_base, 1)

        assert not await in_thread(reader.put, 1, "b.md", MARK, "digest", [piece("an owl")])
        await in_thread(reader.put_unread, 1, "c.md", FileMark(3, 4, "is no text"))
        await in_thread(reader.drop, 1, ["a.md"])
        await in_thread(reader.note_skipped, 1, ["c.md is no text"], 1)

        assert await in_thread(other.marks, 1) == {}
        assert await in_thread(other.indexed, 1, None) == Indexed()
        await in_thread(other.drop_base, 1)
        await filled(other, 2, {"a.md": [piece("an owl")]})
        assert await paths(reader, "owl", 1, 2) == ["a.md"]


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_what_is_being_put_while_its_base_is_dropped_goes_with_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = "SELECT pg_sleep(0.5), CAST(:base AS int)"
    asleep = sa.text("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
    async with place.opened() as (_, reader), place.opened() as (database, other):
        await in_thread(other.marks, 1)
        monkeypatch.setattr(postgres, "_TOUCH", sa.text(slow))
        putting = asyncio.create_task(filled(reader, 1, {"a.md": [piece("an owl")]}))
        async with asyncio.timeout(20):
            while not await database.read(lambda c: c.execute(asleep).scalar()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        await in_thread(other.drop_base, 1)

        await putting
        assert await in_thread(other.indexed, 1, None) == Indexed()


async def test_vectors_that_one_process_made_are_found_by_another(place: Place) -> None:
    owl, cat = piece("an owl"), piece("a cat")
    async with place.opened() as (_, one), place.opened() as (_, other):
        await filled(one, 1, {"a.md": [owl, cat], "copy.md": [owl]})
        assert await in_thread(other.by_vector, (1,), MODEL, [1.0, 0.0], 5) == []
        missing = await in_thread(other.missing, 1, MODEL, 9)
        assert missing == [(digest_of(owl), "\nan owl"), (digest_of(cat), "\na cat")]

        vectors = [(digest_of(owl), [1.0, 0.0]), (digest_of(cat), [0.0, 1.0])]
        await in_thread(one.put_vectors, MODEL, vectors)

        found = await in_thread(other.by_vector, (1,), MODEL, [0.1, 1.0], 1)
        assert (await in_thread(other.chunks, found))[found[0]][2] == cat
        held = await in_thread(other.indexed, 1, MODEL)
        assert (held.chunks, held.embedded) == (3, 3)
        assert await in_thread(other.missing, 1, MODEL, 9) == []


async def test_files_that_go_or_cannot_be_read_take_their_chunks_along(place: Place) -> None:
    async with place.opened() as (_, index):
        await filled(index, 1, {"a.md": [piece("owl")], "b.md": [piece("owl")]})
        unread = FileMark(3, 4, "is no text")

        await in_thread(index.put_unread, 1, "a.md", unread)
        await in_thread(index.drop, 1, ["b.md"])
        await in_thread(index.note_skipped, 1, ["a.md is no text"], 1)

        assert await paths(index, "owl") == []
        assert await in_thread(index.marks, 1) == {"a.md": unread}
        assert (await in_thread(index.marks, 1))["a.md"].unread == "is no text"
        held = await in_thread(index.indexed, 1, None)
        assert (held.files, held.skipped, held.skipped_count) == (0, ("a.md is no text",), 1)
        assert await in_thread(index.put, 1, "a.md", MARK, "now", [piece("owl")])
        assert await paths(index, "owl") == ["a.md"]
