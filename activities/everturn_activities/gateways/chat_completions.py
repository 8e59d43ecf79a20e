"""The gateway to OpenAI-compatible endpoints, straight on httpx."""

import asyncio
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Literal

import aiohttp
import httpx
import orjson
from httpx_aiohttp import AiohttpTransport
from pydantic import BaseModel

from everturn.context.compose import Context
from everturn.errors import ModelRefused
from everturn_activities.gateways import OPENAI_URL, Delta, Reply, Usage
from everturn_activities.gateways.accumulate import Accumulator, loads
from everturn_activities.gateways.allowances import allowances
from everturn_activities.gateways.failures import (
    Called,
    cut,
    from_answer,
    from_stream_error,
    stalled,
    unreachable,
)
from everturn_activities.gateways.sampling import sampling_provider, wire_sampling
from everturn_activities.gateways.silence import Silence
from everturn_activities.gateways.usage import estimated_usage, usage_from_wire
from everturn_activities.gateways.wire import (
    REASONING_FIELDS,
    wire_messages,
    wire_native,
    wire_tool,
)

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 30.0
DRAIN_SECONDS = 0.5
ERROR_BYTES_MAX = 64 * 1024
LINE_BYTES_MAX = 16 * 1024 * 1024
"""An image in one event may be long; a line without an end must not fill the memory."""

_ROUTES = (
    "openai/",
    "hosted_vllm/",
    "lm_studio/",
    "llamafile/",
    "ollama/",
    "openrouter/",
)
"""What names the route and not the model; any other prefix is part of the endpoint's own name."""

OPENAIS_SEARCH = "web_search"

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

Key = str | None | Callable[[str], str | None]
"""A key for every endpoint, or what looks one up by the name of its variable."""


