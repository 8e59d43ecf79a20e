"""Looking at sessions: sessions list, sessions show."""

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from everturn_workers.cli import options, transcripts
from everturn_workers.cli.figures import shown_cost

if TYPE_CHECKING:
    from rich.table import Table

    from everturn.schedules import ScheduleView
    from everturn.views import ApprovalView, SessionView, TurnView, UsageView

    Found = tuple[
        SessionView,
        list[TurnView],
        tuple[SessionView, ...],
        list[ApprovalView],
        tuple[ScheduleView, ...],
    ]


EXECUTORS_MAX = 200


def add_to(app: typer.Typer) -> None:
    sessions = typer.Typer(help="Look at sessions.", no_args_is_help=True, rich_markup_mode=None)
    sessions.command("list")(list_sessions)
    sessions.command("show")(show_session)
    sessions.command("compact")(compact_session)
    transcripts.add_to(sessions)
    app.add_typer(sessions, name="sessions")


def list_sessions(
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many at most.")] = 50,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """The sessions, the newest first."""
    from everturn_workers.cli.runtime import reached
    from everturn_workers.cli.show import print_json

    settings = options.read(port=port, home=home)

    async def found() -> "tuple[SessionView, ...]":
        async with reached(settings) as client:
            return (await client.sessions(limit)).sessions

    views = asyncio.run(found())
    if json:
        for view in views:
            print_json(view.model_dump())
    else:
        print_table(_sessions_table(views))


def show_session(
    session: options.SessionName,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """A session's turns and their steps: model, attempts, tokens, cost, time."""
    from everturn.schedules import scheduled
    from everturn_activities.cron import coming
    from everturn_workers.cli.runtime import reached
    from everturn_workers.cli.show import print_json, printable

    settings = options.read(port=port, home=home)

    async def found() -> "Found":
        async with reached(settings) as client:
            handed = await client.sessions(EXECUTORS_MAX, parent=session)
            turns, waiting = await client.turns(session), await client.approvals(session)
            schedules = await client.schedules.list(session)
            return await client.session(session), turns, handed.sessions, waiting, schedules

    view, turns, executors, waiting, schedules = asyncio.run(found())
    if json:
        print_json(
            {
                **view.model_dump(),
                "turns": [turn.model_dump() for turn in turns],
                "executors": [one.model_dump() for one in executors],
                "waits_for": [one.model_dump() for one in waiting],
                "schedules": [one.model_dump() for one in schedules],
            }
        )
    else:
        print_table(_sessions_table((view,)))
        if view.own_dir is not None:
            typer.echo(f"It works in {view.own_dir}, a {view.folder} of {view.working_dir}.")
        if view.imported:
            typer.echo(
                f"It began with {view.imported} imported messages;"
                f" 'everturn sessions export {view.id}' shows them."
            )
        if view.forked is not None:
            typer.echo(f"It {view.forked.told(f'session {view.forked.session}')}.")
        if view.parent is not None:
            typer.echo(f"It is an executor of session {view.parent}.")
        print_table(_turns_table(turns))
        print_table(_tokens_table(turns))
        for turn in turns:
            if turn.reason:
                typer.echo(f"Turn {turn.turn}: {printable(' '.join(turn.reason.split()))}")
        if executors:
            typer.echo("Its executors, the newest first:")
            print_table(_sessions_table(executors))
        for one in schedules:
            typer.echo(printable(f"{scheduled(one)} {coming(one)}"))
        for asked in view.asked:
            typer.echo(f"It waits for an answer about its budget: {printable(asked.text)}")
        for question in reversed(waiting):
            typer.echo(_waits_for(question))


def _waits_for(one: "ApprovalView") -> str:
    from everturn_workers.cli.deciding import how_to_decide
    from everturn_workers.cli.show import printable

    what = "an answer to question" if one.kind == "question" else f"leave for {one.tool}, approval"
    until = "" if one.expires_at is None else f", until {_minute(one.expires_at)}"
    since = f"since {_minute(one.created_at)}{until}"
    return printable(f"It waits for {what} {one.approval}, {since}. {how_to_decide(one)}")


def compact_session(
    session: options.SessionName,
    undo: Annotated[
        bool, typer.Option("--undo", help="Send again what the newest compaction left out.")
    ] = False,
    port: options.Port = None,
    home: options.Home = None,
) -> None:
    """Have a session's older messages summarised before its next step, or take that back."""
    from everturn_workers.cli.runtime import reached

    settings = options.read(port=port, home=home)

    async def done() -> str:
        async with reached(settings) as client:
            if undo:
                undone = await client.undo_compaction(session)
                return f"Messages {undone.first} to {undone.last} are sent again."
            await client.compact(session)
            return "The older messages are summarised before the session's next step."

    typer.echo(asyncio.run(done()), err=True)


def _sessions_table(views: "tuple[SessionView, ...]") -> "Table":
    table = new_table(
        "session", "status", "turns>", "waiting>", "tokens>", "cost>", "updated", "title"
    )
    for view in views:
        table.add_row(
            view.id,
            view.status,
            str(view.turn),
            str(view.waiting),
            f"{view.usage.input_tokens + view.usage.output_tokens:,}",
            _cost(view.usage),
            _minute(view.updated_at),
            one_line(view.title) + _origin(view),
        )
    return table


def _origin(view: "SessionView") -> str:
    return "" if view.forked is None else f" (fork of {view.forked.session[:20]})"


def _turns_table(turns: "list[TurnView]") -> "Table":
    table = new_table("step", "model", "tries>", "stop", "cost>", "seconds>", "tools")
    for turn in turns:
        for step in turn.steps:
            table.add_row(
                f"{turn.turn}.{step.step}",
                one_line(step.model),
                str(step.attempts),
                step.stop or "running",
                _cost(step.usage),
                _seconds(step.duration_seconds),
                one_line(", ".join(step.tools)),
            )
        lasted = None if turn.ended_at is None else turn.ended_at - turn.started_at
        table.add_row(
            *(f"turn {turn.turn}", "", "", turn.outcome or "running"),
            *(_cost(turn.usage), _seconds(lasted), ""),
            style="bold",
            end_section=True,
        )
    return table


def _tokens_table(turns: "list[TurnView]") -> "Table":
    """Tokens as the provider told them, `~` where we counted; then our count of each request
    by what it was made of."""
    table = new_table(
        *("step", "in>", "cached>", "out>", "system>", "tools>", "history>", "this turn>")
    )
    for turn in turns:
        for step in turn.steps:
            parts = step.sections
            sizes = parts and (parts.system, parts.tools, parts.history, parts.memory)
            table.add_row(
                f"{turn.turn}.{step.step}",
                ("~" if step.estimated else "") + f"{step.usage.input_tokens:,}",
                f"{step.usage.cached_tokens:,}",
                f"{step.usage.output_tokens:,}",
                *(f"{size:,}" for size in sizes or ()),
            )
        usage = turn.usage
        told = (usage.input_tokens, usage.cached_tokens, usage.output_tokens)
        table.add_row(
            f"turn {turn.turn}", *(f"{n:,}" for n in told), style="bold", end_section=True
        )
    return table


def new_table(*names: str) -> "Table":
    """A table; names that end in `>` are columns of numbers."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in names:
        number = name.endswith(">")
        table.add_column(
            name.rstrip(">"), justify="right" if number else "left", no_wrap=number, overflow="fold"
        )
    return table


def print_table(table: "Table") -> None:
    from everturn_workers.cli.show import consoles

    out, _ = consoles()
    if not out.is_terminal:
        out.width = 200  # A pipe has no width to fit.
    out.print(table)


def _cost(usage: "UsageView") -> str:
    return shown_cost(usage.cost_usd, usage.unpriced_calls)


def _minute(time: float) -> str:
    return f"{datetime.fromtimestamp(time):%Y-%m-%d %H:%M}"


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f}"


def one_line(text: str) -> str:
    """The beginning of `text` on one line, with nothing in it that a terminal would act on."""
    from everturn_workers.cli.show import printable

    return printable(" ".join(text.split()))[:60]
