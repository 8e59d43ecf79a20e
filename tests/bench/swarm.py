"""W4: a swarm of items of one model call each, beside as many child workflows."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

from floor_workflow import QUEUE
from parts import HERE, cpu_seconds, memory_bytes, process, spread
from throughput import Everturn, Ground, everturn, floor, ground

from everturn.session import SessionKey
from everturn.swarms import SwarmSpec, SwarmStart
from everturn_activities.store import SessionSettings
from everturn_workers.temporal import TemporalWaker

WIDTH = 50
FLOOR_ITEMS = 500
PIECE = 1_000
LONG_ITEMS, STEPS = 40, 20


async def w4(folder: Path, repetitions: int, count: int = 2_000, workers: int = 1) -> None:
    """Items a second, and what stays constant: the worker's memory, and every history. Both sides
    have so many `workers`; CPU and memory are those of the first."""
    print(f"\nW4  items a second of one model call each, {WIDTH} at once, {workers} workers each")
    async with (
        ground(folder) as on,
        floor(on) as (_, floor_pid),
        everturn(on, "auto") as ours,
        AsyncExitStack() as more,
    ):
        for _ in range(workers - 1):
            beside = process(str(HERE / "floor_worker.py"), on.server.address, on.url)
            await more.enter_async_context(beside)
            command = ("-m", "everturn_workers.cli", "worker")
            await more.enter_async_context(process(*command, **ours.environment))
        for warming in (True, *[False] * repetitions):
            many, few = (50, 50) if warming else (count, FLOOR_ITEMS)
            under = await _floor(on, few, on.pids(floor_pid))
            over = await _ours(on, ours, many, on.pids(ours.pid))
            if not warming:
                print(
                    f"floor {under[0]:.1f} ({under[1]}), everturn {over[0]:.1f} ({over[1]}),"
                    f" {over[0] / under[0]:.2f} x floor"
                )


async def w9(folder: Path, repetitions: int) -> None:
    """Items of 20 steps with a tool call each, for which the model takes a second: what a step
    costs beside."""
    print(f"\nW9  {LONG_ITEMS} items of {STEPS} steps at 1 s of model latency, all at once")
    async with ground(folder) as on, everturn(on, "auto") as ours:
        for warming in (True, *[False] * repetitions):
            key, spec = _new(), SwarmSpec(prompt="steady {n}", width=LONG_ITEMS)
            seconds, _ = await _worked(on, ours, key, spec, LONG_ITEMS)
            if not warming:
                beside = (seconds - STEPS) / STEPS * 1000
                print(
                    f"{seconds:.1f} s, {seconds / STEPS:.2f} x the model's; {beside:.0f} ms a step"
                )


def _new() -> SessionKey:
    return SessionKey("default", f"w-{uuid4().hex[:8]}")


async def _floor(on: Ground, count: int, pids: dict[str, int]) -> tuple[float, str]:
    texts = [f"item {n}" for n in range(count)]
    before, began = _cpu(pids), time.perf_counter()
    await on.client.execute_workflow(
        "FloorSwarm", args=[texts, WIDTH], id=f"floor-{uuid4()}", task_queue=QUEUE
    )
    return count / (time.perf_counter() - began), _spent(before, pids, count)


async def _ours(on: Ground, ours: Everturn, count: int, pids: dict[str, int]) -> tuple[float, str]:
    key, before = _new(), _cpu(pids)
    spec = SwarmSpec(prompt="item {n}", width=WIDTH)
    seconds, late = await _worked(on, ours, key, spec, count)
    cost = _spent(before, pids, count)
    if late:
        events, longest = await _histories(on, key)
        print(
            f"  {count} items in {seconds:.1f} s; worker's memory from a quarter on"
            f" {spread(late)} MiB; histories of at most {events} events, {longest} bytes"
        )
    return count / seconds, cost


async def _worked(
    on: Ground, ours: Everturn, key: SessionKey, spec: SwarmSpec, count: int
) -> tuple[float, list[float]]:
    """Seconds of a whole swarm, and the worker's MiB from a quarter of its items on."""
    swarms, place = ours.runtime.swarms, str(ours.workspace)
    await swarms.create(key, spec, SessionSettings(place, place), [], False)
    for first in range(1, count + 1, PIECE):
        items = [{"n": n} for n in range(first, min(first + PIECE, count + 1))]
        await swarms.add(key, first, items, first + PIECE > count)
    began, sizes = time.perf_counter(), []
    await TemporalWaker(on.client, ours.settings).wake_swarm(key)
    while (view := await swarms.swarm(key)).state != "done":
        if view.counts.done > count / 4:
            sizes.append(memory_bytes(ours.pid) / 2**20)
        await asyncio.sleep(0.25)
    assert view.counts.done == count, view
    return time.perf_counter() - began, sizes


async def _histories(on: Ground, key: SessionKey) -> tuple[int, int]:
    """Events and bytes of the longest history of the swarm and its shards, run by run."""
    start = SwarmStart(key.tenant, key.session)
    events = size = 0
    query = f"WorkflowId STARTS_WITH '{start.workflow_id}'"
    async for found in on.client.list_workflows(query):
        handle = on.client.get_workflow_handle(found.id, run_id=found.run_id)
        history = await handle.fetch_history()
        events = max(events, len(history.events))
        size = max(size, sum(event.ByteSize() for event in history.events))
    return events, size


def _cpu(pids: dict[str, int]) -> dict[str, float]:
    return {name: cpu_seconds(pid) for name, pid in pids.items()}


def _spent(before: dict[str, float], pids: dict[str, int], count: int) -> str:
    spent = {name: (cpu_seconds(pid) - before[name]) / count * 1000 for name, pid in pids.items()}
    return ", ".join(f"{name} {ms:.1f} ms" for name, ms in spent.items())