class ChatCompletionsGateway:
    """One shared client: connections are kept and used again.

    `key` may be a function, asked at each call. The key of `key_variable` goes to OpenAI, to
    `base_url` and to this machine; any other endpoint is sent the key that its context names,
    or none. `connections_max` bounds the streams that are open at once.
    """

    def __init__(
        self,
        base_url: str | None = None,
        key: Key = None,
        key_variable: str = "OPENAI_API_KEY",
        connections_max: int = 1000,
    ) -> None:
        self._base_url = (base_url or OPENAI_URL).rstrip("/")
        self._key = key
        self._key_variable = key_variable
        self._connections_max = connections_max
        self._client: httpx.AsyncClient | None = None
        self._urls: dict[str, httpx.URL] = {}
        self._as_tool = _Fragments(lambda message: wire_messages(message, tool_role=True))
        self._as_user = _Fragments(lambda message: wire_messages(message, tool_role=False))
        self._tools = _Fragments(lambda tool: [wire_tool(tool)])

    async def stream(self, context: Context) -> AsyncGenerator[Delta | Reply]:
        url = self._url(context.base_url)
        variable = context.api_key_variable
        if variable is None and self._is_known(url):
            variable = self._key_variable
        key = self._key_of(variable)
        called = Called(context.model, url.netloc.decode(), variable, lambda: (key,) if key else ())
        if not (key.isascii() and key.isprintable()):
            raise ModelRefused(f"{variable} holds characters that no key has; set it anew.")
        if not key and (context.api_key_variable or str(url).startswith(OPENAI_URL)):
            raise ModelRefused(
                f"No key for model {context.model} at {called.host}: set {variable}."
            )
        request = self._request(url, key, self._body(context))
        budget = Silence(context.stall_seconds)
        try:
            response = await budget.wait(self._opened().send(request, stream=True))
        except TimeoutError:
            raise stalled(called, context.stall_seconds) from None
        except (httpx.TransportError, OSError) as error:
            raise unreachable(called, str(error) or type(error).__name__) from None
        try:
            if response.status_code != 200:
                raise await _failure(called, response, budget)
            if response.headers.get("content-type", "").startswith("application/json"):
                for item in await _whole(context, called, response, budget):
                    yield item
                return
            async with aclosing(_replied(context, called, response, budget)) as items:
                async for item in items:
                    yield item
        except TimeoutError:
            raise stalled(called, context.stall_seconds) from None
        finally:
            await response.aclose()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(
                # With 16 calls at once: 0.7 ms of CPU a call, on httpx's own transport 3.4.
                transport=AiohttpTransport(client=self._session),
                follow_redirects=False,
                # A proxy of the environment is for the network, not for this machine.
                mounts={f"all://{host}": None for host in LOOPBACK},
            )
        return self._client

    def _session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=self._connections_max,
            keepalive_timeout=IDLE_SECONDS,
            ssl=httpx.create_ssl_context(),
        )
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())

    def _url(self, base_url: str | None) -> httpx.URL:
        base = (base_url or self._base_url).rstrip("/")
        url = self._urls.get(base)
        if url is None:
            try:
                url = httpx.URL(base + "/chat/completions")
            except httpx.InvalidURL as error:
                raise ModelRefused(f"base_url {base!r} is not an address: {error}.") from None
            if url.scheme not in ("http", "https") or not url.host:
                raise ModelRefused(
                    f"base_url {base!r} is not an http address; it looks like"
                    " http://127.0.0.1:8000/v1."
                )
            self._urls[base] = url
        return url

    def _is_known(self, url: httpx.URL) -> bool:
        """Whether the person who set our own key meant it for this address too.

        A workspace's `base_url` can be any; it says itself which key is for it.
        """
        if url.host in LOOPBACK or f"[{url.host}]" in LOOPBACK:
            return True
        known = (self._url(None), self._url(OPENAI_URL))
        return any(_origin(url) == _origin(one) for one in known)

    def _key_of(self, variable: str | None) -> str:
        if variable is None:
            return ""
        return ((self._key(variable) if callable(self._key) else self._key) or "").strip()

    def _request(self, url: httpx.URL, key: str, body: bytes) -> httpx.Request:
        headers = {
            "accept": "text/event-stream",
            # A compressed stream holds events back until a block is full.
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "everturn",
        }
        if key:
            headers["authorization"] = f"Bearer {key}"
        timeout = {
            "connect": CONNECT_SECONDS,
            "read": None,
            "write": CONNECT_SECONDS * 3,
            "pool": CONNECT_SECONDS,
        }
        return httpx.Request(
            "POST", url, headers=headers, content=body, extensions={"timeout": timeout}
        )

    def _body(self, context: Context) -> bytes:
        """The request as JSON, put together from fragments that are rendered once a message."""
        fragments = self._as_tool if context.tool_role else self._as_user
        model = wire_model(context.model)
        pieces = [fragments.of(message) for message in context.messages]
        if context.system:
            pieces.insert(0, _dumps({"role": "system", "content": context.system}))
        settings: dict[str, Any] = {
            "model": model,
            "stream": context.stream,
        }
        if context.stream:
            settings["stream_options"] = {"include_usage": True}
        url = (context.base_url or self._base_url).rstrip("/")
        new = url == OPENAI_URL
        settings |= wire_sampling(context, sampling_provider(context.model, url))
        if context.tokens_max is not None:
            # OpenAI's reasoning models know the new name only, most other servers the old.
            settings["max_completion_tokens" if new else "max_tokens"] = context.tokens_max
        natives = context.native_tools
        if new and OPENAIS_SEARCH in natives:
            # In this protocol OpenAI's search is no tool; its tool is one of another protocol's.
            settings["web_search_options"] = {}
            natives = tuple(tool for tool in natives if tool != OPENAIS_SEARCH)
        body = [_dumps(settings)[:-1], b',"messages":[', b",".join(pieces), b"]"]
        if context.tools or natives:
            tools = [self._tools.of(tool) for tool in context.tools]
            tools += [_dumps(wire_native(tool, "openai")) for tool in natives]
            body += [b',"tools":[', b",".join(tools), b"]"]
        body.append(b"}")
        return b"".join(body)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


