"""What is remembered: memory list, add, forget."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from everturn_workers.cli import options

if TYPE_CHECKING:
    from rich.text import Text

    from everturn.client import Client
    from everturn.memory import FactScope
    from everturn.views import FactView
    from everturn_workers.settings import Settings

OfSession = Annotated[
    str | None, typer.Option("--of", metavar="SESSION", help="Facts of this session.")
]
OfUser = Annotated[bool, typer.Option("--user", help="Facts of the user, in every project.")]
Whose = Annotated[
    str | None,
    typer.Option("--whose", metavar="USER", help="Of which user. [EVERTURN_USER]"),
]
OfProject = Annotated[bool, typer.Option("--project", help="Facts of the workspace.")]


def add_to(app: typer.Typer) -> None:
    memory = typer.Typer(
        help="What agents remember, and what they are to forget.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    memory.command("list")(list_facts)
    memory.command("add")(add_fact)
    memory.command("forget")(forget_fact)
    app.add_typer(memory, name="memory")


def list_facts(
    session: OfSession = None,
    user: OfUser = False,
    whose: Whose = None,
    project: OfProject = False,
    replaced: Annotated[
        bool, typer.Option("--replaced", help="Also what a consolidation has replaced.")
    ] = False,
    workspace: options.Workspace = None,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """The facts of a session, of the user or of the workspace; by default of the last two."""
    from everturn_workers.cli.runtime import asked
    from everturn_workers.cli.sessions import new_table, one_line, print_table
    from everturn_workers.cli.show import print_json

    settings = options.read(port=port, home=home, workspace=workspace, user=whose)
    user = user or whose is not None
    scope = None if not (session or user or project) else _scope(session, user, project)
    folder = None if scope in ("session", "user") else _workspace(settings)
    person = settings.user if scope in (None, "user") else None

    async def found(client: "Client") -> "list[FactView]":
        return await client.facts(
            scope, session=session, workspace=folder, user=person, replaced=replaced
        )

    facts = asked(found, settings)
    if json:
        for fact in facts:
            print_json(fact.model_dump())
        return
    shown = new_table("scope", "fact>", "since", "from", "text")
    for fact in facts:
        sources = ", ".join(f"{s.session} {s.turn}.{s.step}" for s in fact.sources)
        shown.add_row(
            _scope_of(fact),
            str(fact.n),
            f"{datetime.fromtimestamp(fact.created_at):%Y-%m-%d %H:%M}",
            one_line(sources or "a person"),
            _text(fact),
        )
    print_table(shown)


def add_fact(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The fact, in one sentence.")],
    session: OfSession = None,
    user: OfUser = False,
    whose: Whose = None,
    project: OfProject = False,
    workspace: options.Workspace = None,
    port: options.Port = None,
    home: options.Home = None,
) -> None:
    """Have a fact remembered."""
    from everturn.views import NewFact
    from everturn_workers.cli.runtime import asked

    settings = options.read(port=port, home=home, workspace=workspace, user=whose)
    scope = _scope(session, user or whose is not None, project)
    folder = _workspace(settings) if project else None
    person = settings.user if scope == "user" else None
    fact = NewFact(scope=scope, text=text, session=session, workspace=folder, user=person)
    kept = asked(lambda client: client.add_fact(fact), settings)
    typer.echo(f"Remembered as {kept.scope} fact {kept.n}.", err=True)


def forget_fact(
    fact: Annotated[int, typer.Argument(min=1, metavar="FACT", help="Its number in the list.")],
    session: OfSession = None,
    user: OfUser = False,
    whose: Whose = None,
    project: OfProject = False,
    workspace: options.Workspace = None,
    port: options.Port = None,
    home: options.Home = None,
) -> None:
    """Forget a fact for good, with all that it stands for."""
    from everturn_workers.cli.runtime import asked

    settings = options.read(port=port, home=home, workspace=workspace, user=whose)
    scope = _scope(session, user or whose is not None, project)
    folder = _workspace(settings) if project else None
    person = settings.user if scope == "user" else None
    asked(
        lambda client: client.forget_fact(
            scope, fact, session=session, workspace=folder, user=person
        ),
        settings,
    )
    typer.echo(f"Forgot {scope} fact {fact}.", err=True)


def _scope(session: str | None, user: bool, project: bool) -> "FactScope":
    from everturn.errors import UsageError

    if (session is not None) + user + project != 1:
        raise UsageError("Name one of --of SESSION, --user and --project.")
    return "session" if session is not None else "user" if user else "project"


def _scope_of(fact: "FactView") -> str:
    from everturn.memory import USER

    named = fact.scope == "user" and fact.owner != USER
    return f"user {fact.owner}" if named else fact.scope


def _workspace(settings: "Settings") -> str:
    return str(options.workspace_of(settings, Path.cwd()))


def _text(fact: "FactView") -> "Text":
    from rich.text import Text

    from everturn_workers.cli.show import printable

    by = "" if fact.replaced_by is None else f" [in fact {fact.replaced_by}]"
    return Text(printable(" ".join(fact.text.split())) + by)
