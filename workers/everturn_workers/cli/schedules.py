"""Messages at set times: schedules add, list, show, pause, resume, run, remove."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from everturn_workers.cli import options
from everturn_workers.cli.figures import shown_cost

if TYPE_CHECKING:
    from everturn.client import Client
    from everturn.schedules import NewSchedule, RunView, ScheduleView

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]


def add_to(app: typer.Typer) -> None:
    schedules = typer.Typer(
        help="Messages that are sent to sessions at set times.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    schedules.command("add")(add_schedule)
    schedules.command("list")(list_schedules)
    schedules.command("show")(show_schedule)
    schedules.command("pause")(pause_schedule)
    schedules.command("resume")(resume_schedule)
    schedules.command("run")(run_schedule)
    schedules.command("remove")(remove_schedule)
    app.add_typer(schedules, name="schedules")


def add_schedule(
    name: Name,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What is to be said then.")],
    cron: Annotated[
        list[str] | None,
        typer.Option("--cron", help="When, as five fields: '0 9 * * MON-FRI'. May be repeated."),
    ] = None,
    every: Annotated[
        str | None, typer.Option("--every", help="Or each so often: 30m, 2h, 1d.")
    ] = None,
    time_zone: Annotated[
        str, typer.Option("--time-zone", help="Whose clocks cron goes by, as Europe/Berlin.")
    ] = "UTC",
    session: Annotated[
        str | None,
        typer.Option("--session", help="To which session; by default each run has a new one."),
    ] = None,
    overlap: Annotated[
        Literal["skip", "queue", "cancel", "all"],
        typer.Option(
            "--overlap",
            help="Where an earlier run still works: leave the time out, queue it in its session,"
            " cancel that run, or let all work beside each other.",
        ),
    ] = "skip",
    catch_up: Annotated[
        str, typer.Option("--catch-up", help="Times that were missed count for so long.")
    ] = "1d",
    until: Annotated[
        str | None, typer.Option("--until", help="Never after: 2026-12-31 or 2026-12-31T18:00.")
    ] = None,
    runs: Annotated[
        int | None, typer.Option("--runs", min=1, help="So many messages, then it ends.")
    ] = None,
    budget_usd: Annotated[
        float | None, typer.Option("--budget-usd", help="What each new session may spend.")
    ] = None,
    paused: Annotated[bool, typer.Option("--paused", help="Do not begin yet.")] = False,
    workspace: options.Workspace = None,
    agent: options.Agent = None,
    model: options.Model = None,
    user: options.User = None,
    folder: options.Folder = None,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Have a message sent at set times."""
    from everturn.schedules import checked_name, seconds_of
    from everturn_activities.cron import coming, from_text
    from everturn_workers.cli.runtime import asked
    from everturn_workers.cli.show import print_json, printable

    settings = options.read(
        port=port, home=home, workspace=workspace, agent=agent, model=model, user=user
    )
    said: dict[str, object] = {
        "name": checked_name(name),
        "prompt": prompt,
        "cron": tuple(cron or ()),
        "every_seconds": None if every is None else seconds_of(every),
        "time_zone": time_zone,
        "until": None if until is None else from_text(until, time_zone),
        "overlap": overlap,
        "catch_up_seconds": seconds_of(catch_up),
        "runs_max": runs,
        "budget": None if budget_usd is None else {"usd": budget_usd},
        "paused": paused,
        "agent": settings.agent,
        "model": settings.model,
    }
    if session is not None:
        said["session"] = session
    else:
        said["workspace"] = str(options.workspace_of(settings, Path.cwd()))
        said["folder"] = folder or settings.folder
        said |= {} if settings.user is None else {"user": settings.user}
    body = _checked(said)
    view = asked(lambda client: client.schedules.add(body), settings)
    if json:
        print_json(view.model_dump())
        return
    to = f"to session {view.session}" if view.session else "to a new session each time"
    typer.echo(printable(f"Schedule {view.name} is set, {to}. {coming(view)}"), err=True)
    _tell_problem(view)


