"""The routes of MCP servers: what a session takes them for."""

from fastapi import APIRouter, Request

from everturn.views import ServersAcceptedView
from everturn_workers.doors.parts import Name, Parts, key_of


def add_servers(routes: APIRouter, parts: Parts) -> None:
    store = parts.store

    @routes.post("/sessions/{id}/servers/accept")
    async def accept_servers(request: Request, session: Name) -> ServersAcceptedView:
        """Let the session take its MCP servers, from its next turn on, as they are then."""
        await store.accept_servers(key_of(request, session))
        return ServersAcceptedView(session=session)
