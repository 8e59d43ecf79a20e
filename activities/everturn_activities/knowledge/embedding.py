"""Vectors of a workspace's texts: which model makes them, and each call as any call of a model.

The governor lets it begin, the ledger reserves and settles it, and what time can repair is
tried again. That a text is embedded once is the index's part, which keeps vectors by content.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from everturn.agents import Candidate
from everturn.errors import ModelError, ModelRefused, ModelUnavailable
from everturn_activities import recovery
from everturn_activities.admission import Admitted, Routes, failed, replied
from everturn_activities.gateways import Embedded, Usage
from everturn_activities.governor import ModelCall, Permit, given_up, sentence
from everturn_activities.governor.quick import QuickGovernor
from everturn_activities.store.embeddings import Embedding, Refused
from everturn_activities.vault import Vault

if TYPE_CHECKING:
    from everturn_activities.gateways.embeddings import EmbeddingsGateway
    from everturn_activities.workspace import KnowledgeSettings

SECONDS = 60.0
TRIES_MAX = 5
RETRY_SECONDS = 0.5


class Ledger(Protocol):
    async def begin(self, call: Embedding) -> int | Refused: ...
    async def settle(self, number: int, tokens: int | None, usd: float | None) -> None: ...
    async def refund(self, number: int) -> None: ...


@dataclass(frozen=True)
class ModelEmbedder:
    """`Embedder` of one workspace, by the gateways of a process."""

    embedders: "Embedders"
    tenant: str
    workspace: str
    model: str
    settings: "KnowledgeSettings"

    async def embed(self, texts: Sequence[str], wait_seconds: float) -> list[list[float]]:
        return await self.embedders.embed(self, texts, wait_seconds)


class Embedders:
    """`vault` gives the keys and addresses of providers, as for replies; `count` measures a
    text and `price` what a model takes for it."""

    def __init__(
        self,
        vault: Vault,
        ledger: Ledger,
        governor: QuickGovernor,
        routes: Routes,
        count: Callable[[str], int],
        price: Callable[[str, Usage], float | None],
    ) -> None:
        self._vault = vault
        self._ledger = ledger
        self._governor = governor
        self._routes = routes
        self._count = count
        self._price = price
        self._compatible: EmbeddingsGateway | None = None

    def of(self, tenant: str, workspace: str) -> ModelEmbedder | None:
        """What the workspace's settings name; reads its files. Raises UsageError for a
        workspace that cannot be used, or a model that nobody serves."""
        # Imported late, like all that only some workspaces need.
        from everturn_activities.gateways.choose import check_model
        from everturn_activities.workspace import load

        settings = load(Path(workspace)).settings.knowledge
        model = settings.embedding_model
        if model is None:
            return None
        if settings.base_url is None:
            check_model(model)
        return ModelEmbedder(self, tenant, workspace, model, settings)

    async def embed(
        self, asked: ModelEmbedder, texts: Sequence[str], wait_seconds: float
    ) -> list[list[float]]:
        """A vector for each text. Waits and tries again for `wait_seconds` at most; raises
        ModelError."""
        until = time.monotonic() + wait_seconds
        tokens = await asyncio.to_thread(lambda: sum(map(self._count, texts)))
        name = f"{asked.tenant}/knowledge/{asked.workspace}"
        candidate = Candidate(
            model=asked.model,
            base_url=asked.settings.base_url,
            api_key_variable=asked.settings.api_key_variable,
        )
        call = ModelCall(
            f"{name}/{secrets.token_hex(8)}",
            asked.tenant,
            self._routes.route(candidate),
            tokens,
            name,
        )
        for tried in range(1, TRIES_MAX + 1):
            async with await self._admitted(call, until) as admitted:
                try:
                    return await self._paid(asked, texts, tokens, admitted)
                except ModelError as error:
                    pause = recovery.pause_after(error, RETRY_SECONDS, tried)
                    final = not isinstance(error, ModelUnavailable) or tried == TRIES_MAX
                    if final or time.monotonic() + pause > until:
                        raise
            await asyncio.sleep(pause)
        raise AssertionError

    async def _admitted(self, call: ModelCall, until: float) -> Admitted:
        while True:
            answer = await self._governor.ask(call)
            if isinstance(answer, Permit):
                return Admitted(self._governor, answer)
            if time.monotonic() + answer.seconds > until:
                told = given_up if answer.cause == "open" else sentence
                raise ModelUnavailable(told(call, answer))
            await asyncio.sleep(answer.seconds)

    async def _paid(
        self, asked: ModelEmbedder, texts: Sequence[str], tokens: int, admitted: Admitted
    ) -> list[list[float]]:
        usd = self._price(asked.model, Usage(input_tokens=tokens))
        number = await self._ledger.begin(
            Embedding(asked.tenant, asked.workspace, asked.model, len(texts), tokens, usd)
        )
        if isinstance(number, Refused):
            raise ModelRefused(number.reason)
        try:
            made = await self._asked(asked.model, texts, asked.settings)
        except Exception as error:
            admitted.ending = failed(error)
            await self._ledger.refund(number)
            raise
        took = Usage(input_tokens=tokens if made.tokens is None else made.tokens)
        admitted.ending = replied(took, made.allowances)
        await self._ledger.settle(number, made.tokens, self._price(asked.model, took))
        return made.vectors

    async def _asked(
        self, model: str, texts: Sequence[str], settings: "KnowledgeSettings"
    ) -> Embedded:
        from everturn_activities.gateways.choose import provider_of

        texts = [self._vault.scrubber.scrubbed(text) for text in texts]
        if settings.base_url is not None or provider_of(model) == "openai":
            return await self._opened().embed(
                model, texts, settings.base_url, settings.api_key_variable, SECONDS
            )
        # LiteLLM takes seconds to import.
        from everturn_activities.gateways.litellm import LiteLLMGateway

        gateway = LiteLLMGateway(self._vault.keys, self._vault.variable)
        return await gateway.embed(model, texts, settings.api_key_variable, SECONDS)

    async def close(self) -> None:
        if self._compatible is not None:
            await self._compatible.close()
            self._compatible = None

    def _opened(self) -> "EmbeddingsGateway":
        if self._compatible is None:
            from everturn_activities.gateways.embeddings import EmbeddingsGateway

            self._compatible = EmbeddingsGateway(
                base_url=self._vault.environ.get("OPENAI_BASE_URL"),
                key=self._vault.variable,
                connections_max=8,
            )
        return self._compatible
