"""The gateway to every other provider, on LiteLLM."""

import asyncio
import logging
import os
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from typing import Any

import orjson

from everturn.context.compose import Context
from everturn.errors import EverturnError, ModelRefused, UnknownModel
from everturn.messages import AssistantMessage, Thinking
from everturn_activities.gateways import Delta, Embedded, Reply, Usage
from everturn_activities.gateways.accumulate import Accumulator
from everturn_activities.gateways.allowances import allowances
from everturn_activities.gateways.cache_marks import mark
from everturn_activities.gateways.embeddings import TEXT_CHARACTERS_MAX, late, tokens_of, vectors_of
from everturn_activities.gateways.failures import (
    Called,
    cut,
    from_answer,
    stalled,
    unreachable,
)
from everturn_activities.gateways.sampling import wire_sampling
from everturn_activities.gateways.silence import Silence
from everturn_activities.gateways.terminal import Wire
from everturn_activities.gateways.usage import estimated_usage, usage_from_wire
from everturn_activities.gateways.wire import (
    GOOGLES,
    REASONING_FIELDS,
    mixes_tools,
    wire_messages,
    wire_native,
    wire_tool,
)

SLACK_SECONDS = 60.0

_KEY_VARIABLES = {
    "bedrock": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "vertex_ai": "GOOGLE_APPLICATION_CREDENTIALS",
    "huggingface": "HF_TOKEN",
}
_SERVERS_CALL = "srvtoolu_"
"""How Anthropic's ids of calls begin that it makes itself; LiteLLM shows them among ours."""
_PREFIXES = re.compile(r"^((litellm\.)?\w*(Error|Exception)\s*[:-]\s*)+")
# aiohttp names Python objects in its messages, such as " ssl:<ssl.SSLContext object at 0x7f...>".
_OBJECTS = re.compile(r" ?\w*:?<[^<>]* object at 0x[0-9a-f]+>")

_wire: ContextVar[Wire | None] = ContextVar("everturn_wire", default=None)


class LiteLLMGateway:
    """`secrets` are values that must show in no error text. Keys come from the environment,
    where LiteLLM looks for them; `key` gives the one whose variable a context names."""

    def __init__(
        self,
        secrets: Callable[[], tuple[str, ...]] = tuple,
        key: Callable[[str], str | None] = lambda variable: None,
    ) -> None:
        self._secrets = secrets
        self._key = key
        self._used = False

    async def stream(self, context: Context) -> AsyncGenerator[Delta | Reply]:
        # The import takes seconds: in a thread, so that other streams go on.
        litellm = await asyncio.to_thread(_imported)
        self._used = True
        provider = context.model.partition("/")[0]
        key = self._named_key(context)
        wire = Wire()
        _wire.set(wire)
        budget = Silence(context.stall_seconds)
        growing = Accumulator()
        natives: set[int] = set()
        finish_reason = None
        usage: Usage | None = None

        def called() -> Called:
            variable = context.api_key_variable or _KEY_VARIABLES.get(
                provider, f"{provider.upper()}_API_KEY"
            )
            return Called(context.model, wire.host or provider, variable, secrets)

        def secrets() -> tuple[str, ...]:
            return (*self._secrets(), *key.values())

        chunks: Any = None
        try:
            answer = await budget.wait(litellm.acompletion(**_request(context), **key))
            chunks = answer if context.stream else _at_once(answer)
            while (chunk := await budget.wait(anext(chunks, None))) is not None:
                if getattr(chunk, "usage", None):
                    usage = usage_from_wire(chunk.usage.model_dump())
                if not chunk.choices:
                    continue
                choice = chunk.choices[0]
                finish_reason = choice.finish_reason or finish_reason
                said = choice.delta if context.stream else choice.message
                for delta in _deltas(growing, said, natives):
                    budget.progressed()
                    yield delta
            if finish_reason is None or not wire.ended:
                raise _incomplete(called(), wire)
            if context.stream and wire.said_whole and not growing.pieces:
                # LiteLLM reads a stream where there is none, and drops all of it.
                raise ModelRefused(
                    f"{wire.host} answered model {context.model} without a stream; set base_url"
                    " to its address, and it is spoken to without LiteLLM."
                )
        except EverturnError:
            raise
        except TimeoutError:
            raise stalled(called(), context.stall_seconds) from None
        except Exception as error:
            # LiteLLM raises what its many providers' libraries raise; all of it is classified.
            raise _classified(called(), wire, error) from None
        finally:
            if chunks is not None:
                with suppress(Exception):
                    await chunks.aclose()
        stop = growing.stop(finish_reason)
        if usage is None or not wire.told_usage:
            usage = await asyncio.to_thread(estimated_usage, context, growing.pieces)
        message, told = growing.message(stop), allowances(wire.headers)
        yield Reply(message, stop, usage, context.model, told)

    async def embed(
        self, model: str, texts: Sequence[str], api_key_variable: str | None, seconds: float
    ) -> Embedded:
        """Raises ModelError."""
        litellm = await asyncio.to_thread(_imported)
        self._used = True
        key = self._key_for(model, api_key_variable)
        wire = Wire()
        _wire.set(wire)
        provider = model.partition("/")[0]
        variable = api_key_variable or _KEY_VARIABLES.get(provider, f"{provider.upper()}_API_KEY")
        called = Called(model, provider, variable, lambda: (*self._secrets(), *key.values()))
        try:
            async with asyncio.timeout(seconds):
                answer = await litellm.aembedding(
                    model=model,
                    input=[text[:TEXT_CHARACTERS_MAX] for text in texts],
                    max_retries=0,
                    num_retries=0,
                    **key,
                )
            told = answer.model_dump()
            vectors = vectors_of(called, told, len(texts))
            return Embedded(vectors, tokens_of(told), allowances(wire.headers))
        except EverturnError:
            raise
        except TimeoutError:
            raise late(called, seconds) from None
        except Exception as error:
            raise _classified(called, wire, error) from None

    def _named_key(self, context: Context) -> dict[str, str]:
        """The key as LiteLLM takes it, where the context names its variable."""
        return self._key_for(context.model, context.api_key_variable)

    def _key_for(self, model: str, variable: str | None) -> dict[str, str]:
        if variable is None:
            return {}
        key = (self._key(variable) or "").strip()
        if not key:
            raise ModelRefused(f"No key for model {model}: set {variable}.")
        return {"api_key": key}

    async def close(self) -> None:
        if self._used:
            await _imported().close_litellm_async_clients()


