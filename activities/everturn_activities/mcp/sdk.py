"""A connection to a server, by the official SDK. The one module that imports it.

The SDK takes a second to import, so this module is imported where a server is first launched.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

import anyio
import httpx2
import pydantic_core
from mcp.client.client import Client
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    REQUEST_TIMEOUT,
    AudioContent,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    Implementation,
    RequestParamsMeta,
    ResourceLink,
    TextContent,
    TextResourceContents,
    jsonrpc_message_adapter,
)

from everturn.errors import ServerFailed, ServerForgot, ServerLost
from everturn.hosts import Reach
from everturn.mcp import Argument, Catalogue, Offer, Prompt
from everturn.mcp_prompts import PROMPTS_MAX
from everturn_activities.mcp.content import Piece, as_text, binary
from everturn_activities.mcp.process import ServerProcess
from everturn_activities.mcp.remote import NOWHERE, checked_client

PAGES_MAX = 50
KEY = "everturn/idempotency_key"
"""Under this name of a call's `_meta` a server finds what is the same for its every attempt."""

# What the SDK makes of a server that was started again and has no such session.
_FORGOTTEN = "Session terminated"
# What the SDK makes of an error of HTTP without words; these mean that the session is unknown.
_STATUS = "Server returned an error response"
_FORGETFUL = (400, 404, 410)
_CHANGED = ("notifications/tools/list_changed", "notifications/prompts/list_changed")


@dataclass(frozen=True)
class Answer:
    """What a server has answered to a call, as text."""

    text: str
    failed: bool = False


Ask = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
"""Asks whoever a call is made for what a schema says; None where nobody answers."""

_asking: ContextVar["_Asker | None"] = ContextVar("asking", default=None)


