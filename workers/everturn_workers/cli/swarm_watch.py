"""Watching a swarm to its end, while its results go to a file."""

import asyncio

from everturn.client import Client
from everturn.swarm_views import SwarmView
from everturn.swarms import ItemState
from everturn_workers.cli.swarm_progress import Progress
from everturn_workers.cli.swarm_results import ResultFile

LOOK_SECONDS = 1.0
PAUSE_SECONDS = 0.25
"""Between two looks at a swarm that changes all the time."""

UNFINISHED: tuple[ItemState, ...] = ("failed", "cancelled", "skipped")


class StandsStill(Exception):  # noqa: N818 - a state of the swarm, not a fault
    """All that is under way waits for a person."""


async def watch(
    client: Client, swarm: str, results: ResultFile | None, progress: Progress, attended: bool
) -> SwarmView:
    """Show the swarm until it is done. Raises StandsStill where all that runs waits for a
    person, and nobody is `attended` to."""
    view = await client.swarms.get(swarm)
    if results is not None:
        results.forget(await _worked_again(client, swarm, results))
    while True:
        progress.show(view)
        if results is not None:
            await _write(client, swarm, results)
        if view.state == "done":
            again = set() if results is None else await _worked_again(client, swarm, results)
            if not again or results is None:
                return view
            results.forget(again)
        elif not attended and view.counts.running and len(view.asking) >= view.counts.running:
            raise StandsStill
        else:
            await asyncio.sleep(PAUSE_SECONDS)
        view = await client.swarms.changed(swarm, view.seen, LOOK_SECONDS)


async def _write(client: Client, swarm: str, results: ResultFile) -> None:
    """Write all that has ended."""
    while True:
        page = await client.swarms.results(swarm, results.after, order=results.order)
        results.add(page.items)
        if not page.items or page.after is None:
            return


async def _worked_again(client: Client, swarm: str, results: ResultFile) -> set[int]:
    """Items whose lines say that they did not complete, and that were begun anew since."""
    if not results.unsure:
        return set()
    ended: dict[int, int | None] = {}
    for state in UNFINISHED:
        after: int | None = 0
        while after is not None:
            page = await client.swarms.items(swarm, after, 500, state)
            ended |= {item.n: item.settled for item in page.items}
            after = page.after
    return {n for n, settled in results.unsure.items() if ended.get(n) != settled}
