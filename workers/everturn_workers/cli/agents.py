"""Agents: agents list, show, check."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from everturn_workers.cli import options

if TYPE_CHECKING:
    from everturn.agents import AgentSpec
    from everturn.hooks import Hooks
    from everturn_activities.workspace import Workspace

AgentName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the agent.")]


def add_to(app: typer.Typer) -> None:
    agents = typer.Typer(
        help="Who can work: the workspace's agents, and the presets.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    agents.command("list")(list_agents)
    agents.command("show")(show_agent)
    agents.command("check")(check_agents)
    app.add_typer(agents, name="agents")


def list_agents(
    workspace: options.Workspace = None,
    all_: Annotated[bool, typer.Option("--all", help="Those that are not visible too.")] = False,
    json: options.Json = False,
) -> None:
    """The agents, with their models and what they may do."""
    from rich.text import Text

    from everturn_workers.cli.sessions import new_table, print_table
    from everturn_workers.cli.show import print_json, printable

    loaded = _loaded(workspace)
    shown = new_table("agent", "model", "profile", "access", "steps>", "description")
    for name in loaded.agents:
        spec = loaded.own_spec(name)
        agent = spec.agent
        if not agent.visible and not all_:
            continue
        if json:
            print_json({**_told(spec), "description": agent.description})
            continue
        shown.add_row(
            Text(name, style=agent.color or ""),
            Text(printable(agent.model)),
            spec.profile.name,
            agent.access,
            str(agent.steps_max),
            Text(printable(" ".join(agent.description.split()))),
        )
    if not json:
        print_table(shown)


def show_agent(
    name: AgentName, workspace: options.Workspace = None, json: options.Json = False
) -> None:
    """All that holds for an agent, wherever it is said."""
    from everturn_workers.cli.show import print_json, printable

    spec = _loaded(workspace).own_spec(name)
    if json:
        print_json({**spec.agent.model_dump(), **_told(spec)})
        return
    agent = spec.agent
    print(f"{agent.title or agent.name}: {agent.description}".rstrip(": "))
    known = {**agent.model_dump(exclude_defaults=True), **_told(spec)}
    if agent.hooks.all:
        known["hooks"] = _hooks(agent.hooks)
    for key, value in known.items():
        if key not in ("name", "title", "description", "prompt"):
            print(f"  {key}: {printable(_shown(value))}")
    print(f"\n{printable(agent.prompt)}" if agent.prompt else "\nIt has no prompt of its own.")


def check_agents(workspace: options.Workspace = None) -> None:
    """Say of each agent whether it can work, or what is wrong in which line."""
    from everturn.errors import UsageError
    from everturn_workers.cli.show import printable

    loaded = _loaded(workspace)
    wrong = 0
    for note in loaded.notes:
        typer.echo(printable(note), err=True)
    for name in loaded.agents:
        try:
            spec = loaded.own_spec(name)
        except UsageError as error:
            wrong += 1
            typer.echo(printable(str(error)), err=True)
        else:
            tools = f"{len(spec.tools)} tools, {spec.agent.access} access"
            print(printable(f"{name}: {spec.agent.model}, profile {spec.profile.name}, {tools}."))
    if wrong:
        raise typer.Exit(2)


def _loaded(workspace: Path | None) -> "Workspace":
    from everturn_activities.workspace import load

    return load(options.workspace_of(options.read(workspace=workspace), Path.cwd()))


def _told(spec: "AgentSpec") -> dict[str, object]:
    return {
        "name": spec.agent.name,
        "model": spec.agent.model,
        "profile": spec.profile.name,
        "access": spec.agent.access,
        "steps_max": spec.agent.steps_max,
        "tools": [tool.name for tool in spec.tools],
        "withheld": list(spec.withheld),
    }


def _hooks(hooks: "Hooks") -> list[str]:
    """When each runs, beside which tools, and its program: an argument may be a secret."""
    told = [f"AgentSpawn runs {hook.shown}" for hook in hooks.agent_spawn]
    beside = {"PreToolUse": hooks.pre_tool_use, "PostToolUse": hooks.post_tool_use}
    for moment, of_tools in beside.items():
        told += [f"{moment} of {'|'.join(one.matcher)} runs {one.shown}" for one in of_tools]
    return [*told, *(f"TurnEnd runs {hook.shown}" for hook in hooks.turn_end)]


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(one)}" for key, one in value.items())
    return str(value)
