"""Which gateway serves a model, and whether any does."""

import difflib
import hashlib
from collections.abc import Mapping
from urllib.parse import urlsplit

from everturn.agents import Agent, Candidate, NativeTool
from everturn.context.compose import Context
from everturn.errors import UnknownModel
from everturn_activities.gateways import OPENAI_URL, ModelGateway, sampling
from everturn_activities.gateways.discreet import CleanRequests, Discreet
from everturn_activities.gateways.sampling import sampling_provider
from everturn_activities.gateways.wire import GOOGLES_SEARCHES, mixes_tools
from everturn_activities.governor import Route
from everturn_activities.prices import model_entry, providers
from everturn_activities.vault import Vault, secret_names


class Gateways:
    """The gateways of a process, each started when it is first needed.

    `environ` gives `OPENAI_BASE_URL`, `OPENAI_API_KEY` and the keys of other providers; no value
    that `vault` knows is sent in a request, or told in an error.
    """

    def __init__(self, environ: Mapping[str, str], vault: Vault | None = None) -> None:
        self._environ = environ
        self._vault = vault or Vault(environ)
        self._clean = CleanRequests(self._vault.scrubber)
        self._chat_completions: ModelGateway | None = None
        self._litellm: ModelGateway | None = None
        self._routes: dict[tuple[str, str | None, str | None], Route] = {}

    def route(self, candidate: Candidate) -> Route:
        """Where a call goes, and on whose account, as far as that is known beforehand."""
        place = (candidate.model, candidate.base_url, candidate.api_key_variable)
        known = self._routes.get(place)
        if known is None:
            known = self._routes[place] = self._found_route(candidate)
        return known

    def for_context(self, context: Context) -> ModelGateway:
        """Raises UnknownModel where no provider serves the context's model."""
        if context.base_url is None:
            check_model(context.model)
        if context.base_url is not None or provider_of(context.model) == "openai":
            if self._chat_completions is None:
                # Imported late: httpx takes tens of milliseconds and LiteLLM seconds.
                from everturn_activities.gateways.chat_completions import ChatCompletionsGateway

                self._chat_completions = ChatCompletionsGateway(
                    base_url=self._environ.get("OPENAI_BASE_URL"),
                    key=self._vault.variable,
                )
            return self._discreet(self._chat_completions)
        if self._litellm is None:
            from everturn_activities.gateways.litellm import LiteLLMGateway

            self._litellm = LiteLLMGateway(secrets=self._vault.keys, key=self._vault.variable)
        return self._discreet(self._litellm)

    def _discreet(self, gateway: ModelGateway) -> ModelGateway:
        return Discreet(gateway, self._clean) if self._clean.scrubber else gateway

    def left_out(self, agent: Agent) -> str | None:
        """Which of the agent's settings its model's provider has not, in a sentence."""
        notes = (self._without_sampling(agent), _without_search(agent))
        return " ".join(note for note in notes if note is not None) or None

    def _without_sampling(self, agent: Agent) -> str | None:
        if agent.top_k is None and agent.repeat_penalty is None:
            return None
        provider = provider_of(agent.model) or ""
        if agent.base_url is not None or provider == "openai":
            url = agent.base_url or self._environ.get("OPENAI_BASE_URL") or OPENAI_URL
            provider = sampling_provider(agent.model, url.rstrip("/"))
        missing = sampling.left_out(agent, provider)
        if not missing:
            return None
        return (
            f"Model {agent.model} has no {' and no '.join(missing)} at its provider, so agent"
            f" {agent.name!r} works without; take that out of its settings."
        )

    def _found_route(self, asked: Candidate) -> Route:
        provider = provider_of(asked.model) or ""
        host = provider
        names = _account(self._environ, provider)
        if asked.base_url is not None or provider == "openai":
            host = _host(asked.base_url or self._environ.get("OPENAI_BASE_URL") or OPENAI_URL)
            names = ["OPENAI_API_KEY"]
        if asked.api_key_variable is not None:
            names = [asked.api_key_variable]
        keys = [self._environ.get(name, "") for name in names]
        told = "\0".join((host, *keys))
        return Route(hashlib.sha256(told.encode()).hexdigest()[:16], host, asked.model)

    async def close(self) -> None:
        for gateway in (self._chat_completions, self._litellm):
            if gateway is not None:
                await gateway.close()
        self._chat_completions = self._litellm = None


def check_model(model: str) -> None:
    """Raises UnknownModel for a name that no provider serves. Asks no network."""
    if provider_of(model) is not None:
        return
    prefix, slash, name = model.partition("/")
    if slash and name:
        close = difflib.get_close_matches(prefix, providers(), n=1)
        hint = f"; did you mean {close[0]}/{name}" if close else ""
        raise UnknownModel(
            f"No provider is called {prefix!r} (model {model!r}){hint}?"
            if hint
            else f"No provider is called {prefix!r} (model {model!r});"
            " a model's name looks like openai/gpt-5-mini or anthropic/claude-sonnet-4-5."
        )
    raise UnknownModel(
        f"Model {model!r} names no provider; write it like openai/gpt-5-mini,"
        " or set base_url to the endpoint that serves it."
    )


def provider_of(model: str) -> str | None:
    """The provider that serves `model`: its prefix, or the table's for a bare name."""
    prefix, slash, name = model.partition("/")
    if slash:
        return prefix if name and prefix in providers() else None
    entry = model_entry(model)
    provider = str(entry.get("litellm_provider", "")) if entry else ""
    return provider if provider in providers() else None


def native_tools(agent: Agent, model: str) -> tuple[NativeTool, ...]:
    """The tools of the model's provider that the agent may have there."""
    if model in agent.native_tools:
        return agent.native_tools[model]
    return agent.native_tools.get(provider_of(model) or "", ())


def _without_search(agent: Agent) -> str | None:
    if not agent.native_tools or agent.tools == () or mixes_tools(agent.model):
        return None
    lost = [tool for tool in native_tools(agent, agent.model) if tool in GOOGLES_SEARCHES]
    if not lost:
        return None
    return (
        f"Model {agent.model} takes no search of its own beside other tools, so agent"
        f" {agent.name!r} works without {' and '.join(map(str, lost))}; give it no other tools, or"
        " choose a Gemini from 3 on."
    )


def _host(url: str) -> str:
    """The address in `url`, without a person and a password before it."""
    return urlsplit(url).netloc.rpartition("@")[2].lower()


def _account(environ: Mapping[str, str], provider: str) -> list[str]:
    """The variables of secrets whose names begin with the provider's."""
    prefix = provider.upper().removesuffix("_AI")
    return sorted(name for name in secret_names(environ) if name.startswith(prefix))
