"""Settings: config show."""

import os
import sys
from dataclasses import asdict

import typer

from everturn_workers.cli import options


def add_to(app: typer.Typer) -> None:
    config = typer.Typer(
        help=f"The settings of this runtime. {options.PRECEDENCE}",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    config.command("show")(show)
    app.add_typer(config, name="config")


def show(
    workspace: options.Workspace = None,
    agent: options.Agent = None,
    model: options.Model = None,
    port: options.Port = None,
    home: options.Home = None,
    config: options.Config = None,
    json: options.Json = False,
) -> None:
    """Every setting that is in force, secrets masked, and where it comes from."""
    from rich.text import Text

    from everturn_workers.cli.sessions import new_table, print_table
    from everturn_workers.cli.show import print_json, printable
    from everturn_workers.settings import settings_file
    from everturn_workers.settings_shown import shown

    flags = {
        "workspace": workspace,
        "agent": agent,
        "model": model,
        "port": port,
        "home": home,
        "config": config,
    }
    settings = options.read(**flags)
    file = settings_file(settings).path
    table = new_table("setting", "value", "from")
    for one in shown(settings, **flags):
        if json:
            print_json(asdict(one))
        else:
            # The whole path stands below, once.
            places = " and ".join(one.sources).replace(str(file), file.name)
            told = (one.name, one.text, places)
            table.add_row(*(Text(printable(text)) for text in told))
    if not json:
        print_table(table)
        there = "" if os.path.exists(file) else ", which is not there"
        print(f"The file of settings is {printable(str(file))}{there}.", file=sys.stderr)