class _Fragments:
    """The JSON of values that never change, kept as long as the value itself lives."""

    def __init__(self, render: Callable[[Any], list[dict[str, Any]]]) -> None:
        self._render = render
        self._kept: dict[int, tuple[weakref.ref[BaseModel], bytes]] = {}

    def of(self, value: BaseModel) -> bytes:
        kept = self._kept.get(id(value))
        if kept is not None and kept[0]() is value:
            return kept[1]
        key = id(value)
        fragment = b",".join(_dumps(message) for message in self._render(value))
        self._kept[key] = (weakref.ref(value, lambda gone: self._forget(key, gone)), fragment)
        return fragment

    def _forget(self, key: int, gone: weakref.ref[BaseModel]) -> None:
        # Another value may have taken the same place since.
        if key in self._kept and self._kept[key][0] is gone:
            del self._kept[key]


class _Stream:
    """What a Chat Completions stream has told so far."""

    def __init__(self, called: Called, headers: Mapping[str, str]) -> None:
        self.called = called
        self.allowances = allowances(headers)
        self.growing = Accumulator()
        self.finish_reason: str | None = None
        self.done = False
        self._natives: set[int | None] = set()
        self.usage: Usage | None = None
        self.model: str | None = None

    def read(self, payload: bytes) -> list[Delta]:
        """The deltas of one event's data."""
        if payload == b"[DONE]":
            self.done = True
            return []
        choices = self._chunk(payload).get("choices")
        return self._choice(choices, "delta") if choices else []

    def read_whole(self, body: bytes) -> list[Delta]:
        """The deltas of a reply that came as one JSON object; its finish reason ends it."""
        choices = self._chunk(body).get("choices")
        if not choices:
            raise ModelRefused(
                f"{self.called.host} answered model {self.called.model} with JSON that is no chat"
                " completion; use an endpoint that speaks Chat Completions."
            )
        deltas = self._choice(choices, "message")
        self.done = True
        return deltas

    def _chunk(self, payload: bytes) -> dict[str, Any]:
        try:
            chunk = loads(payload)
        except ValueError:
            raise cut(self.called, "by data that is not JSON") from None
        if not isinstance(chunk, dict):
            raise cut(self.called, "by data that is not a JSON object")
        if chunk.get("error"):
            raise from_stream_error(self.called, chunk["error"])
        if chunk.get("usage"):
            self.usage = usage_from_wire(chunk["usage"])
        if self.model is None and chunk.get("model"):
            self.model = str(chunk["model"])
        return chunk

    def _choice(self, choices: Any, field: Literal["delta", "message"]) -> list[Delta]:
        try:
            choice = choices[0]
            if choice.get("finish_reason"):
                self.finish_reason = str(choice["finish_reason"])
                if self.finish_reason == "error":
                    raise from_stream_error(self.called, choice.get("error"))
            delta = choice.get(field)
            return self._deltas(delta, field == "message") if delta else []
        except (AttributeError, IndexError, KeyError, TypeError):
            raise cut(self.called, "by data of a shape that no chat completion has") from None

    def _deltas(self, delta: dict[str, Any], whole: bool) -> list[Delta]:
        growing = self.growing
        told: list[Delta | None] = []
        for field in REASONING_FIELDS:
            if delta.get(field):
                told.append(growing.thinking(str(delta[field]), field))
                break
        for item in delta.get("reasoning_details") or ():
            growing.detail(item)
        if delta.get("content"):
            told.append(growing.text(_plain(delta["content"])))
        if delta.get("refusal"):
            growing.refused = True
            told.append(growing.text(str(delta["refusal"])))
        for number, call in enumerate(delta.get("tool_calls") or ()):
            if self._is_native(call):
                continue
            function = call.get("function") or {}
            told.append(
                growing.call(
                    number if whole else call.get("index"),
                    call.get("id"),
                    function.get("name"),
                    _json_text(function.get("arguments")),
                )
            )
            if call.get("extra_content"):
                growing.extra_content(call["extra_content"])
        return [delta for delta in told if delta is not None]

    def _is_native(self, call: dict[str, Any]) -> bool:
        """Whether a call is one that the provider has made itself, of a tool of its own."""
        if call.get("type"):
            native = bool(call["type"] != "function")
            (self._natives.add if native else self._natives.discard)(call.get("index"))
            return native
        return not call.get("id") and call.get("index") in self._natives

    async def reply(self, context: Context) -> Reply:
        """The whole reply. Raises ModelUnavailable where the terminal marker is missing."""
        if self.finish_reason is None:
            raise cut(self.called, "before the reply was finished")
        if not self.done:
            raise cut(self.called, "before its terminal marker [DONE]")
        growing = self.growing
        stop = growing.stop(self.finish_reason)
        usage = self.usage
        if usage is None:
            usage = await asyncio.to_thread(estimated_usage, context, growing.pieces)
        return Reply(
            message=growing.message(stop),
            stop=stop,
            usage=usage,
            model=self.model or context.model,
            allowances=self.allowances,
        )


