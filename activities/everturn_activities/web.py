"""Reading a page of the web: within a size and a time, and only from where it may come."""

import asyncio
import re
import ssl
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpcore
import httpx
import orjson

from everturn.errors import ToolFailed
from everturn.hosts import Reach
from everturn.outgoing import HttpAnswer
from everturn_activities.egress import addresses

FETCH_SECONDS = 30.0
CONNECT_SECONDS = 10.0
BYTES_MAX = 5 * 1024 * 1024
"""Of what is sent, and of what that unpacks to."""
REDIRECTS_MAX = 5
URL_CHARACTERS_MAX = 4096

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = [
    (b"User-Agent", b"everturn"),
    (b"Accept", b"text/html, text/markdown, text/plain, application/json;q=0.9, */*;q=0.5"),
    # The one coding that is unpacked here, in pieces and to a bound.
    (b"Accept-Encoding", b"gzip"),
]


@dataclass(frozen=True)
class Page:
    """What a URL has led to. `kind` is its media type; `complete` says that nothing was cut."""

    url: str
    status: int
    kind: str
    charset: str | None
    content: bytes
    complete: bool


async def fetch(url: str, reach: Reach) -> Page:
    """The page at `url`. Raises ToolFailed with the reason where there is none to be had.

    Redirects are followed one by one, each as if a person had asked for it.
    """
    async with _connecting(reach) as pool:
        return await _followed(pool, url)


@asynccontextmanager
async def _connecting(reach: Reach) -> AsyncIterator[httpcore.AsyncConnectionPool]:
    """A pool of connections to what may be reached, and plain words for what goes wrong there."""
    try:
        async with (
            asyncio.timeout(FETCH_SECONDS) as timeout,
            httpcore.AsyncConnectionPool(
                ssl_context=_tls(), network_backend=_Checked(reach), max_keepalive_connections=0
            ) as pool,
        ):
            yield pool
    except TimeoutError:
        if not timeout.expired():
            raise
        raise ToolFailed(f"The page was not there within {FETCH_SECONDS:g} s.") from None
    except httpcore.TimeoutException:
        raise ToolFailed("Nobody answers there in time.") from None
    except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
        raise ToolFailed(f"The page cannot be had: {_plain(error)}.") from None


async def ask(
    reach: Reach,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    json: Any = None,
    content: bytes | None = None,
) -> HttpAnswer:
    """One request, and what is answered to it; raises ToolFailed where there is no answer."""
    at = _parsed(url)
    body = orjson.dumps(json) if json is not None else content
    sent = {"User-Agent": "everturn", "Accept-Encoding": "gzip"}
    if json is not None:
        sent["Content-Type"] = "application/json"
    told = [*_encoded({**sent, **(headers or {})}), (b"Host", at.netloc)]
    if body is not None:
        told.append((b"Content-Length", str(len(body)).encode()))
    async with (
        _connecting(reach) as pool,
        pool.stream(_method(method), _target(at), headers=told, content=body) as answer,
    ):
        got = {name.lower(): value for name, value in answer.headers}
        read, complete = await _read(answer, got)
    plain = {name.decode("latin-1"): value.decode("latin-1") for name, value in got.items()}
    return HttpAnswer(answer.status, plain, read, complete)


def _method(method: str) -> str:
    if not (method.isascii() and method.isalpha()):
        raise ToolFailed(f"{method[:40]!r} is no method of HTTP.")
    return method.upper()


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    told = []
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable() and _HEADER.fullmatch(name)):
            # Not the value: it may be a secret.
            raise ToolFailed(f"The header {name[:40]!r} has a name or a value that none can have.")
        if name.lower() in ("host", "content-length", "transfer-encoding", "connection"):
            raise ToolFailed(f"The header {name} is not a tool's to set.")
        told.append((name.encode(), value.encode()))
    return told


async def _followed(pool: httpcore.AsyncConnectionPool, url: str) -> Page:
    at = _parsed(url)
    for _ in range(REDIRECTS_MAX + 1):
        async with pool.stream(
            "GET", _target(at), headers=[(b"Host", at.netloc), *_HEADERS]
        ) as response:
            headers = {name.lower(): value for name, value in response.headers}
            location = headers.get(b"location")
            if response.status not in _REDIRECTS or location is None:
                return await _page(at, response, headers)
        at = _parsed(str(_joined(at, location.decode("ascii", "replace"))))
    raise ToolFailed(f"The page redirects more than {REDIRECTS_MAX} times.")


