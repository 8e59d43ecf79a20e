"""Budgets: budget set, list, raise, deny."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from everturn_workers.cli import options

if TYPE_CHECKING:
    from everturn.budgets import Scope, Unit
    from everturn.client import Client
    from everturn.views import BudgetView, SpentView

T = TypeVar("T")

MaybeSession = Annotated[
    str | None, typer.Argument(metavar="[SESSION]", help="Of which session.", show_default=False)
]
Tenant = Annotated[bool, typer.Option("--tenant", help="Of all sessions together.")]
Day = Annotated[bool, typer.Option("--day", help="Of all sessions together on each UTC day.")]
Usd = Annotated[float | None, typer.Option(help="Dollars.", show_default=False)]
Tokens = Annotated[int | None, typer.Option(help="Tokens, in and out.", show_default=False)]
Steps = Annotated[int | None, typer.Option(help="Replies of models.", show_default=False)]
Seconds = Annotated[
    float | None, typer.Option(help="Seconds of model and tool calls.", show_default=False)
]


def add_to(app: typer.Typer) -> None:
    budget = typer.Typer(
        help="Limit what sessions, the tenant and its days spend.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    budget.command("set")(set_budget)
    budget.command("list")(list_budgets)
    budget.command("raise")(raise_budget)
    budget.command("deny")(deny_budget)
    app.add_typer(budget, name="budget")


def set_budget(
    session: MaybeSession = None,
    tenant: Tenant = False,
    day: Day = False,
    usd: Usd = None,
    tokens: Tokens = None,
    steps: Steps = None,
    seconds: Seconds = None,
    soft: Annotated[
        float | None,
        typer.Option(help="At which share of a limit a person is asked.", show_default=False),
    ] = None,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Set all limits of a budget; without any, it has none."""
    scope = _scope(session, tenant, day)
    given = {"usd": usd, "tokens": tokens, "steps": steps, "seconds": seconds, "soft": soft}

    async def put(client: "Client") -> "BudgetView":
        return await client.put_budget(_checked("NewBudget", scope=scope, session=session, **given))

    _show([_asked(put, port, home)], json)


def list_budgets(
    port: options.Port = None, home: options.Home = None, json: options.Json = False
) -> None:
    """What may be spent, what is, and what calls under way have reserved."""
    _show(_asked(lambda client: client.budgets(), port, home), json)


def raise_budget(
    session: MaybeSession = None,
    tenant: Tenant = False,
    day: Day = False,
    usd: Usd = None,
    tokens: Tokens = None,
    steps: Steps = None,
    seconds: Seconds = None,
    port: options.Port = None,
    home: options.Home = None,
) -> None:
    """Raise limits; a turn that waits with a question about them goes on."""
    scope = _scope(session, tenant, day)
    given = {"usd": usd, "tokens": tokens, "steps": steps, "seconds": seconds}
    raised = _checked("BudgetVerdict", verdict="raise", **given)

    async def done(client: "Client") -> None:
        if session is not None:
            await client.answer_budget(session, raised)
            return
        known = next((b for b in await client.budgets() if b.scope == scope), None)
        limits = {} if known is None else known.limits.model_dump()
        limits.update({unit: value for unit, value in given.items() if value is not None})
        await client.put_budget(_checked("NewBudget", scope=scope, **limits))

    _asked(done, port, home)
    typer.echo("The budget is raised.", err=True)


def deny_budget(
    session: options.SessionName, port: options.Port = None, home: options.Home = None
) -> None:
    """Leave a session's budget as it is: the turn that asked about it ends."""
    denied = _checked("BudgetVerdict", verdict="deny")
    accepted = _asked(lambda client: client.answer_budget(session, denied), port, home)
    if accepted.status == "too_late":
        typer.echo(f"Session {session} asks nothing.", err=True)
    else:
        typer.echo("The budget stays as it is; the turn ends.", err=True)


def _scope(session: str | None, tenant: bool, day: bool) -> "Scope":
    from everturn.errors import UsageError

    if (session is not None) + tenant + day != 1:
        raise UsageError("Name one of SESSION, --tenant and --day.")
    return "session" if session is not None else "tenant" if tenant else "day"


def _checked(kind: str, **values: object) -> Any:
    """The body of that kind; UsageError says what of it cannot be."""
    from pydantic import ValidationError

    from everturn import budgets, views
    from everturn.errors import UsageError

    model = getattr(views, kind, None) or getattr(budgets, kind)
    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = f"--{first['loc'][0]}: " if first["loc"] else ""
        said = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"The budget is not possible: {where}{said}.") from None


def _asked(
    ask: "Callable[[Client], Coroutine[None, None, T]]", port: int | None, home: Path | None
) -> T:
    """What the runtime answers."""
    from everturn_workers.cli.runtime import asked

    return asked(ask, options.read(port=port, home=home))


def _show(views: "list[BudgetView]", json: bool) -> None:
    from everturn_workers.cli.sessions import new_table, print_table
    from everturn_workers.cli.show import print_json

    if json:
        for view in views:
            print_json(view.model_dump())
        return
    shown = new_table("budget", "unit", "limit>", "spent>", "reserved>", "asks at>")
    for view in views:
        for unit in view.limits.units:
            limit = getattr(view.limits, unit)
            soft = view.limits.soft
            shown.add_row(
                view.session or (view.scope if view.day is None else f"day {view.day} UTC"),
                unit,
                _amount(unit, limit),
                _of(view.spent, unit),
                _of(view.reserved, unit),
                "" if soft is None else _amount(unit, limit * soft),
            )
    print_table(shown)


def _of(spent: "SpentView", unit: "Unit") -> str:
    return _amount(unit, getattr(spent, unit))


def _amount(unit: "Unit", value: float) -> str:
    from everturn_workers.cli.figures import shown_dollars

    return shown_dollars(value) if unit == "usd" else f"{value:,.10g}"
