"""Tasks: handed in one by one or in files, looked at, tried anew, cancelled."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from everturn_workers.cli import options
from everturn_workers.cli.figures import shown_cost

if TYPE_CHECKING:
    from rich.table import Table

    from everturn.tasks import NewTask, TaskView
    from everturn_workers.settings import Settings

FAILED = 1
REASON_CHARACTERS = 100

TaskId = Annotated[str, typer.Argument(metavar="TASK", help="Its id in the list.")]


def add_to(app: typer.Typer) -> None:
    tasks = typer.Typer(
        help="Work that waits its turn, and is tried again where time may mend it.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    tasks.command("submit")(submit)
    tasks.command("list")(list_tasks)
    tasks.command("dead")(list_dead)
    tasks.command("show")(show_task)
    tasks.command("retry")(retry_task)
    tasks.command("cancel")(cancel_task)
    app.add_typer(tasks, name="tasks")


def submit(
    text: Annotated[
        str | None,
        typer.Argument(metavar="[TEXT]", help="What to do; - reads stdin.", show_default=False),
    ] = None,
    many: Annotated[
        str | None,
        typer.Option(
            help="A file of tasks, one JSON object a line; - reads stdin. Sent again, it hands in"
            " what is missing.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--id", help="Its id: the same again changes nothing.", show_default=False),
    ] = None,
    workspace: options.Workspace = None,
    agent: options.Agent = None,
    model: options.Model = None,
    user: options.User = None,
    folder: options.Folder = None,
    priority: Annotated[
        int | None, typer.Option(min=1, max=5, help="1 is first, 5 last.", show_default="3")
    ] = None,
    attempts: Annotated[
        int | None,
        typer.Option(min=1, max=50, help="How often it is tried at most.", show_default="3"),
    ] = None,
    not_before: Annotated[
        str | None, typer.Option(help="Such as 2026-01-31T12:00:00Z.", show_default=False)
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(help="When it is given up.", show_default=False)
    ] = None,
    attempt_seconds: Annotated[
        float | None, typer.Option(help="For each attempt.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="File with the JSON schema that the answer fits.", show_default=False),
    ] = None,
    webhook: Annotated[
        str | None, typer.Option(help="URL that is told of its end.", show_default=False)
    ] = None,
    webhook_secret: Annotated[
        str | None,
        typer.Option(help="Name of the secret that signs it.", show_default=False),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE, any number.", show_default=False)
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until it has ended.")] = False,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Hand in a task, or the tasks of a file."""
    from everturn.errors import UsageError

    settings = options.read(
        port=port,
        home=home,
        workspace=workspace,
        agent=agent,
        model=model,
        user=user,
        folder=folder,
    )
    given = {
        "id": name,
        "workspace": str(options.workspace_of(settings, Path.cwd())),
        "agent": settings.agent,
        "model": settings.model,
        "user": settings.user,
        "folder": settings.folder,
        "priority": priority,
        "retry": None if attempts is None else {"attempts_max": attempts},
        "not_before": not_before,
        "deadline": deadline,
        "attempt_seconds": attempt_seconds,
        "output": None if output is None else _schema(output),
        "webhook": _webhook(webhook, webhook_secret),
        "labels": _labels(label or []),
    }
    common = {key: value for key, value in given.items() if value not in (None, {})}
    if (text is None) == (many is None):
        raise UsageError("Say what is to be done, or name a file with --many; one of the two.")
    if many is not None:
        if name is not None:
            raise UsageError("--id names one task; with --many each line has an 'id' of its own.")
        _hand_in(settings, many, common, wait, json)
        return
    assert text is not None
    from everturn.inputs import checked_text, text_from_bytes

    said = text_from_bytes(sys.stdin.buffer.read(), "task") if text == "-" else text
    task = _task({**common, "input": checked_text(said, "task")}, "The task")
    view = asyncio.run(_submit(settings, task, wait))
    _show(view, json, brief=not wait)
    _exit(view, wait)