async def _replied(
    context: Context, called: Called, response: httpx.Response, budget: Silence
) -> AsyncGenerator[Delta | Reply]:
    stream = _Stream(called, response.headers)
    chunks = response.aiter_raw()
    rest = b""
    while not stream.done:
        try:
            chunk = await budget.wait(anext(chunks, None))
        except TimeoutError:  # It is an OSError, too.
            raise
        except (httpx.TransportError, OSError) as error:
            raise cut(called, f"({str(error) or type(error).__name__})") from None
        if chunk is None:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise cut(called, "because a line of it is endless")
        for line in lines:
            # Comments and blank lines keep a connection alive; they tell nothing.
            if line.startswith(b"data:"):
                deltas = stream.read(line[5:].strip())
                if deltas or stream.finish_reason:
                    budget.progressed()
                for delta in deltas:
                    yield delta
    if not stream.done and rest.startswith(b"data:"):
        stream.read(rest[5:].strip())
    reply = await stream.reply(context)
    await _drained(chunks)
    yield reply


async def _drained(chunks: AsyncIterator[bytes]) -> None:
    """Read what follows the terminal marker, so that the connection can serve the next call."""
    with suppress(TimeoutError, httpx.TransportError, OSError):
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in chunks:
                pass


async def _failure(called: Called, response: httpx.Response, budget: Silence) -> Exception:
    error = await _answer(response, budget)
    return from_answer(called, response.status_code, error, response.headers)


async def _whole(
    context: Context, called: Called, response: httpx.Response, budget: Silence
) -> list[Delta | Reply]:
    """The reply of an endpoint that does not stream: it answers with one JSON object."""
    body = bytearray()
    chunks = response.aiter_bytes()
    while True:
        try:
            chunk = await budget.wait(anext(chunks, None))
        except TimeoutError:  # It is an OSError, too.
            raise
        except (httpx.TransportError, OSError) as error:
            raise cut(called, f"({str(error) or type(error).__name__})") from None
        if chunk is None:
            break
        body += chunk
        if len(body) > LINE_BYTES_MAX:
            raise cut(called, "because the reply is endless")
    stream = _Stream(called, response.headers)
    deltas = stream.read_whole(bytes(body))
    return [*deltas, await stream.reply(context)]


async def _answer(response: httpx.Response, budget: Silence) -> object:
    """A body that is not a stream: JSON, or text, or None for a proxy's page in HTML."""
    body = b""
    chunks = response.aiter_bytes()
    with suppress(httpx.TransportError, OSError, TimeoutError):
        while len(body) < ERROR_BYTES_MAX:
            chunk = await budget.wait(anext(chunks, None))
            if chunk is None:
                break
            body += chunk
    try:
        return loads(body)
    except (ValueError, RecursionError):
        text = body.decode("utf-8", "replace")
        return None if text.lstrip().startswith("<") else text


def wire_model(model: str) -> str:
    """The name that the endpoint knows: without the prefix that chose the route."""
    for prefix in _ROUTES:
        if model.startswith(prefix):
            return model[len(prefix) :]
    return model


def _dumps(value: Any) -> bytes:
    return orjson.dumps(value)


def _plain(content: Any) -> str:
    """Text out of `content`: a string, or the list of parts that some endpoints stream."""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))


def _json_text(arguments: Any) -> str:
    """Arguments as text; some endpoints send the object itself."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return orjson.dumps(arguments).decode()
