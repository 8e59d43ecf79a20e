"""W7 and W8: many tool calls at once, and what one costs beside calling its function."""

import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

from floor_workflow import QUEUE
from parts import FAN, MANY_CALLS, Cost, measure, spread
from throughput import Everturn, everturn, floor, ground

FAN_TURNS = 5
PAIRS = 3

Work = Callable[[str], Awaitable[None]]


async def w7(folder: Path, repetitions: int) -> None:
    """50 calls of 100 ms in one step: from the first one's beginning to the last one's end."""
    told = folder / "began.log"
    async with ground(folder) as on, AsyncExitStack() as stack:
        _, floor_pid = await stack.enter_async_context(floor(on))
        auto = await stack.enter_async_context(everturn(on, "auto"))
        queued = await stack.enter_async_context(everturn(on, "queued"))

        async def fan(_: str) -> None:
            at = {"id": f"floor-{uuid4()}", "task_queue": QUEUE}
            await on.client.execute_workflow("FloorFan", args=[str(told), FAN], **at)

        contenders: dict[str, tuple[Work, str, int]] = {
            "floor": (fan, "", floor_pid),
            "everturn": (_turns(auto), "nap", auto.pid),
            "everturn, in threads": (_turns(auto), "doze", auto.pid),
            "everturn, queued": (_turns(queued), "nap", queued.pid),
            "queued, in threads": (_turns(queued), "doze", queued.pid),
        }
        for work, text, _ in contenders.values():
            await work(text)
        took: dict[str, list[float]] = {}
        costs: dict[str, Cost] = {}
        for _ in range(repetitions):
            for name, (work, text, pid) in contenders.items():

                async def turn(
                    _: int, name: str = name, work: Work = work, text: str = text
                ) -> None:
                    told.unlink(missing_ok=True)
                    await work(text)
                    took.setdefault(name, []).append(_from_first_to_last(told))

                costs[name] = await measure(turn, FAN_TURNS, 1, on.pids(pid))
    print(f"\nW7  {FAN} calls of 100 ms at once, ms from first start to last end, on one worker")
    for name, values in took.items():
        print(f"{name:22} {spread(values, 0):>24}   CPU ms a turn: {costs[name].cpu_ms()}")


def _turns(on: Everturn) -> Work:
    async def work(text: str) -> None:
        await on.work(await on.session(), text)

    return work


def _from_first_to_last(told: Path) -> float:
    """Milliseconds, by what the calls themselves wrote down."""
    times = [line.split() for line in told.read_text().splitlines()]
    assert len(times) == FAN, len(times)
    return 1000 * (max(float(end) for _, end in times) - min(float(at) for at, _ in times))


async def w8(folder: Path, repetitions: int) -> None:
    """A turn with 51 calls of `add` in its step against one with 1: ms that each call adds."""
    async with ground(folder) as on, AsyncExitStack() as stack:
        floor_turn, _ = await stack.enter_async_context(floor(on))

        async def plain(text: str) -> None:
            await floor_turn(0, text)

        contenders: dict[str, Work] = {"floor": plain}
        for placement in ("auto", "queued"):
            ours = await stack.enter_async_context(everturn(on, placement))
            name = "everturn" if placement == "auto" else f"everturn, {placement}"
            contenders[name] = _turns(ours)
        for work in contenders.values():
            await work("one")
            await work("many")
        took: dict[str, list[float]] = {}
        for _ in range(repetitions):
            for name, work in contenders.items():
                one, many = [], []
                for _ in range(PAIRS):
                    one.append(await _ms(work, "one"))
                    many.append(await _ms(work, "many"))
                more = statistics.median(many) - statistics.median(one)
                took.setdefault(name, []).append(more / (MANY_CALLS - 1))
    print("\nW8  ms that a call of a pure tool adds to its turn; the function itself takes none")
    for name, values in took.items():
        print(f"{name:22} {spread(values, 2):>24}")


async def _ms(work: Work, text: str) -> float:
    began = time.perf_counter()
    await work(text)
    return (time.perf_counter() - began) * 1000