class _Asker:
    """Asks for one call, and for no longer than that runs."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._asked: set[asyncio.Future[Mapping[str, Any] | None]] = set()

    async def __call__(self, message: str, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        asked = asyncio.ensure_future(self._ask(message, schema))
        self._asked.add(asked)
        try:
            await asyncio.wait({asked})
        finally:
            asked.cancel()
            self._asked.discard(asked)
        return None if asked.cancelled() else asked.result()

    def end(self) -> None:
        for asked in self._asked:
            asked.cancel()


@dataclass(frozen=True)
class Listed:
    """A resource that a server has, or a template of the addresses of such."""

    uri: str
    name: str
    about: str = ""
    is_template: bool = False


class Connection:
    """A session with a server, which a task of its own holds open."""

    def __init__(
        self,
        transport: Any,
        identity: tuple[str, ...],
        ended: Callable[[], bool],
        status: Callable[[], int] = lambda: 0,
        unauthorized: str = "",
    ) -> None:
        """`status` is that of the last answer over HTTP that was an error; `unauthorized` says
        what to do about one of 401."""
        self._client = Client(
            transport,
            client_info=Implementation(name="everturn", version="0"),
            message_handler=self._hear,
            elicitation_callback=self._elicited,
            cache=None,
        )
        self._askers: list[_Asker] = []
        self._identity = identity
        self._ended = ended
        self._status = status
        self._unauthorized = unauthorized
        self._catalogue: Catalogue | None = None
        self._gone = False
        self._leaving = asyncio.Event()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held = asyncio.create_task(self._hold())

    @property
    def running(self) -> bool:
        return not (self._held.done() or self._gone or self._ended())

    async def open(self) -> None:
        """Wait until both sides know each other. Raises ServerFailed where that does not happen."""
        await asyncio.wait({self._opened, self._held}, return_when=asyncio.FIRST_COMPLETED)
        if not self._opened.done():
            raise ServerFailed("it has ended before it said who it is")
        self._opened.result()

    async def close(self) -> None:
        self._leaving.set()
        if not self._opened.done():
            self._held.cancel()
        await asyncio.gather(self._held, return_exceptions=True)

    async def _hold(self) -> None:
        try:
            async with self._client:
                self._opened.set_result(None)
                await self._leaving.wait()
        except Exception as error:
            if not self._opened.done():
                self._opened.set_exception(ServerFailed(self._said(error)))
                self._opened.exception()

    def _said(self, error: BaseException) -> str:
        """What went wrong, as the end of a sentence."""
        said = _plain(error)
        return self._unauthorized if self._status() == 401 and said == _STATUS else said

    async def _hear(self, message: object) -> None:
        if getattr(message, "method", None) in _CHANGED:
            self._catalogue = None

    async def _elicited(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult:
        """Answer a server that wants to know something of a person."""
        asker = _asking.get()
        if asker is None and len(self._askers) == 1:
            # Servers of older protocols do not say for which call they ask.
            (asker,) = self._askers
        if asker is None or not isinstance(params, ElicitRequestFormParams):
            return ElicitResult(action="decline")
        said = await asker(params.message, params.requested_schema)
        if said is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=dict(said))

    async def catalogue(self) -> Catalogue:
        """What it offers, asked anew where it has said that this has changed."""
        known = self._catalogue
        if known is None:
            offers = [
                Offer(
                    name=tool.name,
                    description=tool.description or "",
                    parameters=tool.input_schema,
                    annotations=_plain_data(tool.annotations),
                )
                for tool in await self._all(lambda cursor: self._client.list_tools(cursor=cursor))
            ]
            about, can = self._client.server_info, self._client.server_capabilities
            known = Catalogue(
                identity=self._identity,
                version=about.version if about is not None else "",
                offers=tuple(offers),
                prompts=tuple(await self.prompts()) if can.prompts is not None else (),
                has_resources=can.resources is not None,
            )
            self._catalogue = known
        return known

    async def prompts(self) -> list[Prompt]:
        found = await self._all(lambda cursor: self._client.list_prompts(cursor=cursor))
        return [
            Prompt(
                name=prompt.name,
                description=prompt.description or "",
                arguments=tuple(
                    Argument(
                        name=one.name,
                        description=one.description or "",
                        required=bool(one.required),
                    )
                    for one in prompt.arguments or ()
                ),
            )
            for prompt in found[:PROMPTS_MAX]
        ]

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> list[Piece]:
        """What the messages of a prompt say."""
        with self._translated():
            found = await self._client.get_prompt(name, dict(arguments))
        pieces = []
        for message in found.messages:
            if message.role == "assistant":
                pieces.append(Piece("(As if you had answered:)"))
            pieces.append(_piece(message.content))
        return pieces

    async def resources(self) -> list[Listed]:
        """The resources that it lists, then the templates."""
        found = await self._all(lambda cursor: self._client.list_resources(cursor=cursor))
        listed = [Listed(str(one.uri), one.name, _about(one)) for one in found]
        with suppress(ServerFailed):
            # A server may have none, and say that it does not know the question.
            found = await self._all(
                lambda cursor: self._client.list_resource_templates(cursor=cursor)
            )
            listed += [Listed(one.uri_template, one.name, _about(one), True) for one in found]
        return listed

    async def resource(self, uri: str) -> list[Piece]:
        """What a resource holds."""
        with self._translated():
            found = await self._client.read_resource(uri)
        return [_content(one) for one in found.contents]

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        key: str,
        told: Callable[[str], None],
        ask: Ask | None = None,
    ) -> Answer:
        """Call a tool. Raises ServerLost where the server was lost while it ran.

        To cancel this tells the server that nobody waits any more. `ask` asks a person what the
        server wants to know meanwhile.
        """

        async def moved(
            progress: float, total: float | None = None, message: str | None = None
        ) -> None:
            done = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
            told(f"{done} {message}\n" if message else f"{done}\n")

        with self._translated(), self._asking_by(ask):
            try:
                meta = cast("RequestParamsMeta", {KEY: key})
                answer = await self._client.call_tool(
                    tool, dict(arguments), progress_callback=moved, meta=meta
                )
            except RuntimeError as error:
                raise ServerFailed(f"It has run, but its answer is not valid: {error}") from None
        pieces = [_piece(content) for content in answer.content]
        if not pieces and answer.structured_content is not None:
            pieces = [Piece(_json(answer.structured_content))]
        return Answer(as_text(pieces), bool(answer.is_error))

    @contextmanager
    def _asking_by(self, ask: Ask | None) -> Iterator[None]:
        if ask is None:
            yield
            return
        asker = _Asker(ask)
        self._askers.append(asker)
        token = _asking.set(asker)
        try:
            yield
        finally:
            _asking.reset(token)
            self._askers.remove(asker)
            asker.end()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """The SDK's errors as ours."""
        try:
            yield
        except MCPError as error:
            code, said = error.error.code, error.error.message
            if code in (CONNECTION_CLOSED, REQUEST_TIMEOUT):
                # Whether its process has ended is known only a moment later.
                self._gone = True
                raise ServerLost("has ended") from None
            if code == INTERNAL_ERROR and said == _STATUS and self._status() == 401:
                raise ServerFailed(self._unauthorized) from None
            if code == INTERNAL_ERROR and said == _STATUS and self._status() not in _FORGETFUL:
                self._gone = True
                raise ServerLost(f"answered with HTTP {self._status()}") from None
            if (code, said) in ((INVALID_REQUEST, _FORGOTTEN), (INTERNAL_ERROR, _STATUS)):
                self._gone = True
                raise ServerForgot("The server knows nothing of this connection.") from None
            raise ServerFailed(_plain(error)) from None
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            self._gone = True
            raise ServerLost("has ended") from None

    async def _all(self, page: Callable[[str | None], Any]) -> list[Any]:
        """The items of all pages of a list."""
        found: list[Any] = []
        cursor: str | None = None
        with self._translated():
            for _ in range(PAGES_MAX):
                listed = await page(cursor)
                for name in ("tools", "prompts", "resources", "resource_templates"):
                    found += getattr(listed, name, ())
                cursor = listed.next_cursor
                if cursor is None:
                    break
        return found


