"""What a turn's servers offer, as tools of its agent."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from everturn.agents import AgentSpec, ToolSpec
from everturn.context.untrusted import neutral
from everturn.mcp import PREFIX, SOURCE, TOOLS_MAX, Offer, Server, named, tool_name
from everturn.tools import may_call

DESCRIPTION_CHARACTERS_MAX = 4_000


def is_served(tool: ToolSpec) -> bool:
    """Whether a server runs the tool."""
    return tool.source.startswith(SOURCE)


def names_server(listed: tuple[str, ...] | None, server: str) -> bool:
    """Whether a list of tools may name one of the server's; None names all."""
    if listed is None:
        return True
    prefix = tool_name(server, "")
    return any(
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
    usable, withheld, problems = [], [], []
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
            if may_call(spec.agent.access, name, tool.effect, tool.searches):
                usable.append(tool)
            else:
                withheld.append(name)
    tools, hidden = (*own, *usable), (*spec.withheld, *withheld)
    return spec.but(tools=tools, withheld=hidden), [neutral(problem) for problem in problems]


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
