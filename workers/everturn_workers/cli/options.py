"""The flags that many commands share; each has its `EVERTURN_*` variable."""

import sys
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from everturn_workers.settings import Settings

SETTINGS_FILE = "everturn.toml"
PRECEDENCE = (
    "A flag wins over its variable EVERTURN_NAME, that over the file everturn.toml in the home"
    " folder (or the one that --config or EVERTURN_CONFIG names), and that over the default."
)

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
Roles = Annotated[
    str | None,
    typer.Option(
        help="What it works, with commas between: turns, models, tools; by default all."
        " [EVERTURN_ROLES]"
    ),
]
TurnsMax = Annotated[
    int | None,
    typer.Option(help="Turns whose next step is begun at a time. [EVERTURN_TURNS_MAX]"),
]
ModelsMax = Annotated[
    int | None, typer.Option(help="Queued calls of models at a time. [EVERTURN_MODELS_MAX]")
]
ToolsMax = Annotated[
    int | None, typer.Option(help="Queued calls of tools at a time. [EVERTURN_TOOLS_MAX]")
]
InlineMax = Annotated[
    int | None,
    typer.Option(help="Quick calls at a time, where turns are worked. [EVERTURN_INLINE_MAX]"),
]
DrainSeconds = Annotated[
    float | None,
    typer.Option(help="How long calls may go on when it is told to end. [EVERTURN_DRAIN_SECONDS]"),
]
ApiUrl = Annotated[
    str | None,
    typer.Option(help="An API elsewhere that commands talk with. [EVERTURN_API_URL]"),
]
HealthPort = Annotated[
    int | None,
    typer.Option(help="Where it answers /healthz and /readyz. [EVERTURN_HEALTH_PORT]"),
]
Home = Annotated[Path | None, typer.Option(help="Folder of the data. [EVERTURN_HOME]")]
Config = Annotated[
    Path | None,
    typer.Option(help="File of settings; by default everturn.toml in the home. [EVERTURN_CONFIG]"),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout, one object a line.")]
SessionName = Annotated[str, typer.Argument(metavar="SESSION", help="Id of the session.")]


_before_command: ContextVar[str | None] = ContextVar("api_url", default=None)


def before_command(api_url: ApiUrl = None) -> None:
    """The flags that stand before a command's name."""
    _before_command.set(api_url)


def read(**flags: object) -> "Settings":
    """The settings under these flags. Variables that are none are told of on stderr."""
    from everturn_workers.settings import read_settings, unknown_variables

    settings = read_settings(**{"api_url": _before_command.get(), **flags})
    for sentence in unknown_variables():
        print(sentence, file=sys.stderr)
    return settings


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

    if settings.api_url is not None:
        # It is a folder of the machine where the API is.
        if settings.workspace is None or not settings.workspace.is_absolute():
            raise WorkspaceError(
                f"Name the workspace by its whole path where the API {settings.api_url} is, with"
                " --workspace or EVERTURN_WORKSPACE."
            )
        return settings.workspace
    if settings.workspace is not None:
        named = settings.workspace.expanduser().absolute()
        if named.resolve() == settings.home.resolve():
            raise WorkspaceError(
                f"The folder {str(named)!r} is the home folder, whose {SETTINGS_FILE} is another;"
                " name a workspace with --workspace, or create one with 'everturn init DIR'."
            )
        if not (named / SETTINGS_FILE).is_file():
            raise WorkspaceError(
                f"The workspace {str(named)!r} has no {SETTINGS_FILE}; create one with"
                f" 'everturn init {named}', or name another with --workspace."
            )
        return named
    if (folder := nearest_workspace(start, settings.home)) is not None:
        return folder
    raise WorkspaceError(
        f"No {SETTINGS_FILE} in {str(start)!r} or above it; create a workspace with"
        " 'everturn init', or name one with --workspace."
    )


def nearest_workspace(start: Path, home: Path) -> Path | None:
    """The nearest folder from `start` up that is a workspace; the home, whose file has the same
    name, is none."""
    folders = (folder for folder in (start, *start.parents) if (folder / SETTINGS_FILE).is_file())
    return next((folder for folder in folders if folder.resolve() != home.resolve()), None)
