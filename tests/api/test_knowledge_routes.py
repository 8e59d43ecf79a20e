"""Knowledge over HTTP and in the Client."""

import asyncio
from pathlib import Path

import pytest
from by_hand import Runtime

from everturn.client import Client
from everturn.errors import UsageError
from everturn.views import NewKnowledge


@pytest.fixture
def docs(runtime: Runtime) -> Path:
    folder = runtime.folder.resolve() / "my docs"
    folder.mkdir()
    (folder / "guide.md").write_text("# Errors\nA timeout means a slow disk.")
    (folder / "logo.png").write_bytes(b"\x89PNG\0")
    return folder


async def read(client: Client) -> None:
    async with asyncio.timeout(20):
        while any(view.indexing for view in await client.knowledge()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_folder_is_added_read_queried_and_removed(
    runtime: Runtime, client: Client, docs: Path
) -> None:
    added = await client.add_knowledge(NewKnowledge(folder=str(docs)))
    assert (added.name, added.folder) == ("my-docs", str(docs))
    await read(client)
    (view,) = await client.knowledge()
    assert (view.files, view.chunks, view.skipped) == (1, 1, ("logo.png is no text",))
    assert (view.workspace, view.embedding_model) == (str(runtime.workspace.resolve()), None)

    answer = await client.query_knowledge("timeouts", name="my-docs")
    (passage,) = answer.passages
    assert (passage.path, passage.first, passage.last, passage.heading) == (
        "guide.md",
        1,
        2,
        "Errors",
    )
    again = await client.add_knowledge(NewKnowledge(folder=str(docs)))
    assert again.name == "my-docs"
    await client.remove_knowledge("my-docs")
    assert await client.knowledge() == []


async def test_a_query_asks_one_folder_or_all_for_as_many_passages_as_are_wanted(
    runtime: Runtime, client: Client
) -> None:
    for name in ("one", "two"):
        folder = runtime.folder.resolve() / name
        folder.mkdir()
        for number in range(4):
            (folder / f"{number}.md").write_text(f"# Disk {number}\nA slow disk in {name}.")
        await client.add_knowledge(NewKnowledge(folder=str(folder)))
    await read(client)

    async def found(**asked: object) -> list[str]:
        answer = await client.query_knowledge("disk", **asked)  # type: ignore[arg-type]
        return [passage.text.rstrip(".").split()[-1] for passage in answer.passages]

    assert await found(name="one", limit=9) == ["one"] * 4
    assert sorted(await found(limit=9)) == ["one"] * 4 + ["two"] * 4
    assert len(await found()) == 5
    assert await found(name="two", limit=1) == ["two"]


async def test_a_folder_without_a_name_that_could_be_used_is_given_one(
    runtime: Runtime, client: Client
) -> None:
    folder = runtime.folder.resolve() / "..資料.."
    folder.mkdir()
    with pytest.raises(UsageError, match=r"has no name that could be used; send 'name'"):
        await client.add_knowledge(NewKnowledge(folder=str(folder)))
    assert (
        await client.add_knowledge(NewKnowledge(folder=str(folder), name="data"))
    ).name == "data"


async def test_what_cannot_be_is_one_sentence(client: Client, docs: Path) -> None:
    for folder in ("docs", str(docs / "nowhere")):
        with pytest.raises(UsageError, match=r"Field 'folder' is .*by its absolute path"):
            await client.add_knowledge(NewKnowledge(folder=folder))
    with pytest.raises(UsageError, match="name of knowledge 'a b' is not possible"):
        await client.add_knowledge(NewKnowledge(name="a b", folder=str(docs)))
    with pytest.raises(UsageError, match="query is empty"):
        await client.query_knowledge(" ")
    with pytest.raises(UsageError, match="No folder of knowledge was added"):
        await client.query_knowledge("x")
    with pytest.raises(UsageError, match="has no knowledge 'docs'"):
        await client.remove_knowledge("docs")
