"""Asking servers for the prompts and resources that people name in messages, once."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from everturn.agents import AgentSpec
from everturn.context.untrusted import neutral
from everturn.errors import ServerFailed, UsageError
from everturn.mcp import Server
from everturn.mcp_prompts import Due, Rendering, chosen, filled
from everturn.messages import (
    AnyUserPart,
    PromptInvocation,
    ResourceMention,
    Served,
    UserMessage,
)
from everturn.session import GatherTools, SessionKey
from everturn_activities.mcp.content import asked_for
from everturn_activities.mcp.homes import Homes
from everturn_activities.mcp.servers import Servers
from everturn_activities.store import Store

APART = (
    "Server {one} and server {other} of this session are on two workers; ask for what they have in"
    " messages of their own."
)


class Renderings(Protocol):
    """The store's side."""

    async def due(self, key: SessionKey, turn: int) -> list[Due]: ...
    async def settle(self, request: GatherTools, rendered: Sequence[Rendering]) -> None: ...


class Renderer:
    """`clean` takes out of what a server says what no model may be told, once `know` has learnt
    what that is in a turn under a spec."""

    def __init__(
        self,
        store: Store,
        renderings: Renderings,
        servers: Servers,
        homes: Homes,
        know: Callable[[AgentSpec], None],
        clean: Callable[[str], str],
    ) -> None:
        self._store = store
        self._renderings = renderings
        self._servers = servers
        self._homes = homes
        self._know = know
        self._clean = clean

    async def queue(self, key: SessionKey, turn: int, spec: AgentSpec) -> str:
        """The queue of the worker that can ask the servers for what is due."""
        found: list[Server] = []
        for due in await self._renderings.due(key, turn):
            try:
                found += _servers(due.message, spec)
            except UsageError:
                # Whoever renders it will say so.
                continue
        return await self._homes.queue_of(key, spec, found)

    async def render(self, request: GatherTools, spec: AgentSpec) -> str | None:
        """Ask for all that is due of the turn, and write the answers. What is wrong with a message
        that opened the turn is the answer, as a sentence."""
        key = SessionKey(request.tenant, request.session)
        due = await self._renderings.due(key, request.turn)
        if not due:
            return None
        self._know(spec)
        boundary = await self._store.boundary(key, request.turn)
        rendered = []
        for one in due:
            try:
                if not await self._are_here(key, spec, _servers(one.message, spec)):
                    return None
                message = await self._rendered(key, spec, one.message, boundary)
            except (UsageError, ServerFailed) as error:
                problem = neutral(self._clean(f"{str(error).rstrip('.')}."))
                if not one.steers:
                    return problem
                rendered.append(Rendering(one, None, problem))
            else:
                rendered.append(Rendering(one, message))
        await self._renderings.settle(request, rendered)
        return None

    async def _are_here(self, key: SessionKey, spec: AgentSpec, servers: Sequence[Server]) -> bool:
        """Whether no other worker has them. Raises ServerFailed where no one worker has all."""
        at = {one.name: await self._homes.of(key, spec, one) for one in servers}
        away = [name for name, home in at.items() if home not in (None, self._homes.worker)]
        here = [name for name, home in at.items() if home == self._homes.worker]
        if away and here:
            raise ServerFailed(APART.format(one=here[0], other=away[0]))
        return not away

    async def _rendered(
        self, key: SessionKey, spec: AgentSpec, message: UserMessage, boundary: str
    ) -> UserMessage:
        parts: list[AnyUserPart] = []
        for part in message.parts:
            if isinstance(part, Served) and part.text is None:
                parts += await self._asked(key, spec, part, boundary)
            else:
                parts.append(part)
        return UserMessage(parts=tuple(parts))

    async def _asked(
        self, key: SessionKey, spec: AgentSpec, part: Served, boundary: str
    ) -> list[AnyUserPart]:
        """The part with what its server says, and the images that are among that."""
        server = _server(part, spec)
        try:
            if isinstance(part, PromptInvocation):
                what = f"/{part.name}"
                _, prompt = chosen(part.name, spec.servers)
                said = filled(prompt, part)
                pieces = await self._servers.prompt(key, spec, server, prompt.name, said)
            else:
                what = f"@{part.server}:{part.uri}"
                pieces = await self._servers.resource(key, spec, server, part.uri)
        except ServerFailed as error:
            raise ServerFailed(f"{what} cannot be had: {error}") from None
        # Before anything is cut: half of a secret is found by nobody.
        clean = [
            replace(piece, text=self._clean(piece.text), of=piece.of and self._clean(piece.of))
            for piece in pieces
        ]
        text, images = asked_for(clean, server.name, boundary)
        if not text and not images:
            raise ServerFailed(f"{what} cannot be had: server {server.name} answered nothing")
        return [part.model_copy(update={"text": text}), *images]


def _servers(message: UserMessage, spec: AgentSpec) -> list[Server]:
    """The servers that a message asks. Raises UsageError for one that the agent has not."""
    return [_server(part, spec) for part in message.parts if isinstance(part, Served)]


def _server(part: Served, spec: AgentSpec) -> Server:
    if isinstance(part, PromptInvocation):
        return chosen(part.name, spec.servers)[0]
    return _of_mention(part, spec)


def _of_mention(part: ResourceMention, spec: AgentSpec) -> Server:
    for server in spec.servers:
        if server.name == part.server:
            return server
    raise UsageError(
        f"@{part.server}:{part.uri} cannot be had: agent {spec.agent.name} has no MCP server"
        f" {part.server}, or it is not to be launched."
    )
