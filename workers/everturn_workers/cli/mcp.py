"""MCP servers: mcp list, add, test, login, logout, accept."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from everturn_workers.cli import options

if TYPE_CHECKING:
    from everturn.mcp import Catalogue, ServerConfig
    from everturn_activities.mcp.sign_ins import Kept
    from everturn_activities.workspace import Workspace

FAILED = 1

ServerName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the server.")]


def add_to(app: typer.Typer) -> None:
    mcp = typer.Typer(
        help="MCP servers, whose tools agents of a workspace have.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    mcp.command("list")(list_servers)
    mcp.command("add", context_settings={"ignore_unknown_options": True})(add_server)
    mcp.command("test")(try_server)
    mcp.command("login")(login)
    mcp.command("logout")(logout)
    mcp.command("accept")(accept_servers)
    app.add_typer(mcp, name="mcp")


def list_servers(
    workspace: options.Workspace = None, home: options.Home = None, json: options.Json = False
) -> None:
    """The servers of the workspace: what is run or called, what a repeated call would mean, and
    whether somebody is signed in."""
    from everturn_workers.cli.sessions import new_table, one_line, print_table
    from everturn_workers.cli.show import print_json

    settings, loaded = options.read(workspace=workspace, home=home), _workspace(workspace)
    table = new_table("server", "kind", "effect", "stateful", "sign-in", "command or address")
    for name, config in sorted(loaded.settings.mcp.servers.items()):
        kind = "http" if config.url is not None else "stdio"
        if json:
            told = {"name": name, "kind": kind, **config.model_dump(mode="json")}
            print_json({**told, "sign_in": _standing(settings.home, loaded.path, name, config)})
        else:
            stateful = "yes" if config.stateful else ""
            standing = _standing(settings.home, loaded.path, name, config) or ""
            table.add_row(name, kind, config.effect, stateful, standing, one_line(config.shown))
    if json:
        return
    if not loaded.settings.mcp.servers:
        typer.echo("The workspace has no MCP servers; 'everturn mcp add' adds one.", err=True)
        return
    print_table(table)


def add_server(
    name: ServerName,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND [ARG]...]", help="What runs it.", show_default=False),
    ] = None,
    url: Annotated[str | None, typer.Option(help="Where it is, in place of a command.")] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(help="A variable of your environment that it gets, by name; repeatable."),
    ] = None,
    stateful: Annotated[
        bool, typer.Option("--stateful", help="It remembers what a session did: one for each.")
    ] = False,
    workspace: options.Workspace = None,
) -> None:
    """Add a server to everturn.toml."""
    from everturn.errors import UsageError
    from everturn.mcp import ServerConfig, demand_server_name
    from everturn_activities.definitions import validated
    from everturn_activities.workspace import SETTINGS_FILE

    loaded = _workspace(workspace)
    if name in loaded.settings.mcp.servers:
        raise UsageError(f"There is a server {name!r} already; mend it in {SETTINGS_FILE}.")
    try:
        demand_server_name(name)
    except ValueError as error:
        said = str(error)
        raise UsageError(f"{said[0].upper()}{said[1:]}.") from None
    values: dict[str, object] = {}
    if command:
        values["command"] = command[0]
        values["args"] = command[1:]
    if url is not None:
        values["url"] = url
    if env:
        values["env"] = env
    if stateful:
        values["stateful"] = True
    file = loaded.path / SETTINGS_FILE
    validated(ServerConfig, values, file, "")
    before = file.read_text("utf-8")
    lines = [f"[mcp.servers.{name}]", *(f"{key} = {_toml(one)}" for key, one in values.items())]
    gap = "" if not before or before.endswith("\n") else "\n"
    file.write_text(f"{before}{gap}\n" + "\n".join(lines) + "\n", "utf-8")
    typer.echo(f"Added; 'everturn mcp test {name}' shows what it offers.", err=True)


def try_server(
    name: ServerName,
    workspace: options.Workspace = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Launch a server and show what it offers, under the names that models and people use."""
    from everturn.context.untrusted import neutral
    from everturn.errors import ServerFailed
    from everturn.mcp import named
    from everturn_activities.toolbox import broken_schema
    from everturn_workers.cli.sessions import new_table, one_line, print_table
    from everturn_workers.cli.show import print_json, printable

    settings = options.read(workspace=workspace, home=home)
    loaded = _workspace(workspace)
    config = _config(loaded, name)
    try:
        catalogue = asyncio.run(_asked(loaded.path, settings.home, name, config))
    except ServerFailed as error:
        typer.echo(printable(str(error)), err=True)
        raise typer.Exit(FAILED) from None
    taken = dict.fromkeys(loaded.tools, "a tool of this workspace")
    found, problems = named(name, catalogue.offers, taken)
    table = new_table("tool", "there", "effect", "description")
    for tool, offer in found.items():
        if (reason := broken_schema(offer.parameters)) is not None:
            problems.append(f"Tool {offer.name!r} is left out: its schema is broken: {reason}")
            continue
        effect = config.effects.get(offer.name, config.effect)
        if json:
            told = {"name": tool, "there": offer.name, "effect": effect, "digest": offer.digest}
            print_json({**told, "description": offer.description})
        else:
            about = one_line(neutral(offer.description))
            table.add_row(tool, one_line(neutral(offer.name)), effect, about)
    if not json:
        print_table(table)
        _show_prompts(name, catalogue)
        if catalogue.has_resources:
            typer.echo(
                f"It has resources: agents list and read them, people name them by @{name}:URI."
            )
    for problem in problems:
        typer.echo(printable(problem), err=True)
    version = printable(catalogue.version) or "unknown"
    typer.echo(f"Server {name}, version {version}, digest {catalogue.digest[:16]}.", err=True)
    if problems:
        raise typer.Exit(FAILED)


