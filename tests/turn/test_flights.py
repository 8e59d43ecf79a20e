"""One execution of a call in a process, ended as soon as its turn is cancelled."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from everturn.errors import TurnCancelled
from everturn.session import SessionKey
from everturn_activities.flights import CancelWatch, Flights
from everturn_activities.wakeups import WakeUps, cancels

KEY = SessionKey("default", "s")


async def test_later_executions_run_one_after_another_behind_the_first() -> None:
    flights, running, most = Flights(), 0, 0
    go = asyncio.Event()

    async def run() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        await asyncio.sleep(0)
        running -= 1

    joined = [asyncio.create_task(flights.join("call", run)) for _ in range(4)]
    await asyncio.sleep(0)
    go.set()
    async with asyncio.timeout(5):
        await asyncio.gather(*joined)
    assert most == 1


async def test_an_execution_runs_on_after_the_one_before_was_cancelled() -> None:
    flights = Flights()

    async def never() -> str:
        await asyncio.Event().wait()
        return "never"

    async def answer() -> str:
        return "answered"

    first = asyncio.create_task(flights.join("call", never))
    await asyncio.sleep(0)
    second = asyncio.create_task(flights.join("call", answer))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    async with asyncio.timeout(5):
        assert await second == "answered"


class Cancels:
    """As much of a store as a watch reads."""

    def __init__(self) -> None:
        self.cancelled_turns: set[int] = set()

    async def cancelled(self, key: SessionKey, turn: int) -> bool:
        return turn in self.cancelled_turns


@pytest.fixture
def store() -> Cancels:
    return Cancels()


@pytest.fixture
async def wakeups(tmp_path: Path) -> AsyncIterator[WakeUps]:
    wakeups = WakeUps(tmp_path)
    await wakeups.listen()
    yield wakeups
    await wakeups.close()


async def _ended(work_ended: asyncio.Event) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        work_ended.set()


async def test_a_wake_up_for_another_turn_of_the_session_cancels_nothing(
    store: Cancels, wakeups: WakeUps
) -> None:
    watch = CancelWatch(store, wakeups)  # type: ignore[arg-type]
    ends = [asyncio.Event(), asyncio.Event()]
    guards = [
        asyncio.create_task(watch.guard(KEY, turn, _ended(end)))
        for turn, end in zip((1, 2), ends, strict=True)
    ]
    await asyncio.sleep(0)
    store.cancelled_turns.add(1)
    wakeups.tell({cancels(KEY)})
    with pytest.raises(TurnCancelled):
        await guards[0]
    assert ends[0].is_set()
    assert not guards[1].done()
    guards[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await guards[1]
    assert ends[1].is_set()


async def test_temporals_own_cancel_of_a_cancelled_turn_is_the_same_cancel(
    store: Cancels, wakeups: WakeUps
) -> None:
    watch = CancelWatch(store, wakeups)  # type: ignore[arg-type]
    end = asyncio.Event()
    guard = asyncio.create_task(watch.guard(KEY, 1, _ended(end)))
    await asyncio.sleep(0)
    store.cancelled_turns.add(1)
    guard.cancel()
    with pytest.raises(TurnCancelled):
        await guard
    assert end.is_set()


@pytest.mark.parametrize("leaving", [False, True])
async def test_an_inline_call_that_temporal_drops_goes_on_unless_its_worker_leaves(
    leaving: bool,
) -> None:
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, is_local=True)
    flights, began, replied = Flights(), asyncio.Event(), asyncio.Event()

    async def call() -> str:
        began.set()
        await replied.wait()
        return "paid"

    async def join() -> str:
        return await flights.join("call", call)

    dropped = asyncio.ensure_future(environment.run(join))
    await began.wait()
    if leaving:
        environment.worker_shutdown()
    environment.cancel()
    await asyncio.sleep(0)
    again = asyncio.create_task(flights.join("call", call))
    replied.set()

    if leaving:
        with pytest.raises(asyncio.CancelledError):
            await dropped
    else:
        assert await dropped == "paid"
    assert await again == "paid"