def _joined(at: httpx.URL, location: str) -> httpx.URL:
    try:
        return at.join(location)
    except httpx.InvalidURL:
        raise ToolFailed("The page redirects to what is no URL.") from None


def _parsed(url: str) -> httpx.URL:
    """The URL, which is parsed here and nowhere else: two parsers see two hosts."""
    try:
        parsed = httpx.URL(url.strip())
    except (httpx.InvalidURL, TypeError, ValueError):
        raise ToolFailed(
            f"{url[:200]!r} is no URL; give one such as https://example.com."
        ) from None
    if parsed.scheme not in ("http", "https") or not parsed.raw_host:
        raise ToolFailed(f"{url[:200]!r} is no URL of the web; it begins with http:// or https://.")
    if parsed.userinfo:
        raise ToolFailed("A URL with a user or a password in it is not fetched; leave them out.")
    if len(url) > URL_CHARACTERS_MAX:
        raise ToolFailed(f"The URL has more than {URL_CHARACTERS_MAX} characters.")
    return parsed


def _target(at: httpx.URL) -> httpcore.URL:
    return httpcore.URL(scheme=at.raw_scheme, host=at.raw_host, port=at.port, target=at.raw_path)


class _Checked(httpcore.AsyncNetworkBackend):
    """Connects to the checked addresses of a host; TLS still asks for the host's certificate."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        failed: Exception | None = None
        for address in await addresses(self._reach, host, port):
            try:
                return await self._inner.connect_tcp(
                    address, port, CONNECT_SECONDS, None, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed or httpcore.ConnectError("no address")


@cache
def _tls() -> ssl.SSLContext:
    # Reading the system's certificates takes 20 ms, so it is done once.
    return ssl.create_default_context()


async def _page(at: httpx.URL, response: httpcore.Response, headers: dict[bytes, bytes]) -> Page:
    kind, charset = _media(headers.get(b"content-type", b"").decode("ascii", "replace"))
    content, complete = await _read(response, headers)
    return Page(str(at), response.status, kind, charset, content, complete)


async def _read(response: httpcore.Response, headers: dict[bytes, bytes]) -> tuple[bytes, bool]:
    """What is answered, and whether all of it."""
    coding = headers.get(b"content-encoding", b"").strip().lower()
    if coding not in (b"", b"identity", b"gzip"):
        raise ToolFailed(f"The page is packed as {coding[:40].decode('ascii', 'replace')}.")
    content, received, complete = bytearray(), 0, True
    async for sent, piece in _unpacked(response, coding == b"gzip"):
        content += piece
        received += sent
        # What unpacks to nothing would be received for ever.
        if max(len(content), received) > BYTES_MAX:
            complete = False
            break
    return bytes(content[:BYTES_MAX]), complete


async def _unpacked(response: httpcore.Response, packed: bool) -> AsyncIterator[tuple[int, bytes]]:
    """The content in pieces of 64 KiB at most where it is packed, each with how many bytes more
    were received for it. What follows the end of a packed page is not waited for."""
    unpacker = zlib.decompressobj(wbits=31) if packed else None
    async for received in response.aiter_stream():
        if unpacker is None:
            yield len(received), received
            continue
        rest, sent = received, len(received)
        try:
            while rest:
                yield sent, unpacker.decompress(rest, 1 << 16)
                rest, sent = unpacker.unconsumed_tail, 0
        except zlib.error:
            raise ToolFailed("The page cannot be unpacked.") from None
        if unpacker.eof:
            return


def _media(content_type: str) -> tuple[str, str | None]:
    kind, _, parameters = content_type.partition(";")
    for parameter in parameters.split(";"):
        name, _, value = parameter.strip().partition("=")
        if name.lower() == "charset":
            return kind.strip().lower(), value[:40]
    return kind.strip().lower(), None


def _plain(error: Exception) -> str:
    text = str(error).strip().rstrip(".")
    return text[:200] or type(error).__name__