async def _submit(settings: "Settings", task: "NewTask", wait: bool) -> "TaskView":
    from everturn_workers.cli.runtime import reached

    async with reached(settings) as client:
        view = await client.submit_task(task)
        return await client.wait_for_task(view.id) if wait else view


def _hand_in(
    settings: "Settings", file: str, common: dict[str, Any], wait: bool, json: bool
) -> None:
    from everturn_workers.cli.show import print_json
    from everturn_workers.cli.task_files import groups, read_tasks

    tasks = read_tasks(file, common)

    async def handed() -> "list[TaskView]":
        from everturn_workers.cli.runtime import reached

        views = []
        async with reached(settings) as client:
            count = 0
            for group in groups(tasks):
                came = await client.submit_tasks(group)
                count += len(came)
                if json and not wait:
                    for name in came:
                        print_json({"id": name})
                typer.echo(f"{count:,} of {len(tasks):,} tasks are handed in.", err=True)
            if wait:
                for task in tasks:
                    assert task.id is not None
                    views.append(await client.wait_for_task(task.id))
                    if json:
                        print_json(views[-1].model_dump())
        return views

    views = asyncio.run(handed())
    if not wait:
        return
    if not json:
        from everturn_workers.cli.sessions import print_table

        print_table(_table(views))
    if any(view.state != "done" for view in views):
        raise typer.Exit(FAILED)


