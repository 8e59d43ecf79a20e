"""Sessions' own folders: folders list, folders remove."""

from typing import TYPE_CHECKING, Annotated

import typer

from everturn_workers.cli import options

if TYPE_CHECKING:
    from everturn.client import Client
    from everturn.views import SessionView


def add_to(app: typer.Typer) -> None:
    folders = typer.Typer(
        help="The folders that sessions have of their own.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    folders.command("list")(list_folders)
    folders.command("remove")(remove_folder)
    app.add_typer(folders, name="folders")


def list_folders(
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Which session works where, of those that have a folder of their own."""
    from everturn_workers.cli.runtime import asked
    from everturn_workers.cli.show import print_json

    found = asked(_owning, options.read(port=port, home=home))
    for view in found:
        if json:
            print_json(
                {
                    "session": view.id,
                    "folder": view.folder,
                    "path": view.own_dir,
                    "of": view.working_dir,
                    "home": view.home,
                    "status": view.status,
                }
            )
        else:
            # A path is to be copied, and a table would fold it.
            typer.echo(f"{view.id} ({view.status}): {view.folder} of {view.working_dir}")
            typer.echo(f"  {view.own_dir}")
    if not found and not json:
        typer.echo("No session has a folder of its own.", err=True)


async def _owning(client: "Client") -> "list[SessionView]":
    found, before = [], None
    while True:
        page = await client.sessions(200, before)
        found += [view for view in page.sessions if view.own_dir is not None]
        before = page.before
        if before is None:
            return found


def remove_folder(
    session: options.SessionName,
    force: Annotated[
        bool, typer.Option("--force", help="Also where work would be lost with it.")
    ] = False,
    port: options.Port = None,
    home: options.Home = None,
) -> None:
    """Remove a session's own folder; its next turn would make another."""
    from everturn_workers.cli.runtime import asked

    settings = options.read(port=port, home=home)
    removed = asked(lambda client: client.remove_folder(session, force), settings)
    if removed.left_at is not None:
        typer.echo(
            f"Session {session} gave up {removed.path}; the files are left at the home with the id"
            f" {removed.left_at}.",
            err=True,
        )
        return
    kept = f" The branch {removed.branch} keeps its commits." if removed.branch else ""
    typer.echo(f"Removed {removed.path}.{kept}", err=True)
