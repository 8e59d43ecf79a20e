"""The flags that many commands share; each has its `EVERTURN_*` variable."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from everturn_workers.settings import Settings

SETTINGS_FILE = "everturn.toml"

Workspace = Annotated[
    Path | None,
    typer.Option(
        help="Folder with everturn.toml; by default the nearest one above. [EVERTURN_WORKSPACE]"
    ),
]
Agent = Annotated[str | None, typer.Option(help="Who works it. [EVERTURN_AGENT]")]
Model = Annotated[
    str | None, typer.Option(help="With which model, as provider/name. [EVERTURN_MODEL]")
]
Session = Annotated[
    str | None, typer.Option(help="In which session; by default a new one. [EVERTURN_SESSION]")
]
Continue = Annotated[
    bool, typer.Option("--continue", help="Go on with the session that was used last.")
]
User = Annotated[
    str | None,
    typer.Option(help="Whose facts a new session reads and keeps. [EVERTURN_USER]"),
]
Folder = Annotated[
    Literal["shared", "worktree", "copy"] | None,
    typer.Option(
        help="Where a new session works: in the folder itself, a git worktree, or a copy of it."
        " [EVERTURN_FOLDER]"
    ),
]
Port = Annotated[int | None, typer.Option(help="Port of the API. [EVERTURN_PORT]")]
Home = Annotated[Path | None, typer.Option(help="Folder of the data. [EVERTURN_HOME]")]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout, one object a line.")]
SessionName = Annotated[str, typer.Argument(metavar="SESSION", help="Id of the session.")]


def read(**flags: object) -> "Settings":
    """The settings under these flags."""
    from everturn_workers.settings import read_settings

    return read_settings(**flags)


def session_of(settings: "Settings", go_on: bool) -> "Settings":
    """`settings` with the session that was used last, where a command is to `go_on`."""
    from everturn.errors import UsageError
    from everturn_workers.cli.active import active_session

    if not go_on:
        return settings
    if settings.session is not None:
        raise UsageError("Name one of --session and --continue.")
    return settings.model_copy(update={"session": active_session(settings.home)})


def workspace_of(settings: "Settings", start: Path) -> Path:
    """The workspace to work in: as set, or the nearest folder from `start` up that is one."""
    from everturn.errors import WorkspaceError

    if settings.workspace is not None:
        named = settings.workspace.expanduser().absolute()
        if not (named / SETTINGS_FILE).is_file():
            raise WorkspaceError(
                f"The workspace {str(named)!r} has no {SETTINGS_FILE}; create one with"
                f" 'everturn init {named}', or name another with --workspace."
            )
        return named
    if (folder := nearest_workspace(start)) is not None:
        return folder
    raise WorkspaceError(
        f"No {SETTINGS_FILE} in {str(start)!r} or above it; create a workspace with"
        " 'everturn init', or name one with --workspace."
    )


def nearest_workspace(start: Path) -> Path | None:
    """The nearest folder from `start` up that is a workspace."""
    folders = (start, *start.parents)
    return next((folder for folder in folders if (folder / SETTINGS_FILE).is_file()), None)
