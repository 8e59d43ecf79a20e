"""Embeddings as calls of a model: governed, paid for once, tried again; over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from model_servers import Endpoint, answer_json, raw_server, scripted_endpoint

from everturn.budgets import Budget
from everturn.errors import ModelRefused, ModelUnavailable
from everturn_activities.gateways import Usage
from everturn_activities.gateways.choose import Gateways
from everturn_activities.governor.limits import Limits, ProviderLimits
from everturn_activities.governor.memory import MemoryGovernor
from everturn_activities.governor.quick import QuickGovernor
from everturn_activities.knowledge.embedding import Embedders, ModelEmbedder
from everturn_activities.knowledge.library import Library
from everturn_activities.knowledge.sqlite import SqliteIndex
from everturn_activities.store.database import SqliteDatabase
from everturn_activities.store.embeddings import SqlEmbeddings
from everturn_activities.store.knowledge_bases import SqlKnowledgeBases
from everturn_activities.store.sql import SqlStore
from everturn_activities.vault import Vault


def price(model: str, usage: Usage) -> float:
    return usage.input_tokens / 1_000


@dataclass
class Desk:
    """A workspace that embeds, and all its calls go through."""

    workspace: Path
    embedders: Embedders
    governor: QuickGovernor
    store: SqlStore
    library: Library
    vault: Vault

    def embedder(self) -> ModelEmbedder:
        made = self.embedders.of("t", str(self.workspace))
        assert made is not None
        return made

    async def spent(self) -> tuple[int, int, float]:
        rows = await self.store.usage("t", "model", 0.0)
        if not rows:
            return (0, 0, 0.0)
        return (rows[0].embedding_calls, rows[0].input_tokens, rows[0].cost_usd)


@asynccontextmanager
async def desk(folder: Path, url: str, **limits: Any) -> AsyncIterator[Desk]:
    workspace = folder / "workspace"
    workspace.mkdir()
    (workspace / "everturn.toml").write_text(
        f'[knowledge]\nembedding_model = "hosted_vllm/embed"\nbase_url = "{url}"\n'
    )
    database = SqliteDatabase(folder / "store.db", lambda told: None)
    store = SqlStore(database, lambda message: 1, price)
    given = Limits({"*": ProviderLimits(**limits)})
    governor = QuickGovernor(MemoryGovernor(given), given)
    await governor.look()
    vault, ledger = Vault({}), SqlEmbeddings(database)
    embedders = Embedders(vault, ledger, governor, Gateways({}, vault), len, price)
    library = Library(
        SqlKnowledgeBases(database), SqliteIndex(folder / "knowledge.db"), embedders.of
    )
    yield Desk(workspace, embedders, governor, store, library, vault)
    await library.close()
    await embedders.close()
    await store.close()


@pytest.fixture
def endpoint(tmp_path: Path) -> Any:
    with scripted_endpoint(tmp_path, {"meanings": {"car": "automobile"}}) as made:
        yield made


async def test_a_call_is_priced_by_what_the_endpoint_counted(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    async with desk(tmp_path, endpoint.url) as made:
        car, automobile = await made.embedder().embed(["a car", "a automobile"], 5)
        assert car == automobile
        # The scripted endpoint tells a token a text; our own count would be 17.
        assert await made.spent() == (1, 2, 0.002)
    assert [line["texts"] for line in endpoint.events("embedded")] == [2]


async def test_a_refused_call_is_made_again_when_it_may_be_and_paid_once(tmp_path: Path) -> None:
    with scripted_endpoint(tmp_path, {}, "--per-second", "1") as endpoint:
        async with desk(tmp_path, endpoint.url) as made:
            embedder = made.embedder()
            await asyncio.gather(embedder.embed(["a"], 30), embedder.embed(["b"], 30))
            assert await made.spent() == (2, 2, 0.002)
            # All calls of the key have heard of it.
            (key,) = (await made.governor.state()).keys
            assert key.rate is not None
    assert len(endpoint.events("embedded")) == 2
    assert len(endpoint.events("refused")) >= 1


async def test_a_wrong_key_is_not_tried_again_and_costs_nothing(tmp_path: Path) -> None:
    async def refuse(request: Any, writer: asyncio.StreamWriter) -> None:
        await answer_json(writer, 401, {"error": {"message": "no"}})

    async with (
        raw_server(refuse) as server,
        desk(tmp_path, f"{server.url}/v1") as made,
    ):
        await made.store.put_budget("t", "day", None, Budget(tokens=1))
        for _ in range(2):
            # The second has as much of the budget as the first.
            with pytest.raises(ModelRefused, match="refused the key"):
                await made.embedder().embed(["a"], 30)
        assert len(server.requests) == 2
        assert await made.spent() == (0, 0, 0.0)


async def test_no_text_that_is_embedded_holds_a_known_secret(tmp_path: Path) -> None:
    async def vectors(request: Any, writer: asyncio.StreamWriter) -> None:
        await answer_json(writer, 200, {"data": [{"index": 0, "embedding": [1.0]}]})

    async with (
        raw_server(vectors) as server,
        desk(tmp_path, f"{server.url}/v1") as made,
    ):
        made.vault.scrubber.learn("TOKEN", "canary-0123456789")
        await made.embedder().embed(["It is canary-0123456789."], 5)
    assert server.requests[0].body["input"] == ["It is [secret TOKEN]."]


async def test_an_endpoint_that_fails_is_given_up_after_five_tries_or_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(request: Any, writer: asyncio.StreamWriter) -> None:
        await answer_json(writer, 503, {"error": {"message": "later"}})

    monkeypatch.setattr("everturn_activities.knowledge.embedding.RETRY_SECONDS", 0.01)
    async with (
        raw_server(fail) as server,
        desk(tmp_path, f"{server.url}/v1", breaker_failures=100) as made,
    ):
        with pytest.raises(ModelUnavailable, match="503"):
            await made.embedder().embed(["a"], 30)
        assert len(server.requests) == 5
        with pytest.raises(ModelUnavailable, match="503"):
            await made.embedder().embed(["a"], 0)
        assert len(server.requests) == 6


async def test_a_model_that_fails_all_is_left_alone_by_embeddings_too(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    async with desk(tmp_path, "http://127.0.0.1:9/v1", breaker_failures=1) as made:
        with pytest.raises(ModelUnavailable, match="cannot be reached for model"):
            await made.embedder().embed(["a"], 0)
        with pytest.raises(ModelUnavailable, match="choose another or try again later"):
            await made.embedder().embed(["a"], 0)


async def test_who_cannot_wait_for_the_governor_is_told_what_for(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    async with desk(tmp_path, endpoint.url, requests_per_minute=1) as made:
        await made.embedder().embed(["a"], 1)
        with pytest.raises(ModelUnavailable, match="is at its limit"):
            await made.embedder().embed(["b"], 1)
    assert len(endpoint.events("embedded")) == 1


async def test_a_budget_in_the_way_leaves_the_search_by_words(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    async with desk(tmp_path, endpoint.url) as made:
        await made.store.put_budget("t", "day", None, Budget(tokens=3))
        (made.workspace / "cars.md").write_text("The automobile stands in the garage.")
        await made.library.add("t", str(made.workspace), "docs", str(made.workspace))
        answer = await made.library.query("t", str(made.workspace), "garage", 1)
    assert [found.path for found in answer.passages] == ["cars.md"]
    assert any("too little for the vectors" in note for note in answer.notes)
    assert endpoint.events("embedded") == []


async def test_a_text_that_stands_in_many_files_and_a_query_are_embedded_once(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    async with desk(tmp_path, endpoint.url) as made:
        docs = tmp_path / "docs"
        docs.mkdir()
        for number in range(5):
            (docs / f"{number}.md").write_text("The automobile stands in the garage.")
        await made.library.add("t", str(made.workspace), "docs", str(docs))
        for _ in range(3):
            answer = await made.library.query("t", str(made.workspace), "a car", 5)
            assert len(answer.passages) == 5
        (view,) = await made.library.list("t", str(made.workspace))
        assert (view.chunks, view.embedded) == (5, 5)
        calls, tokens, _ = await made.spent()
    texts = [line["texts"] for line in endpoint.events("embedded")]
    assert texts == [1, 1]
    # The ledger is what the endpoint served.
    assert (calls, tokens) == (len(texts), sum(texts))
