"""Looking at skills: skills list, check, show."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from everturn_workers.cli import options

if TYPE_CHECKING:
    from everturn.skills import Skill
    from everturn_activities.skills.shelf import Shelf

FAILED = 1


def add_to(app: typer.Typer) -> None:
    skills = typer.Typer(
        help="Look at the skills of an agent.", no_args_is_help=True, rich_markup_mode=None
    )
    skills.command("list")(list_skills)
    skills.command("check")(check_skills)
    skills.command("show")(show_skill)
    app.add_typer(skills, name="skills")


def list_skills(
    workspace: options.Workspace = None,
    agent: options.Agent = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """The skills that an agent has: whose they are, and who may ask for them."""
    from everturn_workers.cli.sessions import new_table, one_line, print_table
    from everturn_workers.cli.show import print_json

    catalogue = asyncio.run(_shelf(workspace, agent, home).catalogue())
    if json:
        for skill in catalogue.skills:
            print_json({"name": skill.name, "path": skill.path, "file": skill.file,
                        "trust": skill.trust, "asked_by": _asked_by(skill),
                        "description": skill.description})  # fmt: skip
        return
    table = new_table("skill", "whose", "asked for by", "description", "path")
    for skill in catalogue.skills:
        table.add_row(
            skill.name,
            skill.source if skill.trust == "store" else skill.trust,
            _asked_by(skill),
            one_line(skill.description),
            one_line(skill.path),
        )
    print_table(table)
    for skill, lacks in catalogue.lacking:
        typer.echo(f"Skill {skill.name} is left out: it needs {lacks}.", err=True)
    if catalogue.problems:
        count = len(catalogue.problems)
        told = "is 1 problem" if count == 1 else f"are {count} problems"
        typer.echo(f"There {told}: see 'everturn skills check'.", err=True)


def check_skills(
    workspace: options.Workspace = None,
    agent: options.Agent = None,
    home: options.Home = None,
) -> None:
    """What is wrong with the skills of an agent, one sentence a line; exit code 1 if anything."""
    from everturn_workers.cli.show import printable

    catalogue = asyncio.run(_shelf(workspace, agent, home).catalogue())
    for problem in catalogue.problems:
        typer.echo(printable(problem))
    if catalogue.problems:
        raise typer.Exit(FAILED)
    typer.echo(f"{len(catalogue.skills)} skills, and nothing is wrong with them.", err=True)


def show_skill(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the skill.")],
    workspace: options.Workspace = None,
    agent: options.Agent = None,
    home: options.Home = None,
) -> None:
    """The text of a skill, as its file has it."""
    from everturn.errors import UsageError
    from everturn_activities.definitions import meant
    from everturn_activities.texts import UnreadableError
    from everturn_workers.cli.show import printable

    shelf = _shelf(workspace, agent, home)

    async def found() -> "tuple[Skill, str]":
        catalogue = await shelf.catalogue()
        skill = catalogue.find(name)
        if skill is None:
            known = [one.name for one in catalogue.skills]
            raise UsageError(
                f"There is no skill {name[:80]!r}{meant(name, known)}; 'everturn skills list' names"
                " those there are."
            )
        try:
            return skill, await shelf.body(skill)
        except UnreadableError as error:
            raise UsageError(str(error)) from None

    skill, body = asyncio.run(found())
    typer.echo(f"{skill.name}: {printable(skill.description)}", err=True)
    typer.echo(f"{skill.file} ({skill.trust}, asked for by {_asked_by(skill)})\n", err=True)
    typer.echo(printable(body))


def _asked_by(skill: "Skill") -> str:
    if skill.is_always_on:
        return "always on"
    who = [("the model", skill.model_invocable), (f"/{skill.name}", skill.user_invocable)]
    return " and ".join(one for one, may in who if may) or "nobody"


def _shelf(workspace: Path | None, agent: str | None, home: Path | None) -> "Shelf":
    from everturn_activities.skills.shelf import Skills
    from everturn_activities.workspace import load

    settings = options.read(workspace=workspace, agent=agent, home=home)
    loaded = load(options.workspace_of(settings, Path.cwd()))
    return Skills(settings.home).shelf(loaded.spec(settings.agent))
