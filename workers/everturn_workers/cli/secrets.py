"""Secrets: secrets list."""

from pathlib import Path

import typer

from everturn_workers.cli import options


def add_to(app: typer.Typer) -> None:
    secrets = typer.Typer(
        help="What agents' tools may read without anybody being told of it.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    secrets.command("list")(list_secrets)
    app.add_typer(secrets, name="secrets")


def list_secrets(workspace: options.Workspace = None, json: options.Json = False) -> None:
    """The secrets that the workspace names, where each is, and whether it is there. No values."""
    import os

    from rich.text import Text

    from everturn_activities.vault import Vault
    from everturn_activities.workspace import load
    from everturn_workers.cli.sessions import new_table, print_table
    from everturn_workers.cli.show import print_json, printable

    loaded = load(options.workspace_of(options.read(workspace=workspace), Path.cwd()))
    named = loaded.settings.secrets
    missing = Vault(os.environ).missing(loaded.path, named, named)
    shown = new_table("secret", "source", "found")
    for name, source in sorted(named.items()):
        if json:
            told = {"name": name, "source": str(source), "found": name not in missing}
            print_json({**told, "reason": missing.get(name)})
            continue
        found = missing.get(name, "yes")
        shown.add_row(name, Text(printable(str(source))), Text(printable(found)))
    if not json:
        print_table(shown)
