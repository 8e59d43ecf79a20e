"""W10: turns a second with one, two and four workers, each of which is far from busy."""

import time
from contextlib import AsyncExitStack
from pathlib import Path

from parts import Cost, measure, process, spread
from throughput import Everturn, Ground, everturn, ground

LATENCY_MS = 200
FLEETS = (1, 2, 4)
TURNS_EACH, AT_ONCE_EACH = 20, 3
EDGE = 0.1
"""Of the turns, at either end: while a fleet fills and empties, some of it has nothing to do."""
SLOTS = {
    "EVERTURN_TURNS_MAX": "2",
    "EVERTURN_INLINE_MAX": "1",
    "EVERTURN_MODELS_MAX": "1",
    "EVERTURN_TOOLS_MAX": "1",
}
"""One call of a model at a time: who waits for its 200 ms needs no tenth of a core."""
WORKER = ("-m", "everturn_workers.cli", "worker")


async def w10(folder: Path, repetitions: int) -> None:
    """The turn of W1 at 200 ms a model call, by workers of one slot."""
    print(
        f"\nW10  turns a second with {FLEETS} workers of one slot, at {LATENCY_MS} ms a model call"
    )
    rates: dict[int, list[float]] = {}
    async with (
        ground(folder, LATENCY_MS) as on,
        everturn(on, "auto", **SLOTS) as first,
        AsyncExitStack() as more,
    ):
        pids = [first.pid]
        for count in FLEETS:
            while len(pids) < count:
                pid, _ = await more.enter_async_context(process(*WORKER, **first.environment))
                pids.append(pid)
            await _measured(on, first, pids, 1)
            for _ in range(repetitions):
                rate, cost = await _measured(on, first, pids, TURNS_EACH)
                rates.setdefault(count, []).append(rate)
                print(f"{count} workers: {rate:.2f}; of a core: {_shares(cost)}")
    for count, found in rates.items():
        gains = [rate / one for rate, one in zip(found, rates[1], strict=True)]
        print(f"{count} workers: {spread(found, 2)} turns a second, {spread(gains, 2)} x one")


def _shares(cost: Cost) -> str:
    shares = {name: seconds / cost.seconds for name, seconds in cost.cpu.items()}
    return ", ".join(f"{name} {share:.1%}" for name, share in shares.items())


async def _measured(on: Ground, ours: Everturn, pids: list[int], turns: int) -> tuple[float, Cost]:
    """Turns a second while all were at work, and what the whole cost."""
    named = {f"worker {number}": pid for number, pid in enumerate(pids, start=1)}
    watched = {**named, "server": on.server.process.pid}
    count = turns * len(pids)
    ends: list[float] = []

    async def turn(number: int) -> None:
        await ours.turn(number)
        ends.append(time.perf_counter())

    cost = await measure(turn, count, min(AT_ONCE_EACH, turns) * len(pids), watched)
    edge = int(count * EDGE)
    seconds = ends[-1 - edge] - ends[edge]
    return (count - 1 - 2 * edge) / seconds if seconds else 0.0, cost
