"""W5: a worker is killed one second into a tool of 5 s, and another started at once."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from floor_workflow import QUEUE
from parts import HERE, process, spread
from throughput import Ground, everturn, ground

INTO_SECONDS = 1.0
WORKER = Callable[[], AbstractAsyncContextManager[tuple[int, str]]]


@dataclass(frozen=True)
class Recovery:
    """Seconds: the new worker's start, from then to the tool's second beginning, to the end."""

    start: float
    again: float
    done: float


async def w5(folder: Path, repetitions: int) -> None:
    floors: list[Recovery] = []
    ours: list[Recovery] = []
    for repetition in range(repetitions):
        place = folder / str(repetition)
        place.mkdir()
        async with ground(place) as on:
            floors.append(await _floor(on, place / "began.log"))
            (place / "began.log").unlink()
            ours.append(await _everturn(on, place / "began.log"))
    print("\nW5  kill -9 one second into a 5 s tool; seconds, min / median / max")
    print(f"{'':12} {'worker back':>22} {'tool again after that':>24} {'done after that':>22}")
    for name, runs in (("floor", floors), ("everturn", ours)):
        columns = [[run.start for run in runs], [run.again for run in runs]]
        columns.append([run.done for run in runs])
        print(f"{name:12} {' '.join(f'{spread(column, 2):>22}' for column in columns)}")


async def _floor(on: Ground, began: Path) -> Recovery:
    command = (str(HERE / "floor_worker.py"), on.server.address, on.url)

    async def work() -> None:
        await on.client.execute_workflow(
            "FloorSlow", str(began), id=f"floor-{uuid4()}", task_queue=QUEUE
        )

    return await _killed(lambda: process(*command), work, began)


async def _everturn(on: Ground, began: Path) -> Recovery:
    # A first worker process only brings the front; the ones that are killed are its peers.
    async with everturn(on, "auto") as ours:
        os.kill(ours.pid, signal.SIGKILL)
        key = await ours.session()
        environment = ours.environment

        def worker() -> AbstractAsyncContextManager[tuple[int, str]]:
            return process("-m", "everturn_workers.cli", "worker", **environment)

        return await _killed(worker, lambda: ours.work(key, "slow"), began)


async def _killed(worker: WORKER, work: Callable[[], object], began: Path) -> Recovery:
    async with worker() as (pid, _):
        working = asyncio.ensure_future(work())  # type: ignore[arg-type]
        await _begun(began, 1)
        await asyncio.sleep(INTO_SECONDS)
        os.kill(pid, signal.SIGKILL)
        killed = time.time()
        async with worker():
            back = time.time()
            again = (await _begun(began, 2))[1]
            await working
            return Recovery(back - killed, again - back, time.time() - back)


async def _begun(began: Path, times: int) -> list[float]:
    """The times at which the tool began, once there are `times` of them."""
    while True:
        lines = _lines(began)
        if len(lines) >= times:
            return [float(line) for line in lines]
        await asyncio.sleep(0.01)


def _lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []
