"""What models cost and how much they can read, from the table that LiteLLM bundles."""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from everturn_activities.gateways import Usage

Entry = dict[str, Any]

_FACTS = (
    *("litellm_provider", "mode", "max_input_tokens", "max_tokens"),
    "supports_function_calling",
)
_ABOVE = re.compile(r"input_cost_per_token_above_(\d+)k_tokens")


def cost_usd(model: str, usage: Usage) -> float | None:
    """What a reply of `model` cost, or None where the table has no price.

    Cached tokens and tokens written to the cache have their own prices; where the table
    has none for them they cost what other input does.
    """
    entry = model_entry(model)
    if entry is None or entry.get("input_cost_per_token") is None:
        return None
    suffix = _tier(entry, usage.input_tokens)

    def price(name: str, otherwise: float = 0.0) -> float:
        value = entry.get(name + suffix, entry.get(name))
        return otherwise if value is None else float(value)

    fresh = price("input_cost_per_token")
    plain = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
    return (
        max(plain, 0) * fresh
        + usage.cached_tokens * price("cache_read_input_token_cost", fresh)
        + usage.cache_write_tokens * price("cache_creation_input_token_cost", fresh)
        + usage.output_tokens * price("output_cost_per_token")
    )


def window(model: str) -> int | None:
    """How many tokens `model` can read, or None where the table does not know."""
    entry = model_entry(model)
    if entry is None:
        return None
    # The table holds words instead of numbers in places.
    tokens = entry.get("max_input_tokens") or entry.get("max_tokens")
    return tokens if isinstance(tokens, int) else None


def calls_tools(model: str) -> bool | None:
    """Whether `model` can call tools, or None where the table does not know."""
    known = (model_entry(model) or {}).get("supports_function_calling")
    return known if isinstance(known, bool) else None


def model_entry(model: str) -> Entry | None:
    """The table's row: by the whole name, else by the name without its provider's prefix."""
    table = _table()
    provider, slash, bare = model.partition("/")
    if model in table:
        return table[model]
    entry = table.get(bare) if slash else None
    # A bare name belongs to one provider: another's endpoint may ask another price.
    return entry if entry and str(entry.get("litellm_provider", "")).startswith(provider) else None


@cache
def providers() -> frozenset[str]:
    """The prefixes of model names for which LiteLLM knows how to chat."""
    support = orjson.loads((_litellm() / "provider_endpoints_support_backup.json").read_bytes())
    chatting = {
        name
        for name, provider in support["providers"].items()
        if provider.get("endpoints", {}).get("chat_completions")
    }
    # The table of endpoints lags behind; a provider that has priced chat models serves them.
    priced = {
        str(entry["litellm_provider"])
        for entry in _table().values()
        if entry.get("mode") in ("chat", "responses")
    }
    return frozenset(name for name in chatting | priced if "/" not in name)


@cache
def _table() -> dict[str, Entry]:
    path = _litellm() / "model_prices_and_context_window_backup.json"
    table: dict[str, Entry] = orjson.loads(path.read_bytes())
    table.pop("sample_spec", None)
    return {
        name: {key: value for key, value in entry.items() if _wanted(key)}
        for name, entry in table.items()
    }


def _wanted(key: str) -> bool:
    return key in _FACTS or (
        "token" in key and "cost" in key and not key.endswith(("_batches", "_flex", "_priority"))
    )


def _tier(entry: Entry, input_tokens: int) -> str:
    """The suffix of the dearer prices that long requests pay, or nothing."""
    above = [int(found[1]) for key in entry if (found := _ABOVE.fullmatch(key))]
    reached = [thousands for thousands in above if input_tokens > thousands * 1000]
    return f"_above_{max(reached)}k_tokens" if reached else ""


def _litellm() -> Path:
    """LiteLLM's folder, found without importing it: that takes seconds."""
    spec = find_spec("litellm")
    if spec is None or spec.origin is None:
        raise RuntimeError("The package litellm is not installed; run `pip install litellm`.")
    return Path(spec.origin).parent
