"""Setting up and running the processes: init, up, worker, api, doctor."""

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from everturn_workers.cli import options

FAILED = 1


def add_to(app: typer.Typer) -> None:
    app.command()(init)
    app.command()(up)
    app.command()(worker)
    app.command()(api)
    app.command()(migrate)
    app.command()(doctor)


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Which folder; by default this one.")
    ] = Path("."),
    json: options.Json = False,
) -> None:
    """Make a folder a workspace: settings, an agent, a tool."""
    from everturn_activities.starter import create, starter_files
    from everturn_workers.cli.show import print_json

    folder = folder.expanduser().absolute()
    written = create(folder)
    kept = [path for path in starter_files(folder) if path not in written]
    if json:
        print_json({"written": [str(path) for path in written], "kept": [str(p) for p in kept]})
        return
    for path in written:
        print(path)
    for path in kept:
        _say(f"{path} exists and was kept.")
    _say(f"{folder} is a workspace; try: everturn run --workspace {folder} 'Say hello'")


def up(
    workspace: options.Workspace = None,
    agent: options.Agent = None,
    model: options.Model = None,
    port: options.Port = None,
    home: options.Home = None,
    config: options.Config = None,
) -> None:
    """Run everything in one command: Temporal, a worker and the API."""
    from everturn_workers.supervisor import Up

    settings = options.read(
        workspace=workspace,
        agent=agent,
        model=model,
        port=port,
        home=home,
        config=config,
    )
    asyncio.run(Up(settings, _say).run())


def worker(
    home: options.Home = None,
    config: options.Config = None,
    roles: options.Roles = None,
    turns_max: options.TurnsMax = None,
    models_max: options.ModelsMax = None,
    tools_max: options.ToolsMax = None,
    inline_max: options.InlineMax = None,
    drain_seconds: options.DrainSeconds = None,
    health_port: options.HealthPort = None,
) -> None:
    """Run a worker against EVERTURN_TEMPORAL_ADDRESS and EVERTURN_DATABASE_URL."""
    from everturn_workers.serving import serve

    slots = {"turns_max": turns_max, "models_max": models_max, "tools_max": tools_max}
    slots |= {"inline_max": inline_max, "health_port": health_port}
    serve(options.read(home=home, config=config, roles=roles, drain_seconds=drain_seconds, **slots))


def api(
    workspace: options.Workspace = None,
    port: options.Port = None,
    home: options.Home = None,
    config: options.Config = None,
) -> None:
    """Run the HTTP API against EVERTURN_TEMPORAL_ADDRESS and EVERTURN_DATABASE_URL."""
    from everturn_workers.api import serve

    serve(options.read(workspace=workspace, port=port, home=home, config=config))


def migrate(home: options.Home = None, config: options.Config = None) -> None:
    """Make or upgrade the store's tables, before processes of this version start."""
    from everturn_workers.runtime import open_runtime
    from everturn_workers.settings_secrets import masked_url

    settings = options.read(home=home, config=config)

    async def migrated() -> None:
        # Nothing else is asked for: its servers may not be there yet.
        async with open_runtime(settings.model_copy(update={"redis_url": None})):
            return

    asyncio.run(migrated())
    print(f"The store {masked_url(settings.store_url)} has the tables of this version.")


def doctor(
    workspace: options.Workspace = None,
    model: options.Model = None,
    port: options.Port = None,
    home: options.Home = None,
    config: options.Config = None,
    json: options.Json = False,
) -> None:
    """Check this machine, and say what to do where something lacks."""
    from everturn_workers.cli.show import print_json, printable
    from everturn_workers.doctor import checks

    settings = options.read(workspace=workspace, model=model, port=port, home=home, config=config)
    if settings.workspace is None:
        nearest = options.nearest_workspace(Path.cwd(), settings.home)
        settings = settings.model_copy(update={"workspace": nearest})
    found = asyncio.run(checks(settings))
    for check in found:
        if json:
            print_json(asdict(check))
        else:
            mend = f" {check.mend}" if check.mend else ""
            mark = "lack" if not check.ok else "warn" if check.mend else "ok  "
            print(f"{mark}  {printable(check.sentence + mend)}")
    if not all(check.ok for check in found):
        raise typer.Exit(FAILED)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