def list_schedules(
    session: Annotated[
        str | None, typer.Option("--session", help="Only those that send to this session.")
    ] = None,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """The schedules, with the next time of each and what became of the last."""
    from rich.text import Text

    from everturn.schedules import when
    from everturn_workers.cli.runtime import asked
    from everturn_workers.cli.sessions import new_table, print_table
    from everturn_workers.cli.show import print_json, printable

    settings = options.read(port=port, home=home)
    views = asked(lambda client: client.schedules.list(session), settings)
    if json:
        for view in views:
            print_json(view.model_dump())
        return
    table = new_table("schedule", "status", "when", "session", "next", "last", "cost>")
    for view in views:
        last = view.runs[0] if view.runs else None
        table.add_row(
            Text(view.name),
            view.status,
            Text(printable(when(view))),
            Text(view.session or "a new one each time"),
            _at(view.next[0], view) if view.next else "",
            "" if last is None else f"{_at(last.at, view)} {_outcome(last)}",
            "" if last is None or last.cost_usd is None else shown_cost(last.cost_usd),
        )
    print_table(table)
    for view in views:
        _tell_problem(view)


def show_schedule(
    name: Name,
    next_count: Annotated[
        int, typer.Option("--next", min=1, max=100, help="How many of its next times.")
    ] = 5,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """A schedule with its next times, and its last runs with their outcome and cost."""
    from rich.text import Text

    from everturn.schedules import shown_seconds, when
    from everturn_workers.cli.runtime import asked
    from everturn_workers.cli.sessions import new_table, print_table
    from everturn_workers.cli.show import print_json, printable

    settings = options.read(port=port, home=home)
    view = asked(lambda client: client.schedules.get(name, next_count), settings)
    if json:
        print_json(view.model_dump())
        return
    lines = [
        f"{view.name}: {view.status}, {when(view)}",
        f"says:     {view.prompt}",
        f"to:       {f'session {view.session}' if view.session else 'a new session each time'}",
        f"overlap:  {view.overlap}; missed times count for {shown_seconds(view.catch_up_seconds)}",
        f"sent:     {view.sent:,}{'' if view.runs_max is None else f' of {view.runs_max:,}'}",
    ]
    if view.until is not None:
        lines.append(f"until:    {_at(view.until, view)}")
    if view.budget is not None and view.budget.usd is not None:
        lines.append(f"budget:   ${view.budget.usd:g} for each session")
    if view.made_by is not None:
        lines.append(f"made by:  the agent of session {view.made_by}")
    lines += [f"next:     {_at(at, view)}" for at in view.next]
    typer.echo(printable("\n".join(lines)))
    _tell_problem(view)
    if not view.runs:
        return
    table = new_table("time", "outcome", "session", "turn>", "cost>", "why")
    for run in view.runs:
        table.add_row(
            f"{_at(run.at, view)}{' by hand' if run.by_hand else ''}",
            _outcome(run),
            Text(run.session or ""),
            "" if run.turn is None else str(run.turn),
            "" if run.cost_usd is None else shown_cost(run.cost_usd),
            Text(printable(run.why)),
        )
    print_table(table)


def pause_schedule(name: Name, port: options.Port = None, home: options.Home = None) -> None:
    """Let it rest; times that pass meanwhile are not made up for."""
    view = _changed(name, True, port, home)
    typer.echo(f"Schedule {view.name} is paused.", err=True)


def resume_schedule(name: Name, port: options.Port = None, home: options.Home = None) -> None:
    """Let it go on."""
    from everturn_activities.cron import coming

    view = _changed(name, False, port, home)
    typer.echo(f"Schedule {view.name} goes on. {coming(view)}", err=True)
    _tell_problem(view)


def run_schedule(
    name: Name,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Send its message now, also while it is paused."""
    from everturn_workers.cli.runtime import asked
    from everturn_workers.cli.show import print_json, printable

    settings = options.read(port=port, home=home)
    run = asked(lambda client: client.schedules.run(name), settings)
    if json:
        print_json(run.model_dump())
    elif run.state == "sent":
        typer.echo(
            f"Its message was sent to session {run.session}; watch it by: everturn attach"
            f" {run.session}",
            err=True,
        )
    else:
        typer.echo(printable(f"Nothing was sent ({run.state}): {run.why}"), err=True)
    if run.state != "sent":
        raise typer.Exit(1)


def remove_schedule(name: Name, port: options.Port = None, home: options.Home = None) -> None:
    """Let it fire no more; the sessions that it wrote to stay."""
    from everturn_workers.cli.runtime import asked

    settings = options.read(port=port, home=home)
    asked(lambda client: client.schedules.remove(name), settings)
    typer.echo(f"Schedule {name} is removed.", err=True)


def _changed(name: str, paused: bool, port: int | None, home: Path | None) -> "ScheduleView":
    from everturn.schedules import ChangeSchedule
    from everturn_workers.cli.runtime import asked

    async def changed(client: "Client") -> "ScheduleView":
        return await client.schedules.change(name, ChangeSchedule(paused=paused))

    return asked(changed, options.read(port=port, home=home))


def _checked(said: dict[str, object]) -> "NewSchedule":
    """Raises UsageError with what is wrong, as the command's options are called."""
    from pydantic import ValidationError

    from everturn.errors import UsageError
    from everturn.inputs import checked_text
    from everturn.schedules import NewSchedule

    checked_text(str(said["prompt"]), "prompt")
    try:
        return NewSchedule.model_validate(said)
    except ValidationError as error:
        told = error.errors()[0]
        text = told["msg"].removeprefix("Value error, ")
        for field, option in _OPTIONS:
            text = text.replace(f"'{field}'", option)
        if told["loc"]:
            field = str(told["loc"][0])
            named = dict(_OPTIONS).get(field, field)
            raise UsageError(
                f"The value of {named} is wrong: {text[0].lower()}{text[1:]}; correct it."
            ) from None
        raise UsageError(f"{text[0].upper()}{text[1:]}.") from None


_OPTIONS = (
    ("cron", "--cron"),
    ("every_seconds", "--every"),
    ("session", "--session"),
    ("budget", "--budget-usd"),
    ("catch_up_seconds", "--catch-up"),
    ("runs_max", "--runs"),
)


def _at(at: float, view: "ScheduleView") -> str:
    from everturn_activities.cron import shown

    return shown(at, view.time_zone)


def _outcome(run: "RunView") -> str:
    if run.state != "sent":
        return run.state
    return run.outcome or ("works" if run.turn is not None else "waits")


def _tell_problem(view: "ScheduleView") -> None:
    from everturn_workers.cli.show import printable

    if view.problem is not None:
        typer.echo(printable(f"Schedule {view.name} cannot fire: {view.problem}"), err=True)
