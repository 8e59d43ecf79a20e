"""The manager of the servers that one agent has in one session."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from everturn.errors import ServerAlreadyLaunched, ServerFailed, ServerForgot, ServerLost
from everturn.mcp import Catalogue, ServerConfig
from everturn.session import SessionKey
from everturn_activities.mcp.content import Piece
from everturn_activities.mcp.pool import Place, Pool
from everturn_activities.mcp.requests import (
    ExecuteTool,
    GetPrompt,
    GetPrompts,
    GetToolSpecs,
    LaunchServer,
    Request,
    Terminate,
)

if TYPE_CHECKING:
    from everturn_activities.mcp.sdk import Listed

log = logging.getLogger(__name__)


def unheard(text: str) -> None:
    """Progress that nobody watches."""


class Manager:
    """Serves requests. Its servers are launched while it is made ready; once it is frozen, none
    is added. Another agent gets a manager of its own. `forgotten` names servers that have begun
    anew by themselves."""

    def __init__(self, pool: Pool, key: SessionKey, workspace: str) -> None:
        self._pool = pool
        self._key = key
        self._workspace = workspace
        self._places: dict[str, Place] = {}
        self.asked: set[str] = set()
        self.forgotten: set[str] = set()
        self._frozen = False

    def freeze(self) -> None:
        self._frozen = True

    async def handle(
        self,
        request: Request,
        call_key: str = "",
        progress: Callable[[str], None] = unheard,
        ask: Any = None,
    ) -> Any:
        """What is asked for. Raises ServerFailed where it cannot be had.

        `call_key` tells the server which call this is; `progress` hears how far it got, and
        `ask`, as `sdk.Ask`, is asked what the server wants to know of a person.
        """
        match request:
            case LaunchServer():
                return await self._launch(request.server_name, request.config)
            case GetToolSpecs():
                return await self._catalogue(request.server_name)
            case GetPrompts():
                return await self._asked(request.server_name, lambda one: one.prompts())
            case GetPrompt():
                return await self._asked(
                    request.server_name,
                    lambda one: one.prompt(request.name, request.arguments),
                )
            case ExecuteTool():
                return await self._call(request, call_key, progress, ask)
            case Terminate():
                return await self._terminate()

    async def resources(self, server: str) -> "list[Listed]":
        """The resources of a server; raises ServerFailed. This and the next are no requests, of
        which there are six (K22): they change nothing."""
        found: list[Listed] = await self._asked(server, lambda one: one.resources())
        return found

    async def resource(self, server: str, uri: str) -> list[Piece]:
        """What a resource of a server holds; raises ServerFailed."""
        found: list[Piece] = await self._asked(server, lambda one: one.resource(uri))
        return found

    def has(self, servers: set[str]) -> bool:
        """Whether it was asked to launch all of these."""
        return servers <= self.asked

    def is_running(self, server: str) -> bool:
        place = self._places.get(server)
        return place is not None and self._pool.is_running(place)

    async def _launch(self, name: str, config: ServerConfig) -> None:
        log.info("session %s: LaunchServer %s", self._key.session, name)
        if name in self._places:
            raise ServerAlreadyLaunched(f"Server {name} is launched already.")
        if self._frozen:
            raise ServerFailed(f"Server {name} cannot be added: this agent's servers are frozen.")
        self.asked.add(name)
        session = self._key if config.stateful else None
        place = Place(self._workspace, name, config, session)
        try:
            await self._pool.connection(place)
        except ServerFailed as error:
            raise ServerFailed(f"MCP server {name} cannot be launched: {error}.") from None
        self._pool.hold(place)
        self._places[name] = place

    async def _call(
        self,
        request: ExecuteTool,
        call_key: str,
        progress: Callable[[str], None],
        ask: Any,
    ) -> Any:
        called = (request.tool_name, request.args, call_key, progress, ask)
        try:
            return await (await self._connection(request.server_name)).call(*called)
        except ServerForgot:
            # Nothing was run, and who connects anew is known.
            self.forgotten.add(request.server_name)
            return await (await self._connection(request.server_name)).call(*called)

    async def _asked(self, name: str, ask: Callable[[Any], Awaitable[Any]]) -> Any:
        """What a server answers to a question; one that was lost meanwhile is asked once more."""
        place = self._places.get(name)
        seconds = place.config.timeout_seconds if place is not None else None
        try:
            async with asyncio.timeout(seconds):
                try:
                    return await ask(await self._connection(name))
                except (ServerForgot, ServerLost):
                    return await ask(await self._connection(name))
        except TimeoutError:
            raise ServerFailed(f"Server {name} did not answer within {seconds:g} s.") from None

    async def _catalogue(self, name: str) -> Catalogue:
        connection = await self._connection(name)
        catalogue: Catalogue = await connection.catalogue()
        return catalogue

    async def _connection(self, name: str) -> Any:
        place = self._places.get(name)
        if place is None:
            raise ServerFailed(f"Server {name} is not launched.")
        try:
            return await self._pool.connection(place)
        except ServerFailed as error:
            raise ServerFailed(f"MCP server {name} cannot be launched again: {error}.") from None

    async def _terminate(self) -> None:
        log.info("session %s: Terminate", self._key.session)
        places = list(self._places.values())
        self._places.clear()
        for place in places:
            await self._pool.release(place)
