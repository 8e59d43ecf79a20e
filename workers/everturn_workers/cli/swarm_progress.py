"""How far a swarm is, for a person: a bar on a terminal, now and then a line elsewhere."""

import time

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from everturn.swarm_views import SwarmView
from everturn_workers.cli.figures import shown_cost, shown_span

LINE_SECONDS = 10.0
BAR_COLUMNS = 40
NAMED_MAX = 5


class Progress:
    """Shows views of a swarm one after the other, on stderr."""

    def __init__(self, talk: Console, quiet: bool = False) -> None:
        self._talk = talk
        self._quiet = quiet
        self._live = None if quiet or not talk.is_terminal or talk.is_dumb_terminal else _live(talk)
        self._state = ""
        self._told_at = -LINE_SECONDS
        self._asking: frozenset[str] = frozenset()

    def __enter__(self) -> "Progress":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, view: SwarmView) -> None:
        if self._quiet:
            return
        self._name_who_asks(view)
        if self._live is not None:
            self._live.update(_drawn(view), refresh=True)
            return
        now = time.monotonic()
        changed = view.state != self._state and view.state != "done"
        if changed or (now - self._told_at >= LINE_SECONDS and view.state != "done"):
            self._talk.print(line(view), soft_wrap=True)
            self._state, self._told_at = view.state, now

    def _name_who_asks(self, view: SwarmView) -> None:
        fresh = sorted(set(view.asking) - self._asking)
        if fresh:
            more = f" and {len(fresh) - NAMED_MAX:,} more" if len(fresh) > NAMED_MAX else ""
            named = ", ".join(fresh[:NAMED_MAX]) + more
            # Above the bar, where there is one.
            self._talk.print(
                f"Waiting for a person: {named}; see 'everturn swarm show {view.id}'.",
                soft_wrap=True,
            )
        self._asking = frozenset(view.asking)


def _live(talk: Console) -> Live:
    return Live(console=talk, auto_refresh=False, transient=True)


def line(view: SwarmView) -> str:
    """How far it is, in one line."""
    return f"{view.ended:,} of {_all(view)}: {_counted(view)}; {_pace(view)}."


def _drawn(view: SwarmView) -> Group:
    bar = ProgressBar(total=max(view.items, 1), completed=view.ended, width=BAR_COLUMNS)
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text(view.id), bar, Text(f"{view.ended:,} of {_all(view)}"))
    return Group(grid, Text(f"{_counted(view)}; {_pace(view)}", style="dim"))


def _all(view: SwarmView) -> str:
    return f"{view.items:,} and more" if view.open else f"{view.items:,}"


def _counted(view: SwarmView) -> str:
    counts = {name: count for name, count in view.counts.model_dump().items() if count}
    order = ("done", "failed", "cancelled", "skipped", "running", "waiting")
    named = [f"{counts[name]:,} {name}" for name in order if name in counts]
    return ", ".join(named) or "none yet"


def _pace(view: SwarmView) -> str:
    said: list[str] = []
    if view.state in ("paused", "stopping"):
        said.append(view.state)
    elif view.reducing and view.state == "running":
        said.append(f"reducing, level {view.reducing}")
    if view.items_per_second is not None:
        said.append(_rate(view.items_per_second))
    said.append(shown_cost(view.cost_usd))
    if view.left_seconds is not None:
        said.append(f"{shown_span(view.left_seconds)} left")
    return ", ".join(said)


def _rate(per_second: float) -> str:
    if per_second >= 1:
        return f"{per_second:.1f}/s"
    if per_second >= 1 / 60:
        return f"{per_second * 60:.1f}/min"
    return f"{per_second * 3600:.1f}/h"


def ending(view: SwarmView) -> list[str]:
    """What became of a swarm that is done, in sentences."""
    done = f"{view.counts.done:,} of {view.items:,} items"
    others = [
        f"{count:,} {name}"
        for name, count in view.counts.model_dump().items()
        if count and name not in ("done", "waiting", "running")
    ]
    said = [f"Swarm {view.id} has done {', '.join((done, *others))}{_lasted(view)}."]
    match view.reason:
        case "quorum":
            said.append(f"It stopped at its quorum: {view.counts.done:,} items had completed.")
        case "deadline":
            span = shown_span(view.spec.deadline_seconds or 0)
            said.append(f"It stopped at its deadline, {span} after it began.")
        case "budget":
            said.append(
                f"It stopped at its budget; raise it with 'everturn budget raise {view.id} --usd"
                " LIMIT'."
            )
        case "cancelled":
            said.append("It was cancelled.")
    if is_unreduced(view):
        said.append(
            f"Agent {view.spec.reduce} made no result of them; 'everturn sessions show {view.id}'"
            " lists its sessions."
        )
    counts = view.counts
    if counts.failed or (view.reason != "quorum" and counts.cancelled + counts.skipped):
        said.append(
            "Work what failed or was left out again with 'everturn swarm resume"
            f" {view.id} --retry-failed'."
        )
    return said


def is_unreduced(view: SwarmView) -> bool:
    """Whether a result of all was to be made, and was not."""
    wanted = view.spec.reduce is not None and view.reason in (None, "quorum")
    return wanted and view.text is None and view.counts.done > 0


def _lasted(view: SwarmView) -> str:
    cost = shown_cost(view.cost_usd)
    if view.begun_at is None or view.ended_at is None:
        return f", {cost}"
    return f", in {shown_span(view.ended_at - view.begun_at)}, {cost}"
