"""Vectors of texts from an OpenAI-compatible endpoint."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from model_servers import RawServer, Request, answer_json, raw_server, scripted_endpoint

from everturn.errors import ModelRateLimited, ModelRefused, ModelUnavailable, ModelUnreachable
from everturn_activities.gateways.allowances import Allowance
from everturn_activities.gateways.embeddings import EmbeddingsGateway
from everturn_activities.gateways.litellm import LiteLLMGateway

# LiteLLM's own use of pydantic, where a provider tells its usage.
pytestmark = pytest.mark.filterwarnings("ignore:Accessing the 'model_")


@asynccontextmanager
async def answering(
    status: int, body: Any, **headers: str
) -> AsyncIterator[tuple[RawServer, EmbeddingsGateway]]:
    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        await answer_json(writer, status, body, **headers)

    async with raw_server(answer) as server:
        gateway = EmbeddingsGateway(key="sk-our-own-key")
        yield server, gateway
        await gateway.close()


async def test_texts_of_one_meaning_have_vectors_alike(tmp_path: Path) -> None:
    with scripted_endpoint(tmp_path, {"meanings": {"car": "automobile"}}) as endpoint:
        gateway = EmbeddingsGateway(base_url=endpoint.url, key="x")
        made = await gateway.embed("openai/embed", ["a car", "a automobile", "a tree"])
        await gateway.close()
        car, automobile, tree = made.vectors
        assert made.tokens == 3
        assert car == automobile != tree
        assert [line["model"] for line in endpoint.events("embedded")] == ["embed"]


async def test_the_vectors_come_in_the_order_of_the_texts_and_a_long_one_by_its_beginning() -> None:
    rows = [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [1, 0]}]
    async with answering(200, {"data": rows}) as (server, gateway):
        made = await gateway.embed("hosted_vllm/e", ["a", "b" * 9000], f"{server.url}/v1")
    assert made.vectors == [[1.0, 0.0], [0.0, 1.0]]
    assert (made.tokens, made.allowances) == (None, ())
    (request,) = server.requests
    assert request.path == "/v1/embeddings"
    assert [len(text) for text in request.body["input"]] == [1, 8000]


async def test_what_the_provider_told_of_its_limits_comes_with_the_vectors() -> None:
    told = {
        "x_ratelimit_limit_requests": "60",
        "x_ratelimit_remaining_requests": "3",
        "x_ratelimit_reset_requests": "57s",
    }
    async with answering(200, {"data": [{"index": 0, "embedding": [1]}]}, **told) as (
        server,
        gateway,
    ):
        made = await gateway.embed("openai/e", ["a"], f"{server.url}/v1")
    assert made.allowances == (Allowance("calls", 60, 3, 57),)


async def test_our_own_key_goes_to_this_machine_and_to_no_other_address() -> None:
    async with answering(200, {"data": [{"index": 0, "embedding": [1]}]}) as (server, gateway):
        await gateway.embed("openai/e", ["a"], f"{server.url}/v1")
        assert server.requests[0].headers["authorization"] == "Bearer sk-our-own-key"
        elsewhere = EmbeddingsGateway(key="sk-our-own-key")
        url = elsewhere._url("https://models.example.org/v1")
        assert not elsewhere._is_known(url)


@pytest.mark.parametrize(
    ("status", "body", "error", "said"),
    [
        (401, {"error": {"message": "bad key sk-our-own-key"}}, ModelRefused, "refused the key"),
        (429, {"error": {"message": "slow down"}}, ModelRateLimited, "429"),
        (500, "<html>oops</html>", ModelUnavailable, "500"),
        (200, {"data": []}, ModelRefused, "without a vector for each text"),
        (200, {"data": [{"index": 0, "embedding": "x"}]}, ModelRefused, "without a vector"),
    ],
)
async def test_what_goes_wrong_is_one_sentence_without_the_key(
    status: int, body: Any, error: type[Exception], said: str
) -> None:
    async with answering(status, body) as (server, gateway):
        with pytest.raises(error, match=said) as raised:
            await gateway.embed("openai/e", ["a"], f"{server.url}/v1")
    assert "sk-our-own-key" not in str(raised.value)


async def test_an_endpoint_that_is_away_or_silent_is_told() -> None:
    gateway = EmbeddingsGateway(key="x")
    with pytest.raises(ModelUnreachable):
        await gateway.embed("openai/e", ["a"], "http://127.0.0.1:9/v1")

    async def silent(request: Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    async with raw_server(silent) as server:
        with pytest.raises(ModelUnavailable, match=r"within 0.2 s"):
            await gateway.embed("openai/e", ["a"], f"{server.url}/v1", seconds=0.2)
    await gateway.close()


async def test_litellms_vectors_come_from_the_endpoint_with_what_it_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted_endpoint(tmp_path, {"meanings": {"car": "automobile"}}) as endpoint:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", endpoint.url)
        monkeypatch.setenv("HOSTED_VLLM_API_KEY", "x")
        gateway = LiteLLMGateway()
        made = await gateway.embed("hosted_vllm/embed", ["a car", "a automobile", "b"], None, 30)
        await gateway.close()
        car, automobile, other = made.vectors
        assert car == automobile != other
        assert made.tokens == 3
        assert [line["texts"] for line in endpoint.events("embedded")] == [3]


@pytest.mark.parametrize(
    ("status", "body", "error", "said"),
    [
        (401, {"error": {"message": "bad key canary of ours"}}, ModelRefused, "refused the key"),
        (429, {"error": {"message": "slow down"}}, ModelRateLimited, "429"),
        (500, {"error": {"message": "oops"}}, ModelUnavailable, "500"),
        (200, {"object": "list", "data": [], "model": "e"}, ModelRefused, "without a vector"),
    ],
)
async def test_litellms_failures_are_told_alike(
    status: int,
    body: Any,
    error: type[Exception],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        await answer_json(writer, status, body, retry_after="7")

    async with raw_server(answer) as server:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", f"{server.url}/v1")
        monkeypatch.setenv("HOSTED_VLLM_API_KEY", "canary of ours")
        gateway = LiteLLMGateway(secrets=lambda: ("canary of ours",))
        with pytest.raises(error, match=said) as raised:
            await gateway.embed("hosted_vllm/embed", ["a"], None, 30)
        await gateway.close()
    assert "canary of ours" not in str(raised.value)
    assert len(server.requests) == 1
    if isinstance(raised.value, ModelRateLimited):
        assert raised.value.retry_after_seconds == 7


async def test_litellms_endpoint_that_is_away_or_silent_is_told_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOSTED_VLLM_API_KEY", "x")
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", "http://127.0.0.1:9/v1")
    gateway = LiteLLMGateway()
    with pytest.raises(ModelUnreachable):
        await gateway.embed("hosted_vllm/embed", ["a"], None, 30)

    async def silent(request: Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    async with raw_server(silent) as server:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", f"{server.url}/v1")
        with pytest.raises(
            ModelUnavailable, match=r"^hosted_vllm gave no vectors of model .* within 0.3 s\.$"
        ):
            await gateway.embed("hosted_vllm/embed", ["a"], None, 0.3)
    await gateway.close()


async def test_litellm_embeds_with_the_key_that_is_named_a_text_by_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = {
        "x_ratelimit_limit_requests": "60",
        "x_ratelimit_remaining_requests": "3",
        "x_ratelimit_reset_requests": "57s",
    }
    body = {"object": "list", "model": "e", "data": [{"index": 0, "embedding": [1.0]}]}

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        await answer_json(writer, 200, body, **told)

    async with raw_server(answer) as server:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", f"{server.url}/v1")
        monkeypatch.setenv("HOSTED_VLLM_API_KEY", "sk-of-all")
        gateway = LiteLLMGateway(key={"MY_KEY": " sk-mine\n"}.get)
        made = await gateway.embed("hosted_vllm/embed", ["b" * 9000], "MY_KEY", 30)
        with pytest.raises(ModelRefused, match=r"No key for model .*: set NO_KEY\."):
            await gateway.embed("hosted_vllm/embed", ["b"], "NO_KEY", 30)
        await gateway.close()
    (request,) = server.requests
    assert request.headers["authorization"] == "Bearer sk-mine"
    assert [len(text) for text in request.body["input"]] == [8000]
    assert made.allowances == (Allowance("calls", 60, 3, 57),)