def _request(context: Context) -> dict[str, Any]:
    messages = [{"role": "system", "content": context.system}] if context.system else []
    for message in context.messages:
        wires = wire_messages(message, context.tool_role)
        if isinstance(message, AssistantMessage) and _is_anthropics(context.model):
            blocks = _thinking_blocks(message)
            if blocks:
                wires[0]["thinking_blocks"] = blocks
        messages += wires
    request: dict[str, Any] = {
        "model": context.model,
        "messages": messages,
        "stream": context.stream,
        # Temporal owns retries, so every attempt shows in the history.
        "max_retries": 0,
        "num_retries": 0,
        # Ours fires first; this one only frees what it might leave.
        "timeout": context.stall_seconds + SLACK_SECONDS,
    }
    if context.stream:
        request["stream_options"] = {"include_usage": True}
    provider = context.model.partition("/")[0]
    tools = [wire_tool(tool) for tool in context.tools]
    tools += [wire_native(tool, provider) for tool in context.native_tools]
    if tools:
        request["tools"] = tools
    if (
        context.native_tools
        and context.tools
        and provider in GOOGLES
        and mixes_tools(context.model)
    ):
        request["include_server_side_tool_invocations"] = True
    request |= wire_sampling(context, provider)
    if context.tokens_max is not None:
        request["max_tokens"] = context.tokens_max
    if context.base_url is not None:
        request["api_base"] = context.base_url
    if _is_anthropics(context.model):
        mark(request, context.cached, context.steady)
    return request


async def _at_once(answer: Any) -> AsyncGenerator[Any]:
    """A reply in one piece, as a stream of one chunk."""
    yield answer


def _is_anthropics(model: str) -> bool:
    """Whether the model is Anthropic's; other providers refuse fields that they do not know."""
    return "claude" in model or model.startswith("anthropic/")


def _thinking_blocks(message: AssistantMessage) -> list[dict[str, str]]:
    blocks = []
    for part in message.parts:
        if not isinstance(part, Thinking) or part.id is not None:
            continue
        if part.encrypted is not None:
            blocks.append({"type": "redacted_thinking", "data": part.encrypted})
        elif part.signature is not None:
            block = {"type": "thinking", "thinking": part.text, "signature": part.signature}
            blocks.append(block)
    return blocks


