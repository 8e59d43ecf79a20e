"""Conversations as files: sessions export, sessions import."""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from everturn_workers.cli import options

if TYPE_CHECKING:
    from everturn.views import MessageView, SessionView

FILE_BYTES_MAX = 16 * 1024 * 1024
SKIPPED_SHOWN = 5


def add_to(sessions: typer.Typer) -> None:
    sessions.command("export")(export_session)
    sessions.command("import")(import_session)


def export_session(
    session: options.SessionName,
    to: Annotated[
        Path | None,
        typer.Option(help="Folder for SESSION.jsonl and SESSION.meta.json.", show_default=False),
    ] = None,
    port: options.Port = None,
    home: options.Home = None,
) -> None:
    """A session's messages, one JSON object a line: role, content, tokens."""
    from everturn.errors import UsageError
    from everturn.jsonl import line_of
    from everturn_workers.cli.runtime import reached

    settings = options.read(port=port, home=home)

    async def found() -> "tuple[SessionView, list[MessageView]]":
        async with reached(settings) as client:
            messages: list[MessageView] = []
            after: int | None = 0
            while after is not None:
                page = await client.messages(session, after, 500)
                messages += page.messages
                after = page.after
            return await client.session(session), messages

    view, messages = asyncio.run(found())
    lines = "".join(f"{line_of(each.message, each.tokens)}\n" for each in messages)
    if to is None:
        typer.echo(lines, nl=False)
        return
    meta = {"agent": view.agent, "model": view.model, "title": view.title}
    try:
        to.mkdir(parents=True, exist_ok=True)
        (to / f"{view.id}.jsonl").write_text(lines, encoding="utf-8")
        (to / f"{view.id}.meta.json").write_text(json.dumps(meta), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{to} cannot be written: {error.strerror}; name another.") from None
    typer.echo(f"Wrote {len(messages)} messages to {to / f'{view.id}.jsonl'}.", err=True)


def import_session(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Lines as of an export.")],
    session: Annotated[
        str | None, typer.Option(help="Id of the new session; by default the file's name.")
    ] = None,
    agent: options.Agent = None,
    workspace: options.Workspace = None,
    user: options.User = None,
    port: options.Port = None,
    home: options.Home = None,
) -> None:
    """Begin a session with a conversation from a file; FILE.meta.json names its agent."""
    from everturn.inputs import checked_id
    from everturn.jsonl import read_lines
    from everturn_workers.cli.runtime import reached
    from everturn_workers.cli.show import printable

    settings = options.read(port=port, home=home, workspace=workspace, user=user)
    messages, left_out = read_lines(_text(file))
    name = checked_id(session or file.name.removesuffix(".jsonl"), "session id")
    folder = str(options.workspace_of(settings, Path.cwd()))
    worker = agent or _meta_agent(file)

    async def taken() -> int:
        async with reached(settings) as client:
            await client.create_session(name, workspace=folder, agent=worker, user=settings.user)
            return await client.import_messages(name, messages) if messages else 0

    count = asyncio.run(taken())
    for line in left_out[:SKIPPED_SHOWN]:
        typer.echo(printable(f"Left out: {line}."), err=True)
    if len(left_out) > SKIPPED_SHOWN:
        typer.echo(f"Left out: {len(left_out) - SKIPPED_SHOWN} more lines.", err=True)
    typer.echo(f"Session {name} has {count} messages.", err=True)


def _text(file: Path) -> str:
    from everturn.errors import UsageError
    from everturn.inputs import text_from_bytes

    try:
        with file.open("rb") as opened:
            raw = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}; name another.") from None
    if len(raw) > FILE_BYTES_MAX:
        raise UsageError(
            f"{file} has more than {FILE_BYTES_MAX:,} bytes, which is the limit; shorten it."
        )
    return text_from_bytes(raw, f"file {file}")


def _meta_agent(file: Path) -> str | None:
    """The agent that the file beside names, if there is one."""
    meta = file.with_name(file.name.removesuffix(".jsonl") + ".meta.json")
    try:
        found = json.loads(meta.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    agent = found.get("agent") if isinstance(found, dict) else None
    return agent if isinstance(agent, str) else None
