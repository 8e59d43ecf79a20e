"""Folders that agents search: knowledge add, list, query, remove."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from everturn_workers.cli import options

if TYPE_CHECKING:
    from everturn.client import Client
    from everturn.views import KnowledgeView, PassagePage
    from everturn_workers.settings import Settings

LOOK_SECONDS = 0.3
SKIPPED_SHOWN = 10

Name = Annotated[
    str | None, typer.Option("--name", help="The knowledge's name; by default the folder's.")
]


def add_to(app: typer.Typer) -> None:
    knowledge = typer.Typer(
        help="Folders that agents of a workspace can search.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    knowledge.command("add")(add_folder)
    knowledge.command("list")(list_knowledge)
    knowledge.command("query")(query_knowledge)
    knowledge.command("remove")(remove_knowledge)
    app.add_typer(knowledge, name="knowledge")


def add_folder(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="What is to be searched.")],
    name: Name = None,
    workspace: options.Workspace = None,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Have a folder searched, and wait until it is read; it is read again when it changes."""
    from everturn.views import NewKnowledge
    from everturn_workers.cli.runtime import asked

    settings = options.read(port=port, home=home, workspace=workspace)
    at = _workspace(settings)
    body = NewKnowledge(name=name, folder=str(folder.expanduser().absolute()), workspace=at)

    async def added(client: "Client") -> "KnowledgeView":
        view = await client.add_knowledge(body)
        while view.indexing:
            await asyncio.sleep(LOOK_SECONDS)
            found = await client.knowledge(workspace=at)
            view = next((one for one in found if one.name == view.name), view)
        return view

    _show([asked(added, settings)], json)


def list_knowledge(
    workspace: options.Workspace = None,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """What can be searched, and what of it was left out."""
    from everturn_workers.cli.runtime import asked

    settings = options.read(port=port, home=home, workspace=workspace)
    at = _workspace(settings)
    _show(asked(lambda client: client.knowledge(workspace=at), settings), json)


def query_knowledge(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for.")],
    name: Annotated[str | None, typer.Option("--name", help="In which knowledge only.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=50, help="Passages at most.")] = 5,
    workspace: options.Workspace = None,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """The passages that fit best, with their files and lines."""
    from everturn_workers.cli.runtime import asked
    from everturn_workers.cli.show import print_json, printable

    settings = options.read(port=port, home=home, workspace=workspace)
    at = _workspace(settings)

    async def found(client: "Client") -> "PassagePage":
        return await client.query_knowledge(query, name=name, limit=limit, workspace=at)

    answer = asked(found, settings)
    for passage in answer.passages:
        if json:
            print_json(passage.model_dump())
            continue
        under = f"  {passage.heading}" if passage.heading else ""
        place = f"{passage.base}: {passage.path}:{passage.first}-{passage.last}{under}"
        typer.echo(f"{printable(place)}\n{printable(passage.text)}\n")
    for note in answer.notes:
        typer.echo(printable(note), err=True)
    if not answer.passages:
        typer.echo("No passage matches.", err=True)


def remove_knowledge(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name in the list.")],
    workspace: options.Workspace = None,
    port: options.Port = None,
    home: options.Home = None,
) -> None:
    """Search a folder no more; its files stay where they are."""
    from everturn_workers.cli.runtime import asked

    settings = options.read(port=port, home=home, workspace=workspace)
    at = _workspace(settings)
    asked(lambda client: client.remove_knowledge(name, workspace=at), settings)
    typer.echo(f"Knowledge {name} is searched no more.", err=True)


def _show(views: "list[KnowledgeView]", json: bool) -> None:
    from rich.text import Text

    from everturn_workers.cli.sessions import new_table, print_table
    from everturn_workers.cli.show import print_json, printable

    if json:
        for view in views:
            print_json(view.model_dump())
        return
    shown = new_table("knowledge", "files>", "pieces>", "vectors>", "left out>", "state", "folder")
    for view in views:
        shown.add_row(
            Text(view.name),
            f"{view.files:,}",
            f"{view.chunks:,}",
            "" if view.embedding_model is None else f"{view.embedded:,}",
            f"{view.skipped_count:,}",
            "being read" if view.indexing else "read",
            Text(printable(view.folder)),
        )
    print_table(shown)
    for view in views:
        if view.problem:
            typer.echo(printable(view.problem), err=True)
        for line in view.skipped[:SKIPPED_SHOWN]:
            typer.echo(printable(f"Left out of {view.name}: {line}."), err=True)
        if view.skipped_count > SKIPPED_SHOWN:
            more = view.skipped_count - min(SKIPPED_SHOWN, len(view.skipped))
            typer.echo(f"Left out of {view.name}: {more:,} more.", err=True)


def _workspace(settings: "Settings") -> str:
    return str(options.workspace_of(settings, Path.cwd()))
