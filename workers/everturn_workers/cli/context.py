"""Looking at what a step's request was composed of: context."""

import asyncio
import difflib
from typing import TYPE_CHECKING, Annotated

import typer

from everturn_workers.cli import options

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from everturn.views import ContextView, LayerView

BAR_WIDTH = 60
PREVIEW_CHARACTERS = 200


def add_to(app: typer.Typer) -> None:
    app.command("context")(show_context)


def show_context(
    session: options.SessionName,
    turn: Annotated[
        int | None, typer.Option(min=1, help="Of which turn; by default the newest.")
    ] = None,
    step: Annotated[
        int | None, typer.Option(min=1, help="Of which step; by default the turn's newest.")
    ] = None,
    diff: Annotated[
        str | None,
        typer.Option(metavar="STEP", help="Against which step, as STEP or TURN.STEP."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="With the text of every layer.")] = False,
    port: options.Port = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """What a step's request was composed of, layer by layer, and how full the window was."""
    from everturn_workers.cli.runtime import reached
    from everturn_workers.cli.show import consoles, print_json

    settings = options.read(port=port, home=home)
    other = None if diff is None else _place(diff)

    async def found() -> "tuple[ContextView, ContextView | None]":
        async with reached(settings) as client:
            shown = await client.context(session, turn, step)
            if other is None:
                return shown, None
            return shown, await client.context(session, other[0] or shown.turn, other[1])

    view, against = asyncio.run(found())
    if json:
        for one in (view, against):
            if one is not None:
                print_json(one.model_dump())
        return
    out, _ = consoles()
    if not out.is_terminal:
        out.width = 120  # A pipe has no width to fit.
    if against is not None:
        _print_difference(out, against, view)
        return
    _print_head(out, view)
    out.print(_table(out, view))
    if full:
        for layer in view.layers:
            _print_layer(out, layer)


def _place(text: str) -> tuple[int | None, int]:
    """`TURN.STEP` or `STEP`."""
    from everturn.errors import UsageError

    turn, dot, step = text.rpartition(".")
    if step.isdecimal() and int(step) > 0 and (turn.isdecimal() if dot else not turn):
        return (int(turn) if dot else None), int(step)
    raise UsageError(f"--diff is {text[:20]!a}; write a step such as 2, or a turn's such as 3.2.")


def _parts(view: "ContextView") -> list[tuple[str, int, str, str]]:
    """What the window holds: name, tokens, the bar's character and its colour."""
    sections = view.sections
    return [
        ("prompt", sections.system + sections.ack, "█", "blue"),
        ("tools", sections.tools, "▓", "cyan"),
        ("history", sections.history, "▒", "green"),
        ("this turn", sections.memory, "▚", "yellow"),
        ("kept for the reply", sections.generation, "░", "magenta"),
    ]


def _print_head(out: "Console", view: "ContextView") -> None:
    from rich.text import Text

    out.print(
        Text.assemble(
            (view.session, "bold"),
            f"  step {view.turn}.{view.step}  agent {view.agent}  {view.model}"
            f"  profile {view.profile} ({view.mode})",
        ),
        soft_wrap=True,
    )
    sections = view.sections
    if not sections.window:
        return
    used = sum(tokens for _, tokens, _, _ in _parts(view))
    rough = "~" if sections.estimated else ""
    line = Text.assemble(
        _bar(view, min(BAR_WIDTH, max(20, out.width - 48))),
        f"  {rough}{used:,} of {sections.window:,} tokens",
        (f", {used / sections.window:.1%}", "bold"),
    )
    if view.level != "none":
        line.append(f"  {view.level}", style="yellow")
    out.print(line, soft_wrap=True)
    if view.compacts_at is not None:
        marked = int(view.compacts_at * sections.window)
        out.print(
            Text(f"summarised from {marked:,} tokens on ({view.compacts_at:.0%})", style="dim"),
            soft_wrap=True,
        )


def _bar(view: "ContextView", width: int) -> "Text":
    """The window as a bar; what takes anything of it shows."""
    from rich.text import Text

    bar, filled, tokens = Text(), 0, 0
    for _, size, character, style in _parts(view):
        tokens += size
        end = max(round(width * tokens / view.sections.window), filled + (size > 0))
        end = min(end, width)
        bar.append(character * (end - filled), style=style)
        filled = end
    bar.append("·" * (width - filled), style="dim")
    return bar


def _table(out: "Console", view: "ContextView") -> "Table":
    from rich.text import Text

    from everturn_workers.cli.sessions import new_table, one_line

    table = new_table("", "layer", "stands for", "tokens>", "share>", "text")
    sections = view.sections
    room = max(20, out.width - 70)

    def add(mark: "Text", name: str, scope: str, tokens: int, text: str, style: str = "") -> None:
        share = f"{tokens / sections.window:.1%}" if sections.window else ""
        rough = "~" if sections.estimated else ""
        table.add_row(mark, name, scope, f"{rough}{tokens:,}", share, text, style=style)

    (prompt, tools, history, memory, reply) = (
        Text(character, style=style) for _, _, character, style in _parts(view)
    )
    cached = [layer.cached for layer in view.layers]
    for layer in view.layers:
        add(prompt, layer.id, layer.scope, layer.tokens, one_line(layer.text)[:room])
        if layer.cached and cached.count(True) < len(cached) and layer is _last_cached(view):
            table.add_row("", "", "", "", "", "what follows is not kept in a cache", style="dim")
    if sections.ack:
        add(prompt, "ack", "", sections.ack, "", "dim")
    add(tools, "tools", "", sections.tools, one_line(", ".join(view.tools))[:room])
    add(history, "history", "", sections.history, _messages(view.history_messages))
    add(memory, "this turn", "", sections.memory, _messages(view.memory_messages))
    if sections.generation:
        add(reply, "reply", "", sections.generation, "kept free", "dim")
    return table


def _messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}" if count else ""


