"""Folders that are searched: listed in the context, and read by a tool."""

import json
from typing import Any

import pytest
from harness import Bench, calls, says
from plays import Play, play, scripted_endpoint, tools_of

from everturn.memory import MemoryPlace

DOCS = {
    "docs/guide.md": "# Setup\nInstall with uv.\n\n# Errors\nA timeout means a slow disk.\n",
    "docs/cars.md": "The automobile stands in the garage.\n",
}
ASKS = [calls("knowledge_query", query="what does a timeout mean?"), says("A slow disk.")]


async def added(made: Bench, **files: str) -> None:
    """A workspace with the folder `docs`, which is searched from now on."""
    for name, text in {**DOCS, **files}.items():
        path = made.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    library = made.runtime.library
    folder, workspace = made.workspace / "docs", str(made.workspace)
    await library.add(made.tenant, workspace, "docs", str(folder))
    # It is read once a query has been answered.
    await library.query(made.tenant, workspace, "anything", 1)


def results_of(played: Play, request: int = -1) -> list[str]:
    return [
        message["content"]
        for message in played.requests[request]["messages"]
        if message["role"] == "tool"
    ]


async def test_K11_indexed_knowledge_is_listed_in_an_entry_without_its_content(
    made: Bench,
) -> None:
    await added(made)
    played = await play(made, "Hello.", replies=[says("Hello.")], profile="kiro")

    context = played.requests[0]["messages"][0]["content"]
    begin, end = "--- CONTEXT ENTRY BEGIN ---\n", "--- CONTEXT ENTRY END ---"
    entries = [part.partition(end)[0] for part in context.split(begin)[1:]]
    (listing,) = [entry for entry in entries if "docs" in entry]
    assert "2 files" in listing
    assert "automobile" not in context
    assert "slow disk" not in context


@pytest.mark.parametrize("profile", ["eggent", "default"])
async def test_E8_knowledge_query_gives_passages_with_their_file_and_lines(
    made: Bench, profile: str
) -> None:
    await added(made)
    played = await play(made, "What does a timeout mean?", replies=ASKS, profile=profile)

    assert "knowledge_query" in tools_of(played.requests[0])
    (found,) = results_of(played)
    assert found.startswith("docs/guide.md lines 4-5 under Errors\n# Errors\nA timeout means")


async def test_E8_without_any_folder_the_tool_is_there_and_says_how_one_is_added(
    made: Bench,
) -> None:
    played = await play(made, "What does a timeout mean?", replies=ASKS, profile="eggent")

    assert "knowledge_query" in tools_of(played.requests[0])
    assert "everturn knowledge add FOLDER" in results_of(played)[0]


async def test_E6_two_projects_have_memories_and_knowledge_of_their_own(made: Bench) -> None:
    await added(made)
    other = str(made.workspace.with_name("other"))
    mine = MemoryPlace(made.tenant, "project", str(made.workspace))
    theirs = MemoryPlace(made.tenant, "project", other)
    await made.runtime.memories.save(mine, "Ours is blue.", "k", None)
    await made.runtime.memories.save(theirs, "Theirs is red.", "k", None)
    await made.runtime.library.add(made.tenant, other, "theirs", str(made.workspace / "tools"))
    looks: list[Any] = [
        calls("memory_load"),
        calls("knowledge_query", query="add two numbers", knowledge="theirs"),
        says("Looked."),
    ]
    played = await play(made, "Look.", replies=looks, profile="default")

    remembered, found = results_of(played)
    assert remembered == "project fact 1: Ours is blue."
    assert "There is no knowledge 'theirs'; there is docs." in found
    assert "Ours is blue." in played.system
    assert "Theirs is" not in str(played.requests)


async def test_meanings_are_found_by_an_embedding_model_over_http(made: Bench) -> None:
    """Each piece is embedded once, and each query; the endpoint's log tells."""
    async with scripted_endpoint(meanings={"vehicle": "automobile"}) as endpoint:
        (made.workspace / "everturn.toml").write_text(
            f'[knowledge]\nembedding_model = "hosted_vllm/embed"\nbase_url = "{endpoint.url}"\n'
        )
        await added(made)
        library, workspace = made.runtime.library, str(made.workspace)
        answer = await library.query(made.tenant, workspace, "vehicle", 1)
        (view,) = await library.list(made.tenant, workspace)
    assert [(found.path, found.text) for found in answer.passages] == [
        ("cars.md", "The automobile stands in the garage.")
    ]
    assert (view.embedded, view.embedding_model) == (3, "hosted_vllm/embed")
    lines = [json.loads(line) for line in endpoint.log.getvalue().splitlines()]
    assert [line["texts"] for line in lines if line["event"] == "embedded"] == [3, 1, 1]
    (row,) = await made.runtime.store.usage(made.tenant, "agent", 0.0)
    assert (row.key, row.embedding_calls, row.input_tokens) == ("(knowledge)", 3, 5)
