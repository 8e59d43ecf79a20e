"""Which model makes the vectors of a workspace, and how it is asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everturn_activities.gateways.embeddings import EmbeddingsGateway
    from everturn_activities.workspace import KnowledgeSettings

SECONDS = 60.0


@dataclass(frozen=True)
class ModelEmbedder:
    """`Embedder` by the gateways of a process."""

    embedders: "Embedders"
    model: str
    settings: "KnowledgeSettings"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return await self.embedders.embed(self.model, texts, self.settings)


class Embedders:
    """`environ` gives the keys and addresses of providers, as for replies."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._compatible: EmbeddingsGateway | None = None

    def of(self, workspace: str) -> ModelEmbedder | None:
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
        return ModelEmbedder(self, model, settings)

    async def embed(
        self, model: str, texts: Sequence[str], settings: "KnowledgeSettings"
    ) -> list[list[float]]:
        from everturn_activities.gateways.choose import provider_of, secrets_of

        if settings.base_url is not None or provider_of(model) == "openai":
            return await self._opened().embed(
                model, texts, settings.base_url, settings.api_key_variable, SECONDS
            )
        # LiteLLM takes seconds to import.
        from everturn_activities.gateways.litellm import LiteLLMGateway

        gateway = LiteLLMGateway(lambda: secrets_of(self._environ), self._environ.get)
        return await gateway.embed(model, texts, settings.api_key_variable, SECONDS)

    async def close(self) -> None:
        if self._compatible is not None:
            await self._compatible.close()
            self._compatible = None

    def _opened(self) -> "EmbeddingsGateway":
        if self._compatible is None:
            from everturn_activities.gateways.embeddings import EmbeddingsGateway

            self._compatible = EmbeddingsGateway(
                base_url=self._environ.get("OPENAI_BASE_URL"),
                key=self._environ.get,
                connections_max=8,
            )
        return self._compatible