def _last_cached(view: "ContextView") -> "LayerView":
    return [layer for layer in view.layers if layer.cached][-1]


def _print_layer(out: "Console", layer: "LayerView") -> None:
    from rich.rule import Rule
    from rich.text import Text

    from everturn_workers.cli.show import printable

    out.print(Rule(f"{layer.id}  {layer.tokens:,} tokens", align="left", characters="─"))
    out.print(Text(printable(layer.text)), soft_wrap=True)


def _print_difference(out: "Console", before: "ContextView", after: "ContextView") -> None:
    """What changed from one step to another, layer by layer, then by section."""
    from rich.text import Text

    from everturn_workers.cli.sessions import new_table
    from everturn_workers.cli.show import printable

    names = (f"step {before.turn}.{before.step}", f"step {after.turn}.{after.step}")
    table = new_table("layer", *(f"{name}>" for name in names), "change>", "")
    old = {layer.id: layer for layer in before.layers}
    new = {layer.id: layer for layer in after.layers}
    changed = []
    for name in dict.fromkeys((*old, *new)):
        one, two = old.get(name), new.get(name)
        what = "gone" if two is None else "new" if one is None else "changed"
        if one is not None and two is not None and one.digest == two.digest:
            what = "same"
        else:
            changed.append(name)
        sizes = (one.tokens if one else 0, two.tokens if two else 0)
        table.add_row(name, *_sizes(*sizes), what, style="dim" if what == "same" else "")
    for (name, size, _, _), (_, other, _, _) in zip(_parts(before), _parts(after), strict=True):
        table.add_row(name, *_sizes(size, other), "", style="bold")
    out.print(table)
    for name in changed:
        was, now = (
            printable(layers[name].text).splitlines() if name in layers else []
            for layers in (old, new)
        )
        labels = (f"{name}, {names[0]}", f"{name}, {names[1]}")
        lines = difflib.unified_diff(was, now, *labels, lineterm="")
        for line in lines:
            out.print(Text(line, style=_STYLES.get(line[:1], "")), soft_wrap=True)


_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def _sizes(before: int, after: int) -> tuple[str, str, str]:
    return f"{before:,}", f"{after:,}", f"{after - before:+,}" if after != before else ""
