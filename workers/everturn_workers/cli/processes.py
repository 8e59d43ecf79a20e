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
) -> None:
    """Run everything in one command: Temporal, a worker and the API."""
    from everturn_workers.supervisor import Up

    settings = options.read(workspace=workspace, agent=agent, model=model, port=port, home=home)
    asyncio.run(Up(settings, _say).run())


def worker(home: options.Home = None) -> None:
    """Run a worker against EVERTURN_TEMPORAL_ADDRESS and EVERTURN_DATABASE_URL."""
    from everturn_workers.worker import serve

    serve(options.read(home=home))


def api(
    workspace: options.Workspace = None,
    port: options.Port = None,
    home: options.Home = None,
) -> None:
    """Run the HTTP API against EVERTURN_TEMPORAL_ADDRESS and EVERTURN_DATABASE_URL."""
    from everturn_workers.api import serve

    serve(options.read(workspace=workspace, port=port, home=home))


def doctor(
    workspace: options.Workspace = None,
    model: options.Model = None,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Check this machine, and say what to do where something lacks."""
    from everturn_workers.cli.show import print_json, printable
    from everturn_workers.doctor import checks

    settings = options.read(workspace=workspace, model=model, port=port, home=home)
    if settings.workspace is None:
        nearest = options.nearest_workspace(Path.cwd())
        settings = settings.model_copy(update={"workspace": nearest})
    found = asyncio.run(checks(settings))
    for check in found:
        if json:
            print_json(asdict(check))
        else:
            mend = f" {check.mend}" if check.mend else ""
            print(f"{'ok  ' if check.ok else 'lack'}  {printable(check.sentence + mend)}")
    if not all(check.ok for check in found):
        raise typer.Exit(FAILED)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