def list_tasks(
    state: Annotated[
        str | None,
        typer.Option(help="waiting, queued, running, done, dead or cancelled.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many at most.")] = 50,
    before: Annotated[
        str | None, typer.Option(help="Older than this task.", show_default=False)
    ] = None,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """The tasks, the newest first."""
    from typing import get_args

    from everturn.errors import UsageError
    from everturn.tasks import TaskState
    from everturn_workers.cli.runtime import asked
    from everturn_workers.cli.sessions import print_table
    from everturn_workers.cli.show import print_json

    if state is not None and state not in get_args(TaskState):
        raise UsageError(f"No task is ever {state!r}; choose of {', '.join(get_args(TaskState))}.")
    chosen: TaskState | None = state  # type: ignore[assignment]
    settings = options.read(port=port, home=home)
    page = asked(lambda client: client.tasks(chosen, limit, before), settings)
    if json:
        for view in page.tasks:
            print_json(view.model_dump())
        return
    print_table(_table(page.tasks))


def list_dead(
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many at most.")] = 50,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """The tasks that were given up, each with the reason."""
    list_tasks("dead", limit, None, port, home, json)


def show_task(
    task: TaskId,
    wait: Annotated[bool, typer.Option("--wait", help="Until it has ended.")] = False,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """A task with its attempts, its webhooks and its result."""
    from everturn_workers.cli.runtime import asked

    settings = options.read(port=port, home=home)
    view = asked(lambda client: client.wait_for_task(task) if wait else client.task(task), settings)
    _show(view, json)
    _exit(view, wait)


def retry_task(
    task: TaskId,
    deadline: Annotated[
        str | None, typer.Option(help="In place of its own.", show_default=False)
    ] = None,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Begin anew a task that is dead or cancelled, or at once one that waits."""
    from everturn_workers.cli.runtime import asked

    settings = options.read(port=port, home=home)
    _show(asked(lambda client: client.retry_task(task, deadline), settings), json, brief=True)


def cancel_task(
    task: TaskId,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """End a task that is not wanted any more."""
    from everturn_workers.cli.runtime import asked

    settings = options.read(port=port, home=home)
    _show(asked(lambda client: client.cancel_task(task), settings), json, brief=True)


def _task(given: dict[str, Any], what: str) -> "NewTask":
    from everturn_workers.cli.task_files import made_of

    return made_of(given, what)


def _schema(file: Path) -> Any:
    import orjson

    from everturn.errors import UsageError

    try:
        return orjson.loads(file.read_bytes())
    except OSError as error:
        raise UsageError(f"The schema {str(file)!r} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise UsageError(f"The schema {str(file)!r} is not JSON; mend it.") from None


def _webhook(url: str | None, secret: str | None) -> dict[str, str] | None:
    from everturn.errors import UsageError

    if (url is None) != (secret is None):
        raise UsageError("A webhook has both --webhook and --webhook-secret; name the other too.")
    return None if url is None or secret is None else {"url": url, "secret": secret}


def _labels(given: list[str]) -> dict[str, str]:
    from everturn.errors import UsageError

    labels = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise UsageError(f"The label {each!r} is not possible; write NAME=VALUE.")
        labels[name] = value
    return labels


def _exit(view: "TaskView", waited: bool) -> None:
    if waited and view.state != "done":
        raise typer.Exit(FAILED)


def _show(view: "TaskView", json: bool, brief: bool = False) -> None:
    from everturn_workers.cli.sessions import print_table
    from everturn_workers.cli.show import print_json, printable

    if json:
        print_json(view.model_dump())
        return
    if brief:
        print(view.id)
        typer.echo(_said(view), err=True)
        return
    print_table(_table((view,)))
    if view.attempts:
        print_table(_attempts(view))
    for each in view.webhooks:
        why = f": {each.reason}" if each.reason else ""
        typer.echo(printable(f"Webhook {each.id} ({each.type}) {_how(each.state)}{why}"))
    if view.result is not None:
        typer.echo(printable(_text(view.result)))
    else:
        typer.echo(printable(_said(view)), err=True)


def _how(state: str) -> str:
    return {"waits": "is on its way", "delivered": "was delivered", "dead": "was given up"}[state]


def _said(view: "TaskView") -> str:
    """Where the task stands, in a sentence."""
    match view.state:
        case "waiting":
            when = f" until {_time(view.due_at)}" if view.due_at is not None else ""
            why = f" The last attempt failed: {view.reason}" if view.reason else ""
            return f"Task {view.id} waits{when}.{why}"
        case "queued":
            return f"Task {view.id} stands in line."
        case "running":
            waits = " and waits for a person" if view.waits_for_person else ""
            return (
                f"Task {view.id} is worked{waits}; watch it with 'everturn attach {view.session}'."
            )
        case "done":
            return f"Task {view.id} is done."
        case "dead":
            return f"Task {view.id} was given up. {view.reason}"
        case "cancelled":
            return f"Task {view.id} was cancelled."


def _text(result: Any) -> str:
    import orjson

    if isinstance(result, str):
        return result
    return orjson.dumps(result, option=orjson.OPT_INDENT_2).decode()


def _time(seconds: float | None) -> str:
    from datetime import datetime

    return "" if seconds is None else f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"


def _table(views: "tuple[TaskView, ...] | list[TaskView]") -> "Table":
    from everturn_workers.cli.sessions import new_table, one_line

    table = new_table("task", "state", "priority>", "attempts>", "cost>", "created>", "reason")
    for view in views:
        state = "asks a person" if view.waits_for_person else view.state
        reason = one_line(view.reason or "")
        table.add_row(
            view.id,
            state,
            str(view.priority),
            str(len(view.attempts)),
            shown_cost(view.cost_usd),
            _time(view.created_at),
            reason,
        )
    return table


def _attempts(view: "TaskView") -> "Table":
    from everturn_workers.cli.sessions import new_table, one_line

    table = new_table("attempt>", "turn>", "begun>", "ended>", "outcome", "cost>", "reason")
    for each in view.attempts:
        table.add_row(
            str(each.attempt),
            "" if each.turn is None else str(each.turn),
            _time(each.begun_at),
            _time(each.ended_at),
            each.outcome or "",
            "" if each.cost_usd is None else shown_cost(each.cost_usd),
            one_line(each.reason or ""),
        )
    return table
