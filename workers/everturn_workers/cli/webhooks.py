"""Webhooks: what was told outside, what could not be, and sending it again."""

from datetime import datetime
from typing import Annotated

import typer

from everturn_workers.cli import options


def add_to(app: typer.Typer) -> None:
    webhooks = typer.Typer(
        help="What is told outside of tasks and sessions.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    webhooks.command("list")(list_webhooks)
    webhooks.command("retry")(retry_webhook)
    app.add_typer(webhooks, name="webhooks")


def list_webhooks(
    state: Annotated[
        str | None, typer.Option(help="waits, delivered or dead.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many at most.")] = 50,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """The deliveries, the newest first."""
    from typing import get_args

    from everturn.errors import UsageError
    from everturn.webhooks import WebhookState
    from everturn_workers.cli.runtime import asked
    from everturn_workers.cli.sessions import new_table, one_line, print_table
    from everturn_workers.cli.show import print_json

    if state is not None and state not in get_args(WebhookState):
        known = ", ".join(get_args(WebhookState))
        raise UsageError(f"No webhook is ever {state!r}; choose of {known}.")
    chosen: WebhookState | None = state  # type: ignore[assignment]
    settings = options.read(port=port, home=home)
    page = asked(lambda client: client.webhooks(chosen, limit), settings)
    if json:
        for view in page.webhooks:
            print_json(view.model_dump())
        return
    table = new_table("webhook", "of", "type", "state", "attempts>", "next>", "reason")
    for view in page.webhooks:
        due = "" if view.due_at is None else f"{datetime.fromtimestamp(view.due_at):%H:%M:%S}"
        table.add_row(
            view.id,
            view.task or view.session,
            view.type,
            view.state,
            str(view.attempts),
            due,
            one_line(view.reason or ""),
        )
    print_table(table)


def retry_webhook(
    webhook: Annotated[str, typer.Argument(metavar="WEBHOOK", help="Its id in the list.")],
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Send it again, at once; it keeps its id."""
    from everturn_workers.cli.runtime import asked
    from everturn_workers.cli.show import print_json

    settings = options.read(port=port, home=home)
    view = asked(lambda client: client.retry_webhook(webhook), settings)
    if json:
        print_json(view.model_dump())
    else:
        typer.echo(f"Webhook {view.id} is sent again.", err=True)
