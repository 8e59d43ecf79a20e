"""Vectors of texts from OpenAI-compatible endpoints, straight on httpx."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import orjson

from everturn.errors import ModelRefused, ModelUnavailable
from everturn_activities.gateways import OPENAI_URL, Embedded
from everturn_activities.gateways.accumulate import loads
from everturn_activities.gateways.allowances import allowances
from everturn_activities.gateways.chat_completions import ChatCompletionsGateway, wire_model
from everturn_activities.gateways.failures import Called, from_answer, unreachable

TEXT_CHARACTERS_MAX = 8_000
"""Most models take some thousand tokens of a text; what is longer is told by its beginning."""


class EmbeddingsGateway(ChatCompletionsGateway):
    """The same connections and the same rules for keys as for replies."""

    async def embed(
        self,
        model: str,
        texts: Sequence[str],
        base_url: str | None = None,
        api_key_variable: str | None = None,
        seconds: float = 60.0,
    ) -> Embedded:
        """Raises ModelError."""
        chat = self._url(base_url)
        variable = api_key_variable
        if variable is None and self._is_known(chat):
            variable = self._key_variable
        key = self._key_of(variable)
        called = Called(model, chat.netloc.decode(), variable, lambda: (key,) if key else ())
        if not (key.isascii() and key.isprintable()):
            raise ModelRefused(f"{variable} holds characters that no key has; set it anew.")
        if not key and (api_key_variable or str(chat).startswith(OPENAI_URL)):
            raise ModelRefused(f"No key for model {model} at {called.host}: set {variable}.")
        url = chat.copy_with(path=chat.path.removesuffix("/chat/completions") + "/embeddings")
        given = [text[:TEXT_CHARACTERS_MAX] for text in texts]
        body = orjson.dumps({"model": wire_model(model), "input": given})
        try:
            async with asyncio.timeout(seconds):
                response = await self._opened().send(self._request(url, key, body))
        except TimeoutError:
            raise late(called, seconds) from None
        except (httpx.TransportError, OSError) as error:
            raise unreachable(called, str(error) or type(error).__name__) from None
        try:
            answer = loads(response.content)
        except ValueError:
            answer = response.text
        if response.status_code != 200:
            told = answer.get("error", answer) if isinstance(answer, dict) else answer
            raise from_answer(called, response.status_code, told, response.headers)
        vectors = vectors_of(called, answer, len(texts))
        return Embedded(vectors, tokens_of(answer), allowances(response.headers))


def late(called: Called, seconds: float) -> ModelUnavailable:
    return ModelUnavailable(
        f"{called.host} gave no vectors of model {called.model} within {seconds:g} s."
    )


def tokens_of(answer: Any) -> int | None:
    """What the provider counted, or None."""
    usage = answer.get("usage")
    tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) and tokens >= 0 else None


def vectors_of(called: Called, answer: Any, count: int) -> list[list[float]]:
    """The vectors of an answer; ModelRefused where it has not one for each of `count` texts."""
    try:
        rows = sorted(answer["data"], key=lambda row: row["index"])
        vectors = [[float(value) for value in row["embedding"]] for row in rows]
    except (KeyError, TypeError, ValueError):
        vectors = []
    if len(vectors) != count or not all(vectors):
        raise ModelRefused(
            f"{called.host} answered model {called.model} without a vector for each text;"
            " choose a model that embeds."
        )
    return vectors
