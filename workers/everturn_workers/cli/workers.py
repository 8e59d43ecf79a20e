"""Looking at workers: who takes what, who drains, who is gone."""

from collections.abc import Mapping
from datetime import datetime

import typer

from everturn_workers.cli import options
from everturn_workers.cli.figures import shown_span


def add_to(app: typer.Typer) -> None:
    app.command("workers")(list_workers)


def list_workers(
    port: options.Port = None, home: options.Home = None, json: options.Json = False
) -> None:
    """The workers of the runtime: what they take, what they have under way, who is gone."""
    from everturn_workers.cli.runtime import asked
    from everturn_workers.cli.sessions import new_table, one_line, print_table
    from everturn_workers.cli.show import print_json

    views = asked(lambda client: client.workers(), options.read(port=port, home=home))
    if json:
        for view in views:
            print_json(view.model_dump())
        return
    table = new_table(
        *("worker", "state", "host", "home", "roles", "slots", "under way"),
        *("since", "heard>", "version"),
    )
    for view in views:
        table.add_row(
            view.id,
            view.state,
            one_line(view.host),
            f"{view.home} {one_line(view.home_path)}",
            ", ".join(view.roles),
            _counts(view.slots),
            _counts(view.under_way),
            f"{datetime.fromtimestamp(view.started_at):%Y-%m-%d %H:%M}",
            f"{shown_span(view.seconds_since)} ago",
            view.version,
        )
    print_table(table)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
