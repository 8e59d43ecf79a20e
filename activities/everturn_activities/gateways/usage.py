"""Tokens of a reply: as the provider tells them, else as we count them."""

from collections.abc import Mapping, Sequence
from typing import Any

from everturn.context.compose import Context
from everturn_activities.gateways import Usage


def usage_from_wire(usage: Mapping[str, Any]) -> Usage:
    """Usage in the Chat Completions format, with the names that other providers use in it."""
    prompt = usage.get("prompt_tokens_details") or {}
    completion = usage.get("completion_tokens_details") or {}
    return Usage(
        input_tokens=_count(usage, "prompt_tokens"),
        output_tokens=_count(usage, "completion_tokens"),
        cached_tokens=_count(prompt, "cached_tokens")
        or _count(usage, "prompt_cache_hit_tokens")
        or _count(usage, "cache_read_input_tokens"),
        cache_write_tokens=_count(prompt, "cache_write_tokens")
        or _count(prompt, "cache_creation_tokens")
        or _count(usage, "cache_creation_input_tokens"),
        reasoning_tokens=_count(completion, "reasoning_tokens"),
    )


def estimated_usage(context: Context, written: Sequence[str]) -> Usage:
    """What the request and the pieces that the model wrote take by our own count."""
    # Loaded here: most endpoints tell their usage, and the encoding takes long to load.
    from everturn_activities.tokens import count_message, count_text

    tools = sum(
        count_text(tool.description + str(tool.parameters), context.model) for tool in context.tools
    )
    asked = count_text(context.system, context.model) + sum(
        count_message(message, context.model) for message in context.messages
    )
    return Usage(
        input_tokens=asked + tools,
        output_tokens=count_text("".join(written), context.model),
        estimated=True,
    )


def _count(usage: Mapping[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) else 0