def _show_prompts(server: str, catalogue: "Catalogue") -> None:
    from everturn.context.untrusted import neutral
    from everturn.mcp import tool_name
    from everturn.mcp_prompts import written
    from everturn_workers.cli.sessions import new_table, one_line, print_table

    if not catalogue.prompts:
        return
    table = new_table("prompt", "arguments", "description")
    for prompt in catalogue.prompts:
        name = one_line(tool_name(server, prompt.name))
        arguments = one_line(neutral(" ".join(written(prompt))))
        table.add_row(f"/{name}", arguments, one_line(neutral(prompt.description)))
    print_table(table)


def login(
    name: ServerName,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the address in a browser.")
    ] = True,
    workspace: options.Workspace = None,
    home: options.Home = None,
) -> None:
    """Sign in at a server, by OAuth, for all workers of the home."""
    import logging

    from everturn.errors import ServerFailed, UsageError
    from everturn_workers.cli.show import printable

    settings, loaded = options.read(workspace=workspace, home=home), _workspace(workspace)
    config = _config(loaded, name)
    if config.url is None:
        raise UsageError(f"Server {name} is a program; who signs in does so at an address.")
    if any(one.lower() == "authorization" for one in config.headers):
        raise UsageError(f"Server {name} is sent a header Authorization; take that away first.")
    # What the SDK logs of a sign-in that fails is for its own authors.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)

    def told(url: str) -> None:
        typer.echo(f"Sign in at {printable(url)}", err=True)
        if browser:
            typer.launch(url)

    try:
        asyncio.run(_sign_in(loaded, settings.home, name, config, told))
    except ServerFailed as error:
        typer.echo(printable(f"Nobody was signed in at {name}: {error}."), err=True)
        raise typer.Exit(FAILED) from None
    typer.echo(f"Signed in; 'everturn mcp test {name}' shows what {name} offers.", err=True)


def logout(
    name: ServerName, workspace: options.Workspace = None, home: options.Home = None
) -> None:
    """Forget a sign-in, in all workers of the home."""
    settings, loaded = options.read(workspace=workspace, home=home), _workspace(workspace)
    kept = _kept(settings.home, loaded.path, name, _config(loaded, name))
    if kept is None or not kept.remove():
        typer.echo(f"Nobody is signed in at {name}.", err=True)
        raise typer.Exit(FAILED)
    typer.echo(f"Signed out of {name}.", err=True)


def _config(loaded: "Workspace", name: str) -> "ServerConfig":
    from everturn.errors import UsageError
    from everturn_activities.definitions import meant

    known = loaded.settings.mcp.servers
    if name not in known:
        raise UsageError(
            f"There is no server {name[:80]!r}{meant(name, known)}; 'everturn mcp list' names those"
            " there are."
        )
    return known[name]


def _kept(home: Path, workspace: Path, name: str, config: "ServerConfig") -> "Kept | None":
    from everturn_activities.mcp.sign_ins import Kept

    return None if config.url is None else Kept(home, str(workspace), name, config.url)


def _standing(home: Path, workspace: Path, name: str, config: "ServerConfig") -> str | None:
    """Whether somebody is signed in; None where nobody needs to be, as far as that is known."""
    import time

    kept = _kept(home, workspace, name, config)
    found = kept.read() if kept is not None else None
    if found is not None:
        return found.standing(time.time())
    return None if config.oauth is None else "signed out"


async def _sign_in(
    loaded: "Workspace",
    home: Path,
    name: str,
    config: "ServerConfig",
    told: Callable[[str], None],
) -> None:
    from everturn_activities.mcp.login import sign_in
    from everturn_activities.mcp.pool import Place, Pool
    from everturn_activities.vault import Vault

    kept = _kept(home, loaded.path, name, config)
    assert kept is not None
    named = config.oauth.client_secret if config.oauth is not None else None
    secret = None
    if named is not None:
        pool = Pool(Vault(os.environ), home)
        secret = await pool.value(Place(str(loaded.path), name, config), named)
    await sign_in(name, config, kept, told, secret)


def accept_servers(
    session: options.SessionName, port: options.Port = None, home: options.Home = None
) -> None:
    """Let a session take its servers, from its next turn on, as they are then."""
    from everturn_workers.cli.runtime import asked

    settings = options.read(port=port, home=home)
    asked(lambda client: client.accept_servers(session), settings)
    typer.echo("Its next turn takes its servers as they are then.", err=True)


async def _asked(workspace: Path, home: Path, name: str, config: "ServerConfig") -> "Catalogue":
    from everturn.session import SessionKey
    from everturn_activities.mcp.manager import Manager
    from everturn_activities.mcp.pool import Pool
    from everturn_activities.mcp.requests import GetToolSpecs, LaunchServer
    from everturn_activities.vault import Vault

    pool = Pool(Vault(os.environ), home)
    try:
        manager = Manager(pool, SessionKey("", ""), str(workspace))
        await manager.handle(LaunchServer(server_name=name, config=config))
        found: Catalogue = await manager.handle(GetToolSpecs(server_name=name))
        return found
    finally:
        await pool.close()


def _workspace(named: Path | None) -> "Workspace":
    from everturn_activities.workspace import load

    return load(options.workspace_of(options.read(workspace=named), Path.cwd()))


def _toml(value: object) -> str:
    """`value` as TOML, whose strings and arrays are JSON's but for a control character."""
    from json import dumps

    return dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