def over_process(process: ServerProcess, identity: tuple[str, ...]) -> Connection:
    """A connection that talks to `process`, which ends with it."""
    return Connection(_over(process), identity, lambda: not process.running)


def over_address(
    url: str,
    headers: Mapping[str, str],
    reach: Reach,
    auth: Any = None,
    also: Callable[[], Reach] = lambda: NOWHERE,
    unauthorized: str = "",
) -> Connection:
    """A connection to `url`, which leads to what `reach` allows and nowhere else but, for `auth`,
    to what `also` does. `unauthorized` tells who is not let in what to do."""
    statuses = [0]

    async def note(response: httpx2.Response) -> None:
        if response.status_code >= 400:
            statuses[0] = response.status_code

    @asynccontextmanager
    async def transport() -> AsyncIterator[Any]:
        async with checked_client(reach, headers, auth, also) as client:
            client.event_hooks = {"response": [note]}
            async with streamable_http_client(url, http_client=client) as streams:
                yield streams

    return Connection(transport(), (url,), lambda: False, lambda: statuses[0], unauthorized)


@asynccontextmanager
async def _over(process: ServerProcess) -> AsyncIterator[Any]:
    """The process as a transport of the SDK's."""
    told, heard = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    said, to_send = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with told:
            async for line in process.lines():
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    continue  # Servers print what they should not; who waits for more, times out.
                await told.send(SessionMessage(message))

    async def write() -> None:
        async with to_send:
            async for message in to_send:
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await process.send(line.encode() + b"\n")
                except OSError:
                    await told.aclose()
                    return

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_quietly, read)
            group.start_soon(_quietly, write)
            try:
                yield heard, said
            finally:
                group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await process.stop()
            for stream in (told, heard, said, to_send):
                await stream.aclose()


async def _quietly(run: Callable[[], Any]) -> None:
    # The other side may have left.
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        await run()


def _piece(content: Any) -> Piece:
    """A piece of an answer; what is neither text nor an image is told of."""
    match content:
        case TextContent():
            return Piece(content.text)
        case ImageContent() | AudioContent():
            return binary(content.type, content.mime_type, content.data)
        case ResourceLink():
            return Piece(f"[resource {content.uri}: {content.name}]")
        case EmbeddedResource():
            return _content(content.resource)
    return Piece(f"[{getattr(content, 'type', 'something')}, not shown]")


def _content(resource: Any) -> Piece:
    if isinstance(resource, TextResourceContents):
        return Piece(resource.text, of=str(resource.uri))
    media_type = resource.mime_type or "application/octet-stream"
    return binary(f"resource {resource.uri}", media_type, resource.blob)


def _about(listed: Any) -> str:
    size = getattr(listed, "size", None)
    about = [listed.mime_type or "", "" if size is None else f"{size:,} bytes"]
    return ", ".join(one for one in (*about, listed.description or "") if one)


def _json(value: object) -> str:
    return pydantic_core.to_json(value).decode()


def _plain_data(model: Any) -> dict[str, Any]:
    if model is None:
        return {}
    data: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return data


def _plain(error: BaseException) -> str:
    """What went wrong, as the end of a sentence."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    text = str(error).strip().rstrip(".")
    return text[:300] or type(error).__name__
