"""What was used: usage."""

import asyncio
import csv
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from everturn_workers.cli import options

if TYPE_CHECKING:
    from everturn.views import UsageBy, UsageRow

_FIGURES = (
    *("model_calls", "lost_attempts", "side_calls", "input_tokens", "cached_tokens"),
    *("output_tokens", "reasoning_tokens", "cost_usd", "unpriced_calls", "embedding_calls"),
)


def add_to(app: typer.Typer) -> None:
    app.command("usage")(show_usage)


def show_usage(
    by: Annotated[str, typer.Option(help="session, agent, model or day (UTC).")] = "session",
    since: Annotated[
        str | None, typer.Option(help="From this UTC day on, such as 2026-01-31.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on stdout, with a heading.")] = False,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Tokens and cost by session, agent, model or day."""
    from everturn_workers.cli.show import print_json

    rows = asyncio.run(_read(_checked(by), since, port, home))
    if json:
        for row in rows:
            print_json(row.model_dump())
    elif as_csv:
        lines = csv.writer(sys.stdout, lineterminator="\n")
        lines.writerow((by, *_FIGURES))
        for row in rows:
            figures = row.model_dump() | {"cost_usd": f"{row.cost_usd:.12f}"}
            lines.writerow((row.key, *(figures[name] for name in _FIGURES)))
    else:
        _show(by, rows)


def _checked(by: str) -> "UsageBy":
    from typing import get_args

    from everturn.errors import UsageError
    from everturn.views import UsageBy

    if by not in get_args(UsageBy):
        raise UsageError(f"--by is {by!a}; it is one of {', '.join(get_args(UsageBy))}.")
    return by  # type: ignore[return-value]


async def _read(
    by: "UsageBy", since: str | None, port: int | None, home: object
) -> "list[UsageRow]":
    from everturn_workers.cli.runtime import reached

    async with reached(options.read(port=port, home=home)) as client:
        return await client.usage(by, since)


def _show(by: str, rows: "list[UsageRow]") -> None:
    from everturn_workers.cli.figures import shown_cost
    from everturn_workers.cli.sessions import new_table, one_line, print_table

    table = new_table(by, "replies>", "lost>", "side>", "in>", "cached>", "out>", "cost>")
    for row in [*rows, _total(rows)]:
        last = row.key == "" and len(rows) > 0
        table.add_row(
            "all" if last else one_line(row.key),
            *(f"{number:,}" for number in (row.model_calls, row.lost_attempts, _side(row))),
            *(f"{n:,}" for n in (row.input_tokens, row.cached_tokens, row.output_tokens)),
            shown_cost(row.cost_usd, row.unpriced_calls),
            style="bold" if last else None,
        )
    print_table(table)


def _side(row: "UsageRow") -> int:
    """Calls that are no step's: compactions and the like, and embeddings."""
    return row.side_calls + row.embedding_calls


def _total(rows: "list[UsageRow]") -> "UsageRow":
    from decimal import Decimal

    from everturn.views import UsageRow

    sums = {name: sum(getattr(row, name) for row in rows) for name in _FIGURES}
    sums["cost_usd"] = float(sum(Decimal(str(row.cost_usd)) for row in rows))
    return UsageRow(key="", **sums)
