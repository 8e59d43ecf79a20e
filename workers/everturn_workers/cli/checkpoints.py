"""File checkpoints: checkpoints list, checkpoints restore."""

import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from everturn_workers.cli import options

if TYPE_CHECKING:
    from everturn.views import RestoredView

_SIGNS = {"made": "+", "changed": "~", "removed": "-"}


def add_to(app: typer.Typer) -> None:
    checkpoints = typer.Typer(
        help="What tools did to files, and putting that back.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    checkpoints.command("list")(list_checkpoints)
    checkpoints.command("restore")(restore)
    app.add_typer(checkpoints, name="checkpoints")


def list_checkpoints(
    session: options.SessionName,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """The steps of a session that changed files: + made, ~ changed, - removed."""
    from everturn_workers.cli.runtime import asked
    from everturn_workers.cli.show import print_json, printable

    settings = options.read(port=port, home=home)
    found = asked(lambda client: client.checkpoints(session), settings)
    for view in found:
        if json:
            print_json(view.model_dump())
            continue
        at = f"{datetime.fromtimestamp(view.at):%Y-%m-%d %H:%M}"
        typer.echo(f"{view.turn}.{view.step} {at} {', '.join(view.tools)}")
        for file in view.files:
            lost = "" if file.known else " (what it held was not kept)"
            typer.echo(f"  {_SIGNS[file.change]} {printable(file.path)}{lost}")
        if view.unrecorded:
            typer.echo(f"  and {view.unrecorded} more that are not recorded")
        if view.left_out:
            typer.echo(f"  too large or too many to be kept: {view.left_out}")
    if not found and not json:
        typer.echo(f"No tool of session {session} has changed a file.", err=True)


def restore(
    session: options.SessionName,
    step: Annotated[
        str, typer.Argument(metavar="TURN.STEP", help="Files become what they were before it.")
    ],
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Put files back as they were before a step; what others changed since stays as it is."""
    from everturn.errors import UsageError
    from everturn_workers.cli.runtime import asked
    from everturn_workers.cli.show import print_json

    place = re.fullmatch(r"([1-9][0-9]{0,8})(?:\.([1-9][0-9]{0,8}))?", step)
    if place is None:
        raise UsageError(f"The step {step[:40]!a} is not possible; write TURN.STEP such as 2.1.")
    turn, number = int(place[1]), int(place[2] or 1)
    settings = options.read(port=port, home=home)
    restored = asked(lambda client: client.restore_files(session, turn, number), settings)
    if json:
        print_json(restored.model_dump())
        return
    show_restored(restored)


def show_restored(restored: "RestoredView") -> None:
    from everturn_workers.cli.show import printable

    for path in restored.files:
        typer.echo(f"put back {printable(path)}")
    for kept in restored.kept:
        typer.echo(f"left {printable(kept.path)}: {printable(kept.why)}", err=True)
    for note in restored.notes:
        typer.echo(note, err=True)
    if not restored.files and not restored.kept and not restored.notes:
        typer.echo("No file had to be put back.", err=True)
