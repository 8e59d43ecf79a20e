"""The servers of a worker's sessions: launched, compared with what was pinned, and called."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everturn.agents import AgentSpec, ToolSpec
from everturn.context.untrusted import neutral
from everturn.errors import ServerFailed, ServerLost, ToolFailed
from everturn.mcp import SOURCE, Catalogue, Server, differences
from everturn.mcp_tools import reads_resources
from everturn.session import SessionKey
from everturn.tools import Tool
from everturn_activities.builtin.inside import InsideContext
from everturn_activities.mcp.content import Piece
from everturn_activities.mcp.manager import Manager
from everturn_activities.mcp.pool import Pool
from everturn_activities.mcp.reading import resource_tool
from everturn_activities.mcp.requests import (
    ExecuteTool,
    GetPrompt,
    GetToolSpecs,
    LaunchServer,
    Terminate,
)
from everturn_activities.vault import Vault

if TYPE_CHECKING:
    from everturn_activities.mcp.sdk import Listed

IDLE_SECONDS = 600.0
"""How long a session that says nothing keeps its manager, and so the servers that are its own."""

LOST = (
    "Server {server} {how} while the call ran: it may or may not have taken effect. It was not"
    " repeated. Find out before you repeat it."
)
ANEW = "[Server {server} was started anew: what it remembered of this session until then is lost.]"
OTHER = (
    "The call did not run: server {server} describes {tool} otherwise than when this session"
    " began. A person can accept that by: everturn mcp accept {session}"
)


async def _never(key: SessionKey) -> bool:
    return False


class _Session:
    """The manager of a session, for which agent, and for which servers it is ready."""

    def __init__(self, agent: str, manager: Manager) -> None:
        self.agent = agent
        self.manager = manager
        self.ready: str | None = None
        self.used = time.monotonic()
        self.calls = 0


class Servers:
    """`vault` has what servers are given by name, `home` is the folder of our data. `works` tells
    whether a session's turn is open."""

    def __init__(
        self,
        vault: Vault,
        home: Path | None = None,
        works: Callable[[SessionKey], Awaitable[bool]] = _never,
    ) -> None:
        self._pool = Pool(vault, home)
        self._works = works
        self._sessions: dict[SessionKey, _Session] = {}
        self._locks: dict[SessionKey, asyncio.Lock] = {}
        self._lost: set[tuple[SessionKey, str]] = set()

    def is_ready(self, key: SessionKey, spec: AgentSpec) -> bool:
        """Whether this process has launched the spec's servers, and they offer what it says."""
        known = self._sessions.get(key)
        return known is not None and known.agent == spec.agent.name and known.ready == spec.served

    async def catalogues(
        self, key: SessionKey, spec: AgentSpec, servers: Sequence[Server]
    ) -> dict[str, Catalogue]:
        """What each of `servers`, which are the spec's, offers now, all of them launched.

        Raises ServerFailed where a required one cannot be launched; others are left out.
        """
        manager = await self._manager(key, spec, servers)
        found: dict[str, Catalogue] = {}
        for server in servers:
            try:
                found[server.name] = await manager.handle(GetToolSpecs(server_name=server.name))
            except ServerFailed:
                if server.config.required:
                    raise
        return found

    def accept(self, key: SessionKey, spec: AgentSpec) -> None:
        """Take what the spec's servers offer for what it says."""
        if (known := self._sessions.get(key)) is not None and known.agent == spec.agent.name:
            known.ready = spec.served

    def lose(self, key: SessionKey, server: str) -> None:
        """A worker died that had the server: what that remembered of the session is lost."""
        self._lost.add((key, server))

    async def _manager(
        self, key: SessionKey, spec: AgentSpec, servers: Sequence[Server]
    ) -> Manager:
        """The manager of the session's agent, which has launched `servers`.

        One of another agent ends all its servers first.
        """
        await self._forget_idle()
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            known = self._sessions.get(key)
            if known is not None and known.agent != spec.agent.name:
                await known.manager.handle(Terminate())
                del self._sessions[key]
                known = None
            for server in servers:
                here = known is not None and known.manager.is_running(server.name)
                if server.config.stateful and server.catalogue is not None and not here:
                    self._lost.add((key, server.name))
            if known is None or not known.manager.has({server.name for server in servers}):
                known = self._sessions[key] = await self._launched(key, spec, servers, known)
            known.used = time.monotonic()
            return known.manager

    async def _launched(
        self,
        key: SessionKey,
        spec: AgentSpec,
        servers: Sequence[Server],
        before: _Session | None,
    ) -> _Session:
        """A session whose manager has `servers`, and those of the manager `before`."""
        kept = () if before is None else before.manager.asked
        wanted = {*kept, *(server.name for server in servers)}
        made = _Session(spec.agent.name, Manager(self._pool, key, spec.workspace))
        try:
            for server in spec.servers:
                if server.name in wanted:
                    await _launch(made.manager, server)
        except BaseException:
            await made.manager.handle(Terminate())
            raise
        made.manager.freeze()
        if before is not None:
            # Only now: what both have goes on running.
            made.ready = before.ready
            await before.manager.handle(Terminate())
        return made

    def tool(self, spec: ToolSpec) -> Tool:
        """The tool that calls a server's."""
        if reads_resources(spec):
            return resource_tool(self, spec)

        async def run(context: InsideContext, arguments: dict[str, Any]) -> str:
            return await self.call(spec, arguments, context)

        return Tool(
            name=spec.name,
            description=spec.description,
            parameters=dict(spec.parameters),
            run=run,
            effect=spec.effect,
            untrusted=True,
            timeout_seconds=spec.timeout_seconds,
            context_parameter="context",
            # A server may call a parameter of its own as we call the context.
            convert=lambda given: {"arguments": given},
        )

    async def call(self, tool: ToolSpec, arguments: dict[str, Any], context: InsideContext) -> str:
        """The answer to a call. Raises ToolFailed where there is none, or it tells of a failure."""
        key = SessionKey(context.tenant, context.session)
        name = tool.source.removeprefix(SOURCE)
        request = ExecuteTool(server_name=name, tool_name=tool.remote, args=arguments)
        try:
            server = next(one for one in context.spec.servers if one.name == name)
            manager = await self._manager(key, context.spec, [server])
            found: Catalogue = await manager.handle(GetToolSpecs(server_name=name))
        except ServerFailed as error:
            raise ToolFailed(f"The call did not run. {error}") from None
        if not _same(tool.remote, name, context.spec, found):
            raise ToolFailed(OTHER.format(server=name, tool=tool.remote, session=context.session))
        session = self._sessions[key]
        session.calls += 1
        try:
            ask = _asker(name, tool.name, context)
            answer = await manager.handle(request, context.idempotency_key, context.progress, ask)
        except ServerLost as error:
            raise ToolFailed(LOST.format(server=name, how=error.how)) from None
        except ServerFailed as error:
            raise ToolFailed(f"Server {name} refused the call: {error}") from None
        finally:
            session.calls -= 1
            session.used = time.monotonic()
        text = str(answer.text)
        if name in manager.forgotten:
            manager.forgotten.discard(name)
            if server.config.stateful:
                self._lost.add((key, name))
        if (key, name) in self._lost:
            self._lost.discard((key, name))
            text = f"{ANEW.format(server=name)}\n{text}"
        if answer.failed:
            raise ToolFailed(text)
        return text

    async def prompt(
        self, key: SessionKey, spec: AgentSpec, server: Server, name: str, said: Mapping[str, str]
    ) -> list[Piece]:
        """What a prompt of a server says; raises ServerFailed."""
        manager = await self._manager(key, spec, [server])
        request = GetPrompt(server_name=server.name, name=name, arguments=dict(said))
        found: list[Piece] = await manager.handle(request)
        return found

    async def resource(
        self, key: SessionKey, spec: AgentSpec, server: Server, uri: str
    ) -> list[Piece]:
        """What a resource of a server holds; raises ServerFailed."""
        return await (await self._manager(key, spec, [server])).resource(server.name, uri)

    async def resources(self, key: SessionKey, spec: AgentSpec, server: Server) -> "list[Listed]":
        """What a server lists to be read; raises ServerFailed."""
        return await (await self._manager(key, spec, [server])).resources(server.name)

    async def close(self) -> None:
        """End all servers; they are launched again where they are needed again."""
        self._sessions.clear()
        await self._pool.close()

    async def _forget_idle(self) -> None:
        before = time.monotonic() - IDLE_SECONDS
        for key, known in list(self._sessions.items()):
            if known.used >= before or known.calls:
                continue
            if await self._works(key):
                # It waits for a person, say. What its servers remember it may still need.
                known.used = time.monotonic()
            elif self._sessions.get(key) is known and known.used < before and not known.calls:
                del self._sessions[key]
                self._locks.pop(key, None)
                await known.manager.handle(Terminate())


