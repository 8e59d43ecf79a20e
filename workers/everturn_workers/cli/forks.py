"""Other ways on from a step: fork, rewind."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from everturn_workers.cli import options

if TYPE_CHECKING:
    from everturn.forks import EditedResult
    from everturn.views import SessionView

At = Annotated[
    str | None,
    typer.Option(
        metavar="TURN[.STEP]", help="Behind that turn or step; by default all that is finished."
    ),
]


_UNRECORDED = {
    "refuse": "is refused",
    "pure": "runs only if its tool changes nothing",
    "run": "runs",
}


def add_to(app: typer.Typer) -> None:
    app.command()(fork)
    app.command()(rewind)


def fork(
    session: options.SessionName,
    at: At = None,
    name: Annotated[str | None, typer.Option("--id", help="Id of the fork.")] = None,
    agent: Annotated[str | None, typer.Option(help="Who works it, in place of who did.")] = None,
    model: Annotated[str | None, typer.Option(help="With which model, as provider/name.")] = None,
    folder: Annotated[
        Literal["shared", "worktree", "copy"] | None,
        typer.Option(help="Where it works; by default as the session does."),
    ] = None,
    edits: Annotated[
        list[str] | None,
        typer.Option(
            "--edit-result",
            metavar="TURN.STEP.INDEX=TEXT",
            help="Another result of a call; the first of a step has index 0. @FILE reads a file.",
        ),
    ] = None,
    message: Annotated[str | None, typer.Option(help="What it is to do; - reads stdin.")] = None,
    replay: Annotated[
        bool,
        typer.Option("--replay", help="Work the turn again, its calls answered as recorded."),
    ] = False,
    replay_all: Annotated[
        bool, typer.Option("--replay-all", help="That turn, or the first, and all later ones.")
    ] = False,
    unrecorded: Annotated[
        Literal["refuse", "pure", "run"],
        typer.Option(
            help="A call that was never recorded is refused, runs if it changes nothing, or runs."
        ),
    ] = "refuse",
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """A new session that begins as this one did up to a step; this one goes on as it is."""
    from everturn.errors import UsageError
    from everturn.forks import ForkSession, place_from_text
    from everturn_workers.cli.runtime import asked
    from everturn_workers.cli.show import print_json
    from everturn_workers.cli.work import text_of

    if replay and replay_all:
        raise UsageError("Name one of --replay and --replay-all.")
    if unrecorded != "refuse" and not (replay or replay_all):
        raise UsageError("--unrecorded goes with --replay or --replay-all.")
    turn, step = (None, None) if at is None else place_from_text(at)
    wanted = ForkSession(
        id=name,
        turn=turn,
        step=step,
        agent=agent,
        model=model,
        folder=folder,
        edits=tuple(_edit(text) for text in edits or ()),
        message=None if message is None else text_of(message),
        replay="turn" if replay else "session" if replay_all else None,
        unrecorded=unrecorded,
    )
    settings = options.read(port=port, home=home)
    view = asked(lambda client: client.fork(session, wanted), settings)
    if json:
        print_json(view.model_dump())
        return
    typer.echo(view.id)
    for line in _told(view):
        typer.echo(line, err=True)


def rewind(
    session: options.SessionName,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="TURN[.STEP]", help="Behind that turn or step."),
    ] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Send again what the newest rewind left out.")
    ] = False,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Go on from an earlier step: what comes behind it is not sent any more, files go back."""
    from everturn.errors import UsageError
    from everturn.forks import place_from_text
    from everturn_workers.cli.checkpoints import show_restored
    from everturn_workers.cli.runtime import asked
    from everturn_workers.cli.show import print_json

    if (to is None) != undo:
        raise UsageError("Name one of --to TURN[.STEP] and --undo.")
    settings = options.read(port=port, home=home)
    if to is None:
        undone = asked(lambda client: client.undo_rewind(session), settings)
        if json:
            print_json(undone.model_dump())
        else:
            sent = f"Messages {undone.first} to {undone.last} are sent again"
            typer.echo(f"{sent}; files stay as they are.", err=True)
        return
    turn, step = place_from_text(to)
    rewound = asked(lambda client: client.rewind(session, turn, step), settings)
    if json:
        print_json(rewound.model_dump())
        return
    if rewound.messages:
        typer.echo(
            f"Session {session} goes on behind {to}: {rewound.messages} messages are not sent any"
            f" more; 'everturn rewind {session} --undo' takes that back.",
            err=True,
        )
    else:
        typer.echo(f"Nothing that is sent of session {session} comes behind {to}.", err=True)
    show_restored(rewound)


def _told(view: "SessionView") -> list[str]:
    came = view.forked
    assert came is not None
    said = [f"Session {view.id} {came.told(f'session {came.session}')}."]
    if view.own_dir is not None:
        said.append(
            f"It works in {view.own_dir}, a {view.folder} of {view.working_dir} that its first turn"
            " makes, with files as they were at that step as far as checkpoints tell."
        )
    elif came.unrecorded is None:
        said.append(
            f"It works in {view.working_dir} itself, beside session {came.session}: files are as"
            " they are now. '--folder copy' gives a fork a folder of its own."
        )
    if came.unrecorded is not None:
        said.append(f"A call that was not made then {_UNRECORDED[came.unrecorded]}.")
    if view.waiting or view.status != "idle":
        said.append(f"Watch it with 'everturn attach {view.id}'.")
    else:
        said.append(f"Go on in it with 'everturn run --session {view.id} TASK'.")
    return said


def _edit(text: str) -> "EditedResult":
    from everturn.errors import UsageError
    from everturn.forks import edit_from_text
    from everturn.inputs import TEXT_BYTES_MAX, checked_text, text_from_bytes

    edit = edit_from_text(text)
    if not edit.text.startswith("@"):
        return edit
    path = Path(edit.text[1:]).expanduser()
    try:
        with path.open("rb") as file:
            raw = file.read(TEXT_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; name another.") from None
    if len(raw) > TEXT_BYTES_MAX:
        checked_text("x" * len(raw), f"file {path}")
    return edit.model_copy(update={"text": text_from_bytes(raw, f"file {path}")})
