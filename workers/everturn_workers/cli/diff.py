"""Comparing what two sessions did: diff."""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from everturn_workers.cli import options
from everturn_workers.cli.figures import shown_cost

if TYPE_CHECKING:
    from rich.text import Text

    from everturn.trajectories import (
        CallDiff,
        CallTrace,
        Changed,
        Difference,
        StepDiff,
        StepTrace,
        Totals,
        TurnDiff,
        TurnTrace,
    )

WIDTH = 80
ALIKE_SHOWN = 20
"""Characters before the first in which two values differ."""
_MARKS = {"same": "=", "changed": "~", "only_a": "-", "only_b": "+"}
_STYLES = {"-": "red", "+": "green", "~": "yellow", "=": "dim"}
_INDENT = " " * 20


def add_to(app: typer.Typer) -> None:
    app.command()(diff)


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="Id of a session.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Id of another, such as a fork of it.")],
    turn: Annotated[int | None, typer.Option(min=1, help="Only that turn of each.")] = None,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """What two sessions did, step by step: where they part, calls, results, texts, cost."""
    from everturn_workers.cli.runtime import asked
    from everturn_workers.cli.show import consoles, print_json

    settings = options.read(port=port, home=home)
    found = asked(lambda client: client.diff(a, b, turn), settings)
    if json:
        print_json(found.model_dump())
        return
    out, _ = consoles()
    if not out.is_terminal:
        out.width = WIDTH
    for line in shown(found, out.width):
        out.print(line, soft_wrap=True)


def shown(found: "Difference", width: int) -> "Iterator[Text]":
    """The difference as lines of at most `width` characters."""
    from rich.text import Text

    for line in _lines(found):
        text, style = line
        cut = text if len(text) <= width else f"{text[: width - 1]}…"
        yield Text(cut, style=style)


def _lines(found: "Difference") -> Iterator[tuple[str, str]]:
    yield f"A  {found.a}", "bold"
    yield f"B  {found.b}", "bold"
    yield from ((line, "") for line in _about(found))
    for turn in found.turns:
        yield "", ""
        yield from _turn(turn)
    yield "", ""
    yield from ((line, "") for line in _totals(found.totals_a, found.totals_b))


def _about(found: "Difference") -> Iterator[str]:
    came = found.shared
    if came is not None:
        fork, other = ("A", "B") if came.session == found.b else ("B", "A")
        yield f"{fork} {came.told(other)}."
    if found.same:
        yield "They did the same."
    elif found.parts_a is None and found.parts_b is None:
        yield "They took the same steps."
    else:
        places = [("A", found.parts_a), ("B", found.parts_b)]
        named = [f"{place} of {whose}" for whose, place in places if place is not None]
        yield f"They part at step {' and '.join(named)}."


def _turn(turn: "TurnDiff") -> Iterator[tuple[str, str]]:
    for whose, one in (("A", turn.a), ("B", turn.b)):
        if one is not None:
            yield f"{whose}  {_ended(one)}", "bold"
    for step in turn.steps:
        yield from _step(step)


def _ended(one: "TurnTrace") -> str:
    from everturn_workers.cli.sessions import one_line

    lasted = "" if one.seconds is None else f" in {one.seconds:.1f} s"
    said = f": {one_line(one.said)}" if one.said else ""
    return f"turn {one.turn}, {one.outcome or 'running'}{lasted}{said}"


def _step(step: "StepDiff") -> Iterator[tuple[str, str]]:
    mark = _MARKS[step.how]
    places = [one.place if one is not None else "" for one in (step.a, step.b)]
    style = _STYLES[mark]
    did = [_did(one) for one in (step.a, step.b) if one is not None]
    # Of the same steps the second says what was recorded.
    told = did[-1] if step.how == "same" else " | ".join(dict.fromkeys(did))
    yield f"  {mark} {places[0]:>7} {places[1]:>7} {told}", style
    if step.how != "changed":
        return
    yield from ((f"{_INDENT}{line}", _STYLES[line[0]]) for line in _text(step))
    for call in step.calls:
        if call.how != "same":
            yield from ((f"{_INDENT}{line}", _STYLES.get(line[0], "")) for line in _call(call))
    for whose, one in (("A", step.a), ("B", step.b)):
        if one is not None:
            yield f"{_INDENT}{whose} {_figures(one)}", "dim"


def _did(one: "StepTrace") -> str:
    from everturn_workers.cli.sessions import one_line

    if one.calls:
        return ", ".join(_called(call) for call in one.calls)
    return one_line(f'"{one.text}"')


def _called(call: "CallTrace") -> str:
    from everturn_workers.cli.show import printable

    failed = " failed" if call.failed else ""
    recorded = " (recorded)" if call.recorded else ""
    return f"{printable(call.name)}{failed}{recorded}"


def _text(step: "StepDiff") -> Iterator[str]:
    from everturn_workers.cli.show import printable

    for line in step.text:
        mark = line[0] if line[0] in "-+" else "="
        yield f"{mark} {printable(line.removeprefix(mark))}"


def _call(call: "CallDiff") -> Iterator[str]:
    name = call.a or call.b or ""
    if call.a is not None and call.b is not None and call.a != call.b:
        yield f"- {call.a}"
        yield f"+ {call.b}"
    else:
        yield f"{_MARKS[call.how]} {name}"
    for argument in call.arguments:
        yield from _argument(argument)
    if call.result == "changed" and call.how == "changed":
        yield from _argument_like("result", call.result_a, call.result_b)


def _argument(changed: "Changed") -> Iterator[str]:
    yield from _argument_like(changed.name, changed.a, changed.b)


def _argument_like(name: str, a: str | None, b: str | None) -> Iterator[str]:
    from everturn_workers.cli.sessions import one_line

    # Where both begin alike, the difference is what counts.
    pairs = zip(a or "", b or "", strict=False)
    alike = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    first = max(0, alike - ALIKE_SHOWN)
    for mark, text in (("-", a), ("+", b)):
        if text is not None:
            begins = "…" if first else ""
            yield f"{mark}   {name}: {begins}{one_line(text[first:]) or '(empty)'}"


def _figures(one: "StepTrace") -> str:
    lasted = "" if one.seconds is None else f", {one.seconds:.1f} s"
    price = shown_cost(one.cost_usd or 0.0, int(one.cost_usd is None))
    return f"{one.input_tokens:,} in, {one.output_tokens:,} out, {price}{lasted}"


def _totals(a: "Totals", b: "Totals") -> Iterator[str]:
    yield f"{'':<16}{'A':>14}{'B':>14}{'B - A':>14}"
    counts = ("turns", "steps", "calls", "failed_calls", "recorded_calls")
    for name in (*counts, "input_tokens", "output_tokens"):
        one, two = getattr(a, name), getattr(b, name)
        more = f"{two - one:+,}" if two != one else ""
        yield f"{name.replace('_', ' '):<16}{one:>14,}{two:>14,}{more:>14}".rstrip()
    costs = [shown_cost(one.cost_usd, one.unpriced) for one in (a, b)]
    less = "-" if b.cost_usd < a.cost_usd else "+"
    more = f"{less}{shown_cost(abs(b.cost_usd - a.cost_usd))}" if a.cost_usd != b.cost_usd else ""
    yield f"{'cost':<16}{costs[0]:>14}{costs[1]:>14}{more:>14}".rstrip()
    more = f"{b.seconds - a.seconds:+.1f}"
    yield f"{'seconds':<16}{a.seconds:>14.1f}{b.seconds:>14.1f}{more:>14}"
