"""Approvals: approvals list, approve, deny, answer."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from everturn_workers.cli import options

if TYPE_CHECKING:
    from everturn.client import Client
    from everturn.views import ApprovalView

T = TypeVar("T")

# Who approves names what was read: by now another call may be the only one that waits.
Number = Annotated[int, typer.Argument(metavar="APPROVAL", help="Which, by its number.")]
MaybeNumber = Annotated[
    int | None,
    typer.Argument(metavar="[APPROVAL]", help="Which; by default the one.", show_default=False),
]


def add_to(app: typer.Typer) -> None:
    approvals = typer.Typer(
        help="Decide about tool calls that wait for a person's leave, and answer questions.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    approvals.command("list")(list_approvals)
    approvals.command("approve")(approve)
    approvals.command("deny")(deny)
    approvals.command("answer")(answer)
    app.add_typer(approvals, name="approvals")


def list_approvals(
    session: Annotated[
        str | None, typer.Argument(metavar="[SESSION]", help="Of which session; else of all.")
    ] = None,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """The calls that wait: what would run, with which arguments, to which effect."""
    from everturn_workers.cli.deciding import lines
    from everturn_workers.cli.show import print_json

    found = _asked(lambda client: client.approvals(session), port, home)
    for asked in found:
        if json:
            print_json(asked.model_dump())
        else:
            typer.echo("\n".join(lines(asked)))
    if not found and not json:
        typer.echo("No call waits for leave.", err=True)


def approve(
    session: options.SessionName,
    approval: Number,
    always: Annotated[
        bool, typer.Option("--always", help="Let later calls of the tool in the session pass too.")
    ] = False,
    like: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TEXT",
            help="Let only those pass whose argument NAME is TEXT, in which * stands for anything"
            " on one line but what a shell reads as its own; may be given for several.",
        ),
    ] = None,
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="Run it with these arguments instead.")
    ] = None,
    port: options.Port = None,
    home: options.Home = None,
) -> None:
    """Let a call run."""
    from everturn_workers.cli.deciding import arguments_from, verdict_from

    more: dict[str, Any] = {}
    if like:
        more["pattern"] = _pattern(like)
    if arguments is not None:
        more["arguments"] = arguments_from(arguments)
    decision = "grant" if always or like else "approve"
    _decide(session, approval, port, home, lambda one: verdict_from(one, decision, **more))


def deny(
    session: options.SessionName,
    approval: MaybeNumber = None,
    reason: Annotated[str, typer.Option(help="Why; the model reads it.")] = "",
    port: options.Port = None,
    home: options.Home = None,
) -> None:
    """Keep a call from running, or refuse to answer."""
    from everturn_workers.cli.deciding import verdict_from

    _decide(session, approval, port, home, lambda one: verdict_from(one, "deny", reason=reason))


def answer(
    session: options.SessionName,
    approval: Number,
    text: Annotated[
        str,
        typer.Argument(help="What the agent is told, a choice by its number, or JSON where asked."),
    ],
    port: options.Port = None,
    home: options.Home = None,
) -> None:
    """Answer what an agent asks."""
    from everturn_workers.cli.deciding import answer_to

    _decide(session, approval, port, home, lambda one: answer_to(one, text))


def _decide(
    session: str,
    approval: int | None,
    port: int | None,
    home: Path | None,
    verdict_on: "Callable[[ApprovalView], Any]",
) -> None:
    from everturn_workers.cli.deciding import chosen, told

    async def done(client: "Client") -> str:
        asked = chosen(await client.approvals(session), approval, session)
        verdict = verdict_on(asked)
        return told(await client.answer_approval(session, verdict), verdict, asked)

    typer.echo(_asked(done, port, home), err=True)


def _pattern(like: list[str]) -> dict[str, str]:
    from everturn.errors import UsageError

    pattern = {}
    for one in like:
        name, equals, text = one.partition("=")
        if not (name and equals):
            raise UsageError(f"--like {one[:80]!a} is not possible; write NAME=TEXT.")
        pattern[name] = text
    return pattern


def _asked(
    ask: "Callable[[Client], Coroutine[None, None, T]]", port: int | None, home: Path | None
) -> T:
    from everturn_workers.cli.runtime import asked

    return asked(ask, options.read(port=port, home=home))
