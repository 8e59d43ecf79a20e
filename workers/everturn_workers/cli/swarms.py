"""Swarms: swarm run, list, show, attach, pause, resume, cancel."""

import asyncio
import secrets
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from everturn_workers.cli import options
from everturn_workers.cli.figures import shown_cost

if TYPE_CHECKING:
    from everturn.client import Client
    from everturn.swarm_views import ItemView, SwarmView
    from everturn.swarms import SwarmSpec
    from everturn.views import ApprovalView
    from everturn_workers.cli.swarm_items import Items
    from everturn_workers.cli.swarm_results import ResultFile
    from everturn_workers.settings import Settings

T = TypeVar("T")

FAILED, WAITING, PARTLY = 1, 3, 4
SHOWN_MAX = 20

SwarmName = Annotated[str, typer.Argument(metavar="SWARM", help="Id of the swarm.")]
Output = Annotated[
    Path | None,
    typer.Option(
        help="File that results go to as they come, one JSON object a line; one that has some"
        " is gone on with; - is stdout.",
        show_default=False,
    ),
]
Order = Annotated[
    Literal["completion", "item"],
    typer.Option(help="Write results in the order of their ends, or of the items."),
]


def add_to(app: typer.Typer) -> None:
    swarm = typer.Typer(
        help="Have one agent work many items side by side. Exit codes: 0 all are done or the"
        " quorum is, 4 a part, 1 none, 3 waiting for a person, 130 interrupted.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    swarm.command("run")(run)
    swarm.command("list")(list_swarms)
    swarm.command("show")(show_swarm)
    swarm.command("attach")(attach)
    swarm.command("pause")(pause)
    swarm.command("resume")(resume)
    swarm.command("cancel")(cancel)
    app.add_typer(swarm, name="swarm")


def run(
    items: Annotated[
        Path,
        typer.Argument(metavar="ITEMS", help="One JSON object a line, with an id; - reads stdin."),
    ],
    agent: options.Agent = None,
    model: options.Model = None,
    prompt_template: Annotated[
        str,
        typer.Option(help="What is asked about each item: {field} is its field; @FILE reads it."),
    ] = "{prompt}",
    width: Annotated[int, typer.Option(help="How many at once.")] = 10,
    output: Output = None,
    order: Order = "completion",
    quorum: Annotated[
        int | None, typer.Option(help="Stop once so many have completed.", show_default=False)
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(help="Stop after a time such as 30m or 2h.", show_default=False)
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Dollars that all may cost.", show_default=False)
    ] = None,
    attempts: Annotated[int, typer.Option(help="How often one that fails is tried.")] = 1,
    hedge: Annotated[
        float | None,
        typer.Option(
            help="Work one a second time beside that takes so many times the median; only where"
            " the agent's tools change nothing.",
            show_default=False,
        ),
    ] = None,
    reduce: Annotated[
        str | None,
        typer.Option(help="Agent that makes one result of all, as a tree.", show_default=False),
    ] = None,
    reduce_template: Annotated[
        str | None,
        typer.Option(
            help="What it is asked: {results} are some results; @FILE reads it.",
            show_default=False,
        ),
    ] = None,
    id: Annotated[  # noqa: A002
        str | None,
        typer.Option(
            "--id",
            help="The swarm's id; run again with the same, it goes on.",
            show_default=False,
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once it is accepted; needs a running 'up'.")
    ] = False,
    workspace: options.Workspace = None,
    user: options.User = None,
    folder: options.Folder = None,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Work many items side by side, and write down what becomes of each."""
    from everturn.errors import UsageError
    from everturn.schedules import seconds_of
    from everturn.swarms import checked_name, checked_spec
    from everturn_workers.cli.swarm_items import Items

    settings = options.read(
        workspace=workspace,
        agent=agent,
        model=model,
        user=user,
        folder=folder,
        port=port,
        home=home,
    )
    if detach and output is not None:
        raise UsageError(
            "A swarm that is detached from writes no file; leave --output out, and give it to"
            " 'everturn swarm attach' later."
        )
    name = secrets.token_hex(4) if id is None else checked_name(id)
    spec = _spec(
        agent=settings.agent or "default",
        model=settings.model,
        prompt=_template(prompt_template),
        width=width,
        quorum=quorum,
        deadline_seconds=None if deadline is None else seconds_of(deadline, "deadline"),
        budget=None if budget is None else {"usd": budget},
        attempts_max=attempts,
        hedge=hedge,
        reduce=reduce,
        **({} if reduce_template is None else {"reduce_prompt": _template(reduce_template)}),
    )
    checked_spec(spec, None)
    where = options.workspace_of(settings, Path.cwd())
    with Items(items, spec.prompt) as found:
        checked_spec(spec, found.count)

        async def begun(client: "Client") -> "SwarmView":
            return await _sent(client, found, spec, name, where, settings)

        if detach:
            view = _asked(begun, port, home)
            if json:
                _print_json(view)
            else:
                print(view.id)
            return
        results = _results(output, order, name)

        async def worked() -> "SwarmView":
            from everturn_workers.cli.runtime import reached_or_started

            async with reached_or_started(settings, _say) as (client, started):
                await begun(client)
                _say(f"Swarm {name}: {found.count:,} items, {spec.width} at once.")
                return await _followed(client, name, results, json, started)

        _exit_as(asyncio.run(worked()), json)


async def _sent(
    client: "Client",
    items: "Items",
    spec: "SwarmSpec",
    name: str,
    workspace: Path,
    settings: "Settings",
) -> "SwarmView":
    """Have the swarm begun, and all of its items sent in pieces."""
    from everturn.errors import UsageError

    sent, view = 0, None
    try:
        for piece in items.pieces():
            last = sent + len(piece) == items.count
            if view is None:
                view = await client.swarms.create(
                    spec,
                    piece,
                    id=name,
                    open=not last,
                    workspace=str(workspace),
                    user=settings.user,
                    folder=settings.folder,
                )
            else:
                view = await client.swarms.add(name, sent + 1, piece, last)
            sent += len(piece)
    except UsageError as error:
        if not sent:
            raise
        raise UsageError(
            f"{error} Sent are {sent:,} of {items.count:,} items; send the rest by the same command"
            f" with '--id {name}', or end the swarm with 'everturn swarm cancel {name}'."
        ) from None
    except asyncio.CancelledError:
        if sent:
            _say(
                f"\nDetached with {sent:,} of {items.count:,} items sent; send the rest by the same"
                f" command with '--id {name}'."
            )
        raise
    assert view is not None
    return view


def attach(
    swarm: SwarmName,
    output: Output = None,
    order: Order = "completion",
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Watch a swarm to its end; with --output its results go to a file."""
    settings = options.read(port=port, home=home)

    async def watched() -> "SwarmView":
        from everturn_workers.cli.runtime import reached

        async with reached(settings) as client:
            await client.swarms.get(swarm)
            return await _followed(client, swarm, _results(output, order, swarm), json, False)

    _exit_as(asyncio.run(watched()), json)


async def _followed(
    client: "Client", swarm: str, results: "ResultFile | None", json: bool, started: bool
) -> "SwarmView":
    """The swarm once it is done; `started` says that our runtime ends with this command."""
    from everturn.errors import RuntimeUnavailable
    from everturn_workers.cli.deciding import how_to_decide
    from everturn_workers.cli.show import consoles
    from everturn_workers.cli.swarm_progress import Progress
    from everturn_workers.cli.swarm_watch import StandsStill, watch

    _, talk = consoles()
    to_stdout = results is not None and str(results.path) == "-"
    attended = talk.is_terminal and sys.stdin.isatty()
    try:
        with Progress(talk, quiet=json or (to_stdout and sys.stdout.isatty())) as progress:
            return await watch(client, swarm, results, progress, attended)
    except asyncio.CancelledError:
        goes_on = "goes on with the next 'everturn up'" if started else "goes on"
        where = "" if results is None or to_stdout else f" --output {results.path}"
        if results is not None and results.order != "completion":
            where += f" --order {results.order}"
        _say(
            f"\nDetached; the swarm {goes_on}. Watch it again with 'everturn swarm attach"
            f" {swarm}{where}', end it with 'everturn swarm cancel {swarm}'."
        )
        raise
    except StandsStill:
        for one in (await client.approvals(swarm))[:SHOWN_MAX]:
            _say(how_to_decide(one))
        _say(f"All that runs of swarm {swarm} waits for a person.")
        raise typer.Exit(WAITING) from None
    except RuntimeUnavailable as error:
        raise RuntimeUnavailable(
            f"{error} The swarm is kept; watch it with 'everturn swarm attach {swarm}'."
        ) from None
    finally:
        if results is not None:
            results.close()


def _exit_as(view: "SwarmView", json: bool) -> None:
    """Say what became of it, print its one result, and exit accordingly."""
    from everturn_workers.cli.show import printable
    from everturn_workers.cli.swarm_progress import ending, is_unreduced

    if json:
        _print_json(view)
    else:
        _say("\n".join(ending(view)))
        if view.text is not None:
            print(printable(view.text) if sys.stdout.isatty() else view.text)
    if not view.counts.done or is_unreduced(view):
        raise typer.Exit(FAILED)
    if view.counts.done < view.items and view.reason != "quorum":
        raise typer.Exit(PARTLY)


def list_swarms(
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many at most.")] = 50,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """The swarms, the newest first."""
    from everturn_workers.cli.sessions import new_table, print_table

    async def found(client: "Client") -> "tuple[SwarmView, ...]":
        return (await client.swarms.list(limit)).swarms

    views = _asked(found, port, home)
    if json:
        for view in views:
            _print_json(view)
        return
    table = new_table(
        *("swarm", "state", "agent", "items>", "done>", "failed>", "running>", "waiting>"),
        *("cost>", "begun"),
    )
    for view in views:
        counts = view.counts
        numbers = (view.items, counts.done, counts.failed, counts.running, counts.waiting)
        table.add_row(
            *(view.id, _state(view), view.spec.agent, *(f"{number:,}" for number in numbers)),
            *(shown_cost(view.cost_usd), _minute(view.begun_at or view.created_at)),
        )
    print_table(table)


def show_swarm(
    swarm: SwarmName,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """How a swarm stands: counters, cost, what failed, and who waits for a person."""
    from everturn_workers.cli.deciding import how_to_decide
    from everturn_workers.cli.show import printable
    from everturn_workers.cli.swarm_progress import ending, line

    async def found(
        client: "Client",
    ) -> "tuple[SwarmView, list[ApprovalView], tuple[ItemView, ...]]":
        view = await client.swarms.get(swarm)
        failed = await client.swarms.items(swarm, limit=SHOWN_MAX, state="failed")
        return view, await client.approvals(swarm), failed.items

    view, asked, failed = _asked(found, port, home)
    if json:
        _print_json(view)
        return
    spec = view.spec
    model = f" with {spec.model}" if spec.model else ""
    state = "" if view.state == "done" else f" ({_state(view)})"
    typer.echo(f"Swarm {view.id}{state}: agent {spec.agent}{model}, {_limits(view)}.")
    typer.echo("\n".join(ending(view)) if view.state == "done" else line(view))
    if view.text is not None:
        typer.echo(printable(view.text))
    for item in failed:
        why = " ".join((item.reason or item.outcome or "").split())
        typer.echo(printable(f"Failed: {item.id} ({item.session}): {why}"))
    if view.counts.failed > len(failed):
        typer.echo(f"Failed: {view.counts.failed - len(failed):,} more.")
    if view.asking:
        typer.echo(f"Waiting for a person: {', '.join(view.asking[:SHOWN_MAX])}{_more(view)}.")
    for one in asked[:SHOWN_MAX]:
        typer.echo(f"{one.session}: {how_to_decide(one)}")
    budgets = set(view.asking) - {one.session for one in asked}
    for session in sorted(budgets)[:SHOWN_MAX]:
        typer.echo(f"{session} asks about a budget; see 'everturn sessions show {session}'.")


def _more(view: "SwarmView") -> str:
    left = len(view.asking) - SHOWN_MAX
    return f" and {left:,} more" if left > 0 else ""


def _limits(view: "SwarmView") -> str:
    from everturn_workers.cli.figures import shown_dollars, shown_span

    spec = view.spec
    said = [f"{spec.width} at once"]
    if spec.attempts_max > 1:
        said.append(f"{spec.attempts_max} attempts")
    if spec.hedge is not None:
        said.append(f"hedged beyond {spec.hedge:g} times the median")
    if spec.quorum is not None:
        said.append(f"quorum {spec.quorum:,}")
    if spec.deadline_seconds is not None:
        said.append(f"deadline after {shown_span(spec.deadline_seconds)}")
    if spec.budget is not None and spec.budget.usd is not None:
        said.append(f"budget {shown_dollars(spec.budget.usd)}")
    if spec.reduce is not None:
        said.append(f"reduced by {spec.reduce}")
    return ", ".join(said)


def pause(
    swarm: SwarmName,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Begin no more items; those under way are worked to their ends."""
    view = _asked(lambda client: client.swarms.pause(swarm), port, home)
    running = view.counts.running
    under_way = f"Under way are {running:,}, which go on" if running else "None is under way"
    _tell(view, f"Swarm {swarm} begins no more items. {under_way}.", json)


def resume(
    swarm: SwarmName,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Also work again what failed or was left out.")
    ] = False,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Go on with a paused swarm, or with what failed or was left out in one."""
    view = _asked(lambda client: client.swarms.resume(swarm, retry_failed), port, home)
    waiting = f"{view.counts.waiting:,} items wait"
    _tell(
        view,
        f"Swarm {swarm} goes on: {waiting}. Watch it with 'everturn swarm attach {swarm}'.",
        json,
    )


def cancel(
    swarm: SwarmName,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Cancel the items under way and leave out the rest."""
    view = _asked(lambda client: client.swarms.cancel(swarm), port, home)
    if view.state == "done":
        _tell(view, f"Swarm {swarm} is done already; nothing is cancelled.", json)
    else:
        left_out = f"{view.counts.waiting:,} are left out"
        _tell(
            view,
            f"Swarm {swarm} is asked to end: {view.counts.running:,} items under way are"
            f" cancelled, {left_out}.",
            json,
        )


def _tell(view: "SwarmView", sentence: str, json: bool) -> None:
    if json:
        _print_json(view)
    else:
        _say(sentence)


def _spec(**given: Any) -> "SwarmSpec":
    from pydantic import ValidationError

    from everturn.errors import UsageError
    from everturn.swarms import SwarmSpec

    try:
        return SwarmSpec.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        flag = _FLAGS.get(str(first["loc"][0]), str(first["loc"][0]))
        said = first["msg"][0].lower() + first["msg"][1:]
        raise UsageError(f"--{flag} is {first['input']!r}: {said}.") from None


_FLAGS = {"deadline_seconds": "deadline", "attempts_max": "attempts", "prompt": "prompt-template"}


def _template(text: str) -> str:
    """A template as given, or, with @ before it, from a file."""
    from everturn.errors import UsageError
    from everturn.inputs import text_from_bytes

    if not text.startswith("@"):
        return text
    try:
        raw = Path(text[1:]).read_bytes()
    except OSError as error:
        raise UsageError(
            f"The template {text[1:]} cannot be read: {error.strerror}; name another."
        ) from None
    return text_from_bytes(raw, f"template {text[1:]}").removesuffix("\n")


def _results(output: Path | None, order: "Literal['completion', 'item']", swarm: str) -> Any:
    from everturn_workers.cli.swarm_results import ResultFile

    return None if output is None else ResultFile(output, order, swarm)


def _state(view: "SwarmView") -> str:
    if view.state == "done" and view.reason is not None:
        return view.reason
    return f"{view.state}, open" if view.open and view.state != "done" else view.state


def _minute(at: float) -> str:
    from datetime import datetime

    return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M}"


def _asked(
    ask: "Callable[[Client], Coroutine[None, None, T]]", port: int | None, home: Path | None
) -> T:
    from everturn_workers.cli.runtime import asked

    return asked(ask, options.read(port=port, home=home))


def _print_json(view: "SwarmView") -> None:
    from everturn_workers.cli.show import print_json

    print_json(view.model_dump())


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
