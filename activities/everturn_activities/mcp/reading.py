"""list_resources and read_resource: what the servers of an agent have to be read."""

from typing import TYPE_CHECKING, Any, Protocol

from everturn.agents import AgentSpec, ToolSpec
from everturn.errors import ServerFailed, ToolFailed
from everturn.mcp import Server
from everturn.mcp_tools import LIST_RESOURCES, has_resources
from everturn.session import SessionKey
from everturn.tools import Tool
from everturn_activities.builtin.inside import InsideContext
from everturn_activities.mcp.content import Piece, as_text

if TYPE_CHECKING:
    from everturn_activities.mcp.sdk import Listed


class Resources(Protocol):
    async def resources(
        self, key: SessionKey, spec: AgentSpec, server: Server
    ) -> "list[Listed]": ...
    async def resource(
        self, key: SessionKey, spec: AgentSpec, server: Server, uri: str
    ) -> list[Piece]: ...


def resource_tool(servers: Resources, spec: ToolSpec) -> Tool:
    async def listed(context: InsideContext, server: str | None = None) -> str:
        return await _list(servers, context, server)

    async def read(context: InsideContext, server: str, uri: str) -> str:
        return await _read(servers, context, server, uri)

    run: Any = listed if spec.name == LIST_RESOURCES else read
    return Tool(
        name=spec.name,
        description=spec.description,
        parameters=dict(spec.parameters),
        run=run,
        effect=spec.effect,
        untrusted=True,
        timeout_seconds=spec.timeout_seconds,
        context_parameter="context",
    )


async def _list(servers: Resources, context: InsideContext, named: str | None) -> str:
    key = SessionKey(context.tenant, context.session)
    asked = [
        one for one in context.spec.servers if has_resources(one) and named in (None, one.name)
    ]
    lines, failed = [], 0
    for server in asked:
        try:
            found = await servers.resources(key, context.spec, server)
        except ServerFailed as error:
            failed += 1
            lines.append(f"Server {server.name} does not say what it has: {error}")
            continue
        lines.append(f"Server {server.name}:" if found else f"Server {server.name} has none now.")
        lines += [_line(one) for one in found]
    text = "\n".join(lines)
    if failed == len(asked):
        raise ToolFailed(text)
    return text


def _line(one: "Listed") -> str:
    template = " (a template)" if one.is_template else ""
    about = f", {one.about}" if one.about else ""
    return f"- {one.uri}{template}: {one.name}{about}"


async def _read(servers: Resources, context: InsideContext, named: str, uri: str) -> str:
    key = SessionKey(context.tenant, context.session)
    server = next(one for one in context.spec.servers if one.name == named)
    try:
        pieces = await servers.resource(key, context.spec, server, uri)
    except ServerFailed as error:
        raise ToolFailed(f"Server {named} did not give it: {error}") from None
    if not pieces:
        raise ToolFailed(f"Server {named} has nothing at {uri[:200]!r}.")
    text = pieces[0].text if len(pieces) == 1 else as_text(pieces)
    if any(piece.image is not None for piece in pieces):
        text += f"\n[A person can show it to you, by @{named}:{uri} in a message.]"
    return text
