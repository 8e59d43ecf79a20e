"""How many tokens a text or a message takes, counted without a network."""

import base64
import binascii
import os
import re
import threading
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from everturn.messages import (
    AssistantMessage,
    Document,
    Image,
    PromptInvocation,
    ResourceMention,
    SkillInvocation,
    Text,
    Thinking,
    ToolMessage,
    UserMessage,
)

MESSAGE_TOKENS = 4
"""What the frame of a message takes."""

IMAGE_TOKENS = 1_600
"""An image counts as what the largest one takes after the provider has scaled it down."""

PAGE_TOKENS = 2_000
"""A page of a PDF counts as its text and its picture together."""

EXACT_CHARACTERS_MAX = 200_000
"""Of a longer text this much is counted, and the rest taken to be like it."""

_BUNDLED = {
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
}
"""The file of each encoding: the SHA-1 of the address that tiktoken would load it from."""

_loading = threading.Lock()

USUAL = "o200k_base"
"""The encoding of today's models of OpenAI, which counts for others too."""

_PAGE = re.compile(rb"/Type\s*/Page\b")


def count_text(text: str, model: str) -> int:
    """The tokens of `text`: exact for OpenAI's models, near for others."""
    if not text:
        return 0
    encoding = _encoding(encoding_of(model)[0])
    if encoding is None:
        return estimate(text)
    if len(text) <= EXACT_CHARACTERS_MAX:
        return len(encoding.encode_ordinary(text))
    counted = len(encoding.encode_ordinary(text[:EXACT_CHARACTERS_MAX]))
    return -(-counted * len(text) // EXACT_CHARACTERS_MAX)


@cache
def encoding_of(model: str) -> tuple[str, bool]:
    """The encoding that a model's tokens are counted with, and whether it is the model's own."""
    try:
        from tiktoken.model import encoding_name_for_model

        own = encoding_name_for_model(model.rpartition("/")[2])
    except (ImportError, KeyError):
        return USUAL, False
    # Of texts, as against the marks between messages, this is the same.
    own = USUAL if own == "o200k_harmony" else own
    return (own, True) if own in _BUNDLED else (USUAL, False)


def count_message(message: UserMessage | AssistantMessage | ToolMessage, model: str) -> int:
    """The tokens that `message` takes in a request."""
    if isinstance(message, ToolMessage):
        return sum(MESSAGE_TOKENS + count_text(result.text, model) for result in message.results)
    return MESSAGE_TOKENS + sum(_count_part(part, model) for part in message.parts)


def has_other_encoding(model: str) -> bool:
    """Whether the model's own encoding is known, and is not the usual one."""
    encoding, own = encoding_of(model)
    return own and encoding != USUAL


def estimate(text: str) -> int:
    """Four bytes a token: for where nothing can count."""
    return -(-len(text.encode("utf-8", "replace")) // 4)


def warm() -> None:
    """Load the usual encoding, which takes a few tenths of a second, before it is needed."""
    _encoding(USUAL)


def _count_part(part: Any, model: str) -> int:
    match part:
        case Text() | Thinking() | SkillInvocation():
            return count_text(part.text, model)
        case PromptInvocation() | ResourceMention():
            return count_text(part.sent, model)
        case Image():
            return IMAGE_TOKENS
        case Document():
            return _count_document(part, model)
        case _:
            arguments = part.malformed or orjson.dumps(part.arguments).decode()
            return count_text(part.name, model) + count_text(arguments, model) + MESSAGE_TOKENS


def _count_document(document: Document, model: str) -> int:
    try:
        content = base64.b64decode(document.data)
    except binascii.Error:
        return estimate(document.data)
    if document.media_type.startswith("text/"):
        return count_text(content.decode("utf-8", "replace"), model)
    return PAGE_TOKENS * max(1, len(_PAGE.findall(content)))


@cache
def _encoding(name: str) -> Any:
    """The tiktoken encoding from the files that LiteLLM bundles, or None."""
    spec = find_spec("litellm")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"
    if not (folder / _BUNDLED[name]).is_file():
        return None  # tiktoken would ask the network.
    with _loading:
        before = os.environ.get("TIKTOKEN_CACHE_DIR")
        os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
        try:
            import tiktoken

            return tiktoken.get_encoding(name)
        except (ImportError, OSError, ValueError):
            return None
        finally:
            if before is None:
                del os.environ["TIKTOKEN_CACHE_DIR"]
            else:
                os.environ["TIKTOKEN_CACHE_DIR"] = before
