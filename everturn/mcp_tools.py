"""What a turn's servers offer, as tools of its agent."""

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any

from everturn.agents import AgentSpec, ToolSpec
from everturn.context.untrusted import neutral
from everturn.mcp import PREFIX, SOURCE, TOOLS_MAX, Offer, Server, named, tool_name
from everturn.tools import may_call

DESCRIPTION_CHARACTERS_MAX = 4_000
TIMEOUT_SECONDS_MAX = 86_400.0

LIST_RESOURCES = "list_resources"
READ_RESOURCE = "read_resource"
RESOURCE_TOOLS = frozenset({LIST_RESOURCES, READ_RESOURCE})
"""Tools of an agent whose servers have resources."""


def is_served(tool: ToolSpec) -> bool:
    """Whether a server runs the tool."""
    return tool.source.startswith(SOURCE)


def names_server(listed: tuple[str, ...] | None, server: str) -> bool:
    """Whether a list of tools may name one of the server's; None names all."""
    if listed is None:
        return True
    prefix = tool_name(server, "")
    return not RESOURCE_TOOLS.isdisjoint(listed) or any(
        entry.startswith(prefix) or ("*" in entry and prefix.startswith(entry.partition("*")[0]))
        for entry in listed
        if entry.startswith(PREFIX)
    )


def names_tool(listed: tuple[str, ...] | None, name: str) -> bool:
    """Whether a list names a server's tool, by itself or by a pattern such as `mcp_files_*`."""
    if listed is None:
        return True
    return any(entry.startswith(PREFIX) and fnmatchcase(name, entry) for entry in listed)


def with_catalogues(
    spec: AgentSpec, broken: Callable[[dict[str, Any]], str | None]
) -> tuple[AgentSpec, list[str]]:
    """The spec with the tools of its servers, and what could not be taken over, in sentences.

    Tools stand in order of servers and names, whatever order a server tells them in. `broken`
    says what is wrong with a schema.
    """
    own = [tool for tool in spec.tools if not is_served(tool)]
    taken = {tool.name: f"the tool of {_of(tool)}" for tool in own}
    taken |= dict.fromkeys(spec.withheld, "a tool of this agent")
    usable: list[ToolSpec] = []
    refused: list[ToolSpec] = []
    problems = []
    lists = [
        spec.served_only,
        spec.agent.tools,
        spec.agent.allowed_tools if spec.profile.strict_allowed else None,
    ]
    for server in spec.servers:
        assert server.catalogue is not None
        offers = server.catalogue.offers
        if len(offers) > TOOLS_MAX:
            problems.append(
                f"Server {server.name} offers {len(offers)} tools; only {TOOLS_MAX} are taken over."
            )
        found, left_out = named(server.name, offers[:TOOLS_MAX], taken)
        problems += left_out
        for name, offer in found.items():
            taken[name] = f"tool {offer.name!r} of server {server.name}"
            if not all(names_tool(listed, name) for listed in lists):
                continue
            if names_tool(spec.hidden, name):
                continue
            if (reason := broken(offer.parameters)) is not None:
                problems.append(
                    f"Tool {offer.name!r} of server {server.name} is left out: its schema is"
                    f" broken: {reason}"
                )
                continue
            tool = _spec(name, offer, server)
            allowed = may_call(spec.agent.access, name, tool.effect, tool.searches)
            (usable if allowed else refused).append(tool)
    for tool in _reading(spec.servers):
        if tool.name in taken:
            problems.append(
                f"Tool {tool.name} of MCP is left out: that is the name of {taken[tool.name]}."
            )
        elif tool.name not in spec.hidden and all(
            listed is None or tool.name in listed for listed in lists
        ):
            allowed = may_call(spec.agent.access, tool.name, tool.effect, tool.searches)
            (usable if allowed else refused).append(tool)
    withheld = (*spec.withheld, *(tool.name for tool in refused))
    return spec.but(tools=(*own, *usable), withheld=withheld), [
        neutral(problem) for problem in problems
    ]


def has_resources(server: Server) -> bool:
    return server.catalogue is not None and server.catalogue.has_resources


def reads_resources(tool: ToolSpec) -> bool:
    """Whether it is one of the tools for the resources of all servers."""
    return tool.source == SOURCE


def _reading(servers: Iterable[Server]) -> list[ToolSpec]:
    """The tools for what the servers have to be read; none where that is nothing."""
    having = [server for server in servers if has_resources(server)]
    if not having:
        return []
    seconds = max(server.config.timeout_seconds for server in having)
    server = {"type": "string", "enum": [one.name for one in having]}
    uri = {"type": "string", "description": "Its address; one of a template is filled in."}
    described = {
        LIST_RESOURCES: (
            "Lists the resources of MCP servers that can be read, and templates of their"
            " addresses; of one server, or of all.",
            {"type": "object", "properties": {"server": server}, "additionalProperties": False},
        ),
        READ_RESOURCE: (
            "Reads a resource of an MCP server.",
            {
                "type": "object",
                "properties": {"server": server, "uri": uri},
                "required": ["server", "uri"],
                "additionalProperties": False,
            },
        ),
    }
    return [
        ToolSpec(
            name=name,
            description=description,
            parameters=parameters,
            effect="pure",
            # Each server is waited for as long as its settings say.
            timeout_seconds=min(seconds * 2 * len(having), TIMEOUT_SECONDS_MAX),
            source=SOURCE,
            untrusted=True,
        )
        for name, (description, parameters) in described.items()
    ]


def _of(tool: ToolSpec) -> str:
    return "everturn" if tool.source in ("builtin", "answer") else tool.source


def _spec(name: str, offer: Offer, server: Server) -> ToolSpec:
    config = server.config
    description = neutral(offer.description)
    if len(description) > DESCRIPTION_CHARACTERS_MAX:
        description = description[: DESCRIPTION_CHARACTERS_MAX - 3] + "..."
    parameters = _neutral({"type": "object", "properties": {}} | offer.parameters)
    return ToolSpec(
        name=name,
        description=description,
        parameters=parameters,
        effect=config.effects.get(offer.name, config.effect),
        timeout_seconds=config.timeout_seconds,
        source=f"{SOURCE}{server.name}",
        remote=offer.name,
        untrusted=True,
    )


def _neutral(value: Any) -> Any:
    """The same without hidden signs in any text of it."""
    match value:
        case str():
            return neutral(value)
        case list():
            return [_neutral(one) for one in value]
        case dict():
            return {neutral(str(key)): _neutral(one) for key, one in value.items()}
    return value
