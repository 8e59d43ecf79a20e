"""Giving work to agents and watching it: run, chat, send, attach, cancel."""

import asyncio
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from everturn_workers.cli import options

if TYPE_CHECKING:
    from everturn.reading import TurnResult
    from everturn_workers.cli.follow import Decide
    from everturn_workers.settings import Settings

FAILED, WAITING, INTERRUPTED = 1, 3, 130

TaskText = Annotated[str, typer.Argument(metavar="TASK", help="What to do; - reads stdin.")]


def add_to(app: typer.Typer) -> None:
    app.command()(run)
    app.command()(chat)
    app.command()(send)
    app.command()(attach)
    app.command()(cancel)


def run(
    task: TaskText,
    workspace: options.Workspace = None,
    agent: options.Agent = None,
    model: options.Model = None,
    session: options.Session = None,
    go_on: options.Continue = False,
    user: options.User = None,
    folder: options.Folder = None,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once it is accepted; needs a running 'up'.")
    ] = False,
) -> None:
    """Work one task to its end and show it."""
    text = text_of(task)
    settings = options.read(
        workspace=workspace,
        agent=agent,
        model=model,
        session=session,
        user=user,
        folder=folder,
        port=port,
        home=home,
    )
    settings = options.session_of(settings, go_on)
    name = settings.session or secrets.token_hex(4)
    if detach:
        asyncio.run(_hand_over(settings, name, text, json))
    else:
        with _waiting_for_a_person():
            _exit_as(asyncio.run(_run(settings, name, text, json)))


async def _run(settings: "Settings", session: str, text: str, json: bool) -> "TurnResult":
    from everturn.errors import RuntimeUnavailable
    from everturn_workers.cli.follow import follow_message
    from everturn_workers.cli.runtime import opened, reached_or_started
    from everturn_workers.cli.show import show

    # Nothing is started for a workspace that is not there.
    where = None if settings.session else options.workspace_of(settings, Path.cwd())
    async with reached_or_started(settings, _say) as (client, started):
        view = await opened(client, settings, session, where)
        accepted = await client.send(session, text, agent=settings.agent, model=settings.model)
        if view.status != "idle":
            _say(f"Session {session} works turn {view.turn}; this task is next.")
        else:
            _say(f"Session {session}.")
        try:
            return await follow_message(
                client, session, accepted, show(json), every_event=json, decide=_decides(json)
            )
        except asyncio.CancelledError:
            _say_detached(session, ends=started)
            raise
        except RuntimeUnavailable as error:
            raise RuntimeUnavailable(
                f"{error} The task is kept; watch it with 'everturn attach {session}'."
            ) from None


async def _hand_over(settings: "Settings", session: str, text: str, json: bool) -> None:
    """Have the task accepted by a runtime that goes on without us."""
    from everturn_workers.cli.runtime import opened, reached
    from everturn_workers.cli.show import print_json

    where = None if settings.session else options.workspace_of(settings, Path.cwd())
    async with reached(settings) as client:
        await opened(client, settings, session, where)
        accepted = await client.send(session, text, agent=settings.agent, model=settings.model)
    if json:
        print_json({"session": session, **accepted.model_dump()})
    else:
        print(session)


def chat(
    workspace: options.Workspace = None,
    agent: options.Agent = None,
    model: options.Model = None,
    session: options.Session = None,
    go_on: options.Continue = False,
    user: options.User = None,
    folder: options.Folder = None,
    port: options.Port = None,
    home: options.Home = None,
) -> None:
    """Talk with an agent; what is typed while it works steers it."""
    from everturn.errors import UsageError

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("A chat needs a terminal; use 'everturn run -' for text from a pipe.")
    from everturn_workers.cli.chat import talk

    settings = options.read(
        workspace=workspace,
        agent=agent,
        model=model,
        session=session,
        user=user,
        folder=folder,
        port=port,
        home=home,
    )
    settings = options.session_of(settings, go_on)
    name = settings.session or secrets.token_hex(4)
    where = None if settings.session else options.workspace_of(settings, Path.cwd())
    left = asyncio.run(talk(settings, name, where, _say))
    if left != "idle":
        _say_detached(name, ends=left == "ends")
        raise typer.Exit(INTERRUPTED)