def _deltas(growing: Accumulator, delta: Any, natives: set[int]) -> list[Delta]:
    """`natives` are the places of calls that the provider has made itself."""
    told: list[Delta | None] = []
    blocks = getattr(delta, "thinking_blocks", None) or ()
    for block in blocks:
        if block.get("type") == "redacted_thinking":
            growing.encrypted(block.get("data") or "")
            continue
        told.append(growing.thinking(block.get("thinking") or "", None))
        if block.get("signature"):
            growing.signature(block["signature"])
    if not blocks and getattr(delta, "reasoning_content", None):
        told.append(growing.thinking(delta.reasoning_content, REASONING_FIELDS[0]))
    if delta.content:
        told.append(growing.text(delta.content))
    for number, call in enumerate(delta.tool_calls or ()):
        function = call.function
        index = getattr(call, "index", number)
        if call.id:
            (natives.add if call.id.startswith(_SERVERS_CALL) else natives.discard)(index)
        if index in natives:
            continue
        told.append(growing.call(index, call.id, function.name, function.arguments or ""))
    return [delta for delta in told if delta is not None]


def _incomplete(called: Called, wire: Wire) -> EverturnError:
    if wire.host is None:
        return ModelRefused(
            f"LiteLLM reached model {called.model} on a way that cannot be watched for the end"
            " of its stream; unset LITELLM_HTTP2 and DISABLE_AIOHTTP_TRANSPORT."
        )
    return cut(called, "before its terminal marker")


def _classified(called: Called, wire: Wire, error: Exception) -> EverturnError:
    text = _OBJECTS.sub("", _PREFIXES.sub("", str(getattr(error, "message", "") or error)))
    if "LLM Provider NOT provided" in text:
        return UnknownModel(f"No provider serves model {called.model!r}; check its prefix.")
    for cause in (error, error.__cause__, error.__context__):
        # LiteLLM reports a missing package as a connection that failed.
        if isinstance(cause, ImportError):
            return ModelRefused(
                f"Model {called.model} needs the Python package {cause.name}; install it."
            )
    if wire.status == 200:
        return cut(called, f"({text})")
    status = wire.status or getattr(error, "status_code", None)
    if status is None or (wire.host is not None and wire.status is None):
        return unreachable(called, text)
    headers = getattr(error, "litellm_response_headers", None) or wire.headers
    return from_answer(called, int(status), _answer(text), headers)


def _answer(text: str) -> object:
    """The JSON that the provider answered, out of LiteLLM's text around it."""
    start = text.find("{")
    if start >= 0:
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(text[start : text.rfind("}") + 1])
    return text


@cache
def _imported() -> Any:
    """LiteLLM, set up to ask nobody at import, to keep quiet, and to be watched."""
    # Else it loads prices from the network, and settings from a .env file that an agent
    # may have written.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
    import litellm

    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.disable_streaming_logging = True
    # Its errors reach us as exceptions; its log lines may hold keys and prompts.
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # What the first call would load, and hold every other stream up with: its main module
    # and, for tools, the package mcp.
    _ = litellm.acompletion
    with suppress(ImportError):
        import_module("litellm.responses.mcp.chat_completions_handler")
    _watch_transport()
    return litellm


def _watch_transport() -> None:
    """Let the call's `Wire` see every response that LiteLLM reads.

    All its asynchronous clients send through this one transport, whichever provider's
    library stands before it; no setting reaches all of them.
    """
    import httpx
    from litellm.llms.custom_httpx.aiohttp_transport import LiteLLMAiohttpTransport

    class Watched(httpx.AsyncByteStream):
        def __init__(self, wire: Wire, stream: Any) -> None:
            self._wire = wire
            self._stream = stream

        async def __aiter__(self) -> AsyncGenerator[bytes]:
            async for chunk in self._stream:
                self._wire.saw(chunk)
                yield chunk
            self._wire.saw_eof()

        async def aclose(self) -> None:
            await self._stream.aclose()

    send = LiteLLMAiohttpTransport.handle_async_request

    async def watched(self: Any, request: Any) -> Any:
        wire = _wire.get()
        if wire is None:
            return await send(self, request)
        # Compressed bytes would hide the marker.
        request.headers["accept-encoding"] = "identity"
        wire.asking(request.url.netloc.decode())
        response = await send(self, request)
        wire.answered(response.status_code, response.headers)
        response.stream = Watched(wire, response.stream)
        return response

    LiteLLMAiohttpTransport.handle_async_request = watched
