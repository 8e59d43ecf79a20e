"""A worker that is told to end: what it waits for, what it leaves, and to whom."""

import signal

import httpx
from systems import Plan, StartSystem, System, until, until_async

STUBBORN = Plan(steps=(("stubborn",), ()), gated=frozenset({"stubborn"}))
SLOW = Plan(steps=(("slow",), ()), gated=frozenset({"slow"}))


def told(system: System, text: str) -> bool:
    return any(text in line for line in system.worker.log.lines())


def attempts(system: System) -> set[int]:
    return {line["attempt"] for line in system.effects()}


async def health(system: System) -> dict[str, str]:
    place = "tells of its health at "
    told = next(line for line in system.worker.log.lines() if place in line)
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{told.partition(place)[2]}/readyz")
    body: dict[str, str] = answer.json()
    return body


async def is_listed(system: System, state: str, under_way: dict[str, int]) -> bool:
    (view,) = await system.client.workers()
    return (view.state, view.under_way) == (state, under_way)


async def test_a_worker_leaves_to_others_what_does_not_end_in_the_promised_time(
    start_system: StartSystem,
):
    system = await start_system({"s": STUBBORN}, "queued", EVERTURN_DRAIN_SECONDS="1")
    turn = await system.send("s")
    await system.waits_in_tool("s.stubborn")
    await system.another_worker()

    assert await system.worker.stop() == 0

    assert told(system, "takes no new work, and waits up to 1 s for 1 run_tools")
    assert told(system, "did not end within 1 s, and is left to other workers: 1 run_tools")
    await until(lambda: attempts(system) == {1, 2})
    await system.release("s.stubborn")
    assert (await turn.finished())[-1].body["outcome"] == "completed"
    # Not by the time-out of its heartbeats.
    lost = [
        event.activity_task_started_event_attributes.last_failure
        for event in await system.history("s")
        if event.activity_task_started_event_attributes.attempt > 1
    ]
    assert [failure.application_failure_info.type for failure in lost] == ["WorkerLost"]


async def test_a_worker_that_is_told_twice_to_end_does_so_at_once(start_system: StartSystem):
    system = await start_system(
        {"s": SLOW}, "queued", EVERTURN_DRAIN_SECONDS="600", EVERTURN_HEALTH_PORT="0"
    )
    turn = await system.send("s")
    await system.waits_in_tool("s.slow")
    assert await health(system) == {"status": "ready"}

    system.worker.signal(signal.SIGTERM)
    await until(lambda: told(system, "waits up to 600 s for 1 run_tools"))
    assert (await health(system))["detail"] == "Ends, and takes no new work."
    await until_async(lambda: is_listed(system, "drains", {"run_tools": 1}))
    assert await system.worker.stop() == 128 + signal.SIGTERM

    await system.release("s.slow")
    await system.restart("worker")
    assert (await turn.finished())[-1].body["outcome"] == "completed"
    assert attempts(system) == {1, 2}