def _asker(server: str, tool: str, context: InsideContext) -> Any:
    """Asks the user what the server wants to know, as questions of the call."""
    numbers = itertools.count(1)

    async def ask(message: str, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        question = f"Server {server} asks: {neutral(message)}"
        answer = await context.ask(next(numbers), tool, question, dict(schema))
        return answer.content

    return ask


async def _launch(manager: Manager, server: Server) -> None:
    try:
        await manager.handle(LaunchServer(server_name=server.name, config=server.config))
    except ServerFailed:
        if server.config.required:
            raise


def changed(servers: Sequence[Server], found: Mapping[str, Catalogue]) -> str | None:
    """What servers offer otherwise than was pinned, in a sentence."""
    for server in servers:
        assert server.catalogue is not None
        now = found.get(server.name)
        if now is None:
            return f"MCP server {server.name} cannot be launched any more."
        if now.digest != server.catalogue.digest:
            return (
                f"MCP server {server.name} is not what it was when this session began:"
                f" {differences(server.catalogue, now)}."
            )
    return None


def _same(tool: str, server: str, spec: AgentSpec, found: Catalogue) -> bool:
    """Whether the server describes a tool as the spec says."""
    pinned = next((one.catalogue for one in spec.servers if one.name == server), None)
    if pinned is None:
        return False
    before = {offer.name: offer.digest for offer in pinned.offers}
    return any(offer.name == tool and offer.digest == before.get(tool) for offer in found.offers)