def send(
    session: options.SessionName,
    text: TaskText,
    mode: Annotated[
        Literal["queue", "steer", "interrupt", "rollback"],
        typer.Option(
            help="queue: after the running turn; steer: into it at its next step; interrupt:"
            " end it and begin the next; rollback: also take back what it said."
        ),
    ] = "queue",
    id: Annotated[  # noqa: A002
        str | None, typer.Option("--id", help="The message's id; one sent twice is worked once.")
    ] = None,
    agent: options.Agent = None,
    model: options.Model = None,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Send a message and return once it is kept; prints the cursor to attach after."""
    message = text_of(text)
    settings = options.read(agent=agent, model=model, port=port, home=home)

    async def sent() -> None:
        from everturn_workers.cli.runtime import reached
        from everturn_workers.cli.show import print_json

        async with reached(settings) as client:
            accepted = await client.send(
                session, message, id=id, mode=mode, agent=settings.agent, model=settings.model
            )
        if json:
            print_json(accepted.model_dump())
        else:
            print(accepted.cursor)
            if accepted.note is not None:
                _say(accepted.note)
            _say(f"Message {accepted.id} is kept; watch it with 'everturn attach {session}'.")

    asyncio.run(sent())


def attach(
    session: options.SessionName,
    after: Annotated[
        str | None,
        typer.Option(help="Show all after this cursor; by default the newest turn. 0 for all."),
    ] = None,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Show a session's newest turn from its beginning, and follow it to its end."""
    settings = options.read(port=port, home=home)
    with _waiting_for_a_person():
        result = asyncio.run(_attach(settings, session, after, json))
    if result is None:
        _say(f"Session {session} has not begun a turn yet.")
    else:
        _exit_as(result)


async def _attach(
    settings: "Settings", session: str, after: str | None, json: bool
) -> "TurnResult | None":
    from everturn.errors import UsageError
    from everturn.events import cursor_from_text
    from everturn_workers.cli.follow import follow_turn
    from everturn_workers.cli.runtime import reached
    from everturn_workers.cli.show import show

    if after is not None:
        try:
            cursor_from_text(after)
        except ValueError:
            raise UsageError(
                f"The cursor {after[:80]!a} is not possible; give one such as 1.42, or 0."
            ) from None
    async with reached(settings) as client:
        view = await client.session(session)
        # Work that waits will be the next turn, unless one is open already.
        turn = view.turn + 1 if view.waiting and view.status != "running" else view.turn
        if turn == 0:
            return None
        try:
            return await follow_turn(client, view, turn, show(json), after, _decides(json))
        except asyncio.CancelledError:
            _say_detached(session, ends=False)
            raise


def cancel(
    session: options.SessionName,
    turn: Annotated[int | None, typer.Option(help="Which turn; by default the open one.")] = None,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Ask the running turn to end."""
    settings = options.read(port=port, home=home)

    async def cancelled() -> None:
        from everturn_workers.cli.runtime import reached
        from everturn_workers.cli.show import print_json

        async with reached(settings) as client:
            accepted = await client.cancel(session, turn)
        if json:
            print_json(accepted.model_dump())
        elif accepted.status == "too_late":
            _say(f"Session {session} has no open turn to cancel.")
        else:
            _say(f"Turn {turn or accepted.turn} of session {session} is asked to end.")

    asyncio.run(cancelled())


def text_of(task: str) -> str:
    """The task that was given as an argument, or on stdin."""
    from everturn.inputs import TEXT_BYTES_MAX, checked_text, text_from_bytes

    if task != "-":
        return checked_text(task, "task")
    raw = sys.stdin.buffer.read(TEXT_BYTES_MAX + 1)
    # Cut off after the limit, the last character may be incomplete.
    if len(raw) > TEXT_BYTES_MAX:
        size = len(raw)
        while piece := sys.stdin.buffer.read(1024 * 1024):
            size += len(piece)
        return checked_text("x" * size, "task")
    return checked_text(text_from_bytes(raw, "task"), "task")


def _decides(json: bool) -> "Decide | None":
    """How the person at the terminal is asked; None where there is nobody."""
    if json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    from everturn_workers.cli.deciding import decide

    return lambda client, asked: decide(client, asked, _say)


@contextmanager
def _waiting_for_a_person() -> Iterator[None]:
    """Exit with a code of its own where the turn asks what nobody here can answer."""
    from everturn_workers.cli.follow import WaitsForPerson

    try:
        yield
    except WaitsForPerson as waits:
        _say(str(waits))
        raise typer.Exit(WAITING) from None


def _exit_as(result: "TurnResult") -> None:
    if result.outcome != "completed":
        raise typer.Exit(FAILED)


def _say_detached(session: str, ends: bool) -> None:
    """How to go on with a turn; `ends` says that our runtime ends with this command."""
    goes_on = "goes on with the next 'everturn up'" if ends else "goes on"
    _say(
        f"\nDetached; the turn {goes_on}. Watch it again with 'everturn attach {session}', end it"
        f" with 'everturn cancel {session}'."
    )
    if ends:
        _say("The runtime of this command ends; its calls have some seconds for it.")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
