"""How a model chooses its words: which settings its provider has, and what it calls them."""

from typing import Protocol

from everturn_activities.gateways import OPENAI_URL

ANY = ""
"""An endpoint that speaks OpenAI's protocol and is nobody's that we know: most such servers are
built on llama.cpp, or leave out what they do not know."""

_TOP_K = frozenset(
    {
        *(ANY, "anthropic", "bedrock", "deepinfra", "fireworks_ai", "gemini", "hosted_vllm"),
        *("huggingface", "llamafile", "lm_studio", "ollama", "ollama_chat", "openrouter"),
        *("together_ai", "vertex_ai"),
    }
)
_PENALTIES = {
    **dict.fromkeys((ANY, "llamafile", "lm_studio", "ollama", "ollama_chat"), "repeat_penalty"),
    **dict.fromkeys(
        ("deepinfra", "fireworks_ai", "hosted_vllm", "huggingface", "openrouter", "together_ai"),
        "repetition_penalty",
    ),
}


_OWN_NAMES = ("hosted_vllm", "llamafile", "lm_studio", "ollama", "openrouter")
"""Prefixes of models that say what serves them at an address of one's own."""


def sampling_provider(model: str, url: str) -> str:
    """Whose settings a model has that is served in OpenAI's protocol at `url`."""
    if url == OPENAI_URL:
        return "openai"
    prefix = model.partition("/")[0]
    return prefix if prefix in _OWN_NAMES else ANY


class Sampled(Protocol):
    @property
    def temperature(self) -> float | None: ...
    @property
    def top_p(self) -> float | None: ...
    @property
    def top_k(self) -> int | None: ...
    @property
    def repeat_penalty(self) -> float | None: ...


def wire_sampling(sampled: Sampled, provider: str) -> dict[str, float | int]:
    """What of the settings the provider is sent, by its own names for them."""
    wire: dict[str, float | int] = {}
    if sampled.temperature is not None:
        wire["temperature"] = sampled.temperature
    if sampled.top_p is not None:
        wire["top_p"] = sampled.top_p
    if sampled.top_k is not None and provider in _TOP_K:
        wire["top_k"] = sampled.top_k
    if sampled.repeat_penalty is not None and provider in _PENALTIES:
        wire[_PENALTIES[provider]] = sampled.repeat_penalty
    return wire


def left_out(sampled: Sampled, provider: str) -> list[str]:
    """The settings that the provider has not."""
    missing = []
    if sampled.top_k is not None and provider not in _TOP_K:
        missing.append("top_k")
    if sampled.repeat_penalty is not None and provider not in _PENALTIES:
        missing.append("repeat_penalty")
    return missing
