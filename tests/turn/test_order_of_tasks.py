"""Which task of a backlog begins next: by priority, and tenants by turns."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from harness import SECONDS, Bench, bench, says, scripted

from everturn.session import SessionKey
from everturn.tasks import NewTask
from everturn_activities.gateways.scripted import ScriptedGateway
from everturn_activities.governor.limits import ProviderLimits
from everturn_activities.store import SessionSettings

SLOTS = 10
"""How many turns the worker takes at once, so that a place in the backlog is no accident."""
BACKLOG = 60
FEW = 3 * SLOTS


async def submit(made: Bench, tenant: str, texts: list[str], priority: int = 3) -> None:
    folder = str(made.workspace)
    settings = SessionSettings(folder, folder)
    tasks = [(text, NewTask(input=text, priority=priority), settings) for text in texts]
    came = await made.runtime.tasks.submit(tenant, tasks)
    await asyncio.gather(*(made.waker.wake(each.wake) for each in came if each.wake))


def asked(gateway: ScriptedGateway) -> list[str]:
    """What the model was asked, in order."""
    return [request.messages[-1].said for request in gateway.requests]


async def until_asked(gateway: ScriptedGateway, texts: list[str]) -> list[str]:
    async with asyncio.timeout(SECONDS):
        while not set(texts) <= set(asked(gateway)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return asked(gateway)


@pytest.fixture
async def hasty(server_address: str, tmp_path: Path, workspace: Path) -> AsyncIterator[Bench]:
    """As `made`, with few places, before a provider that takes any number of calls."""
    limits = {"*": ProviderLimits(careful=False)}
    home = tmp_path / "home"
    slots: dict[str, Any] = {"provider_limits": limits, "turns_max": SLOTS}
    async with bench(server_address, home, workspace, **slots) as made:
        yield made


async def test_an_urgent_task_overtakes_a_backlog(hasty: Bench):
    gateway = scripted(says("Done."))
    await submit(hasty, hasty.tenant, [f"low{n}" for n in range(BACKLOG)], priority=4)
    await submit(hasty, hasty.tenant, ["high"], priority=1)

    async with hasty.worker(gateway, workflows_cached=500):
        order = await until_asked(gateway, ["high"])

    assert order.index("high") < FEW


async def test_a_persons_message_overtakes_a_backlog_of_common_tasks(hasty: Bench):
    gateway = scripted(says("Done."))
    await submit(hasty, hasty.tenant, [f"common{n}" for n in range(BACKLOG)])
    await hasty.send(await hasty.session(), "hello")

    async with hasty.worker(gateway, workflows_cached=500):
        order = await until_asked(gateway, ["hello"])

    assert order.index("hello") < FEW


async def test_two_tenants_share_a_backlog_by_turns(hasty: Bench):
    gateway = scripted(says("Done."))
    few = [f"few{n}" for n in range(5)]
    await submit(hasty, f"large-{hasty.tenant}", [f"many{n}" for n in range(BACKLOG)])
    await submit(hasty, f"small-{hasty.tenant}", few)

    async with hasty.worker(gateway, workflows_cached=500):
        order = await until_asked(gateway, few)

    assert max(order.index(each) for each in few) < FEW


@pytest.mark.long
async def test_a_thousand_common_tasks_hold_up_neither_an_urgent_one_nor_another_tenant(
    hasty: Bench,
):
    gateway = scripted(says("Done."))
    few = [f"few{n}" for n in range(10)]
    for first in range(0, 1000, 100):
        await submit(hasty, hasty.tenant, [f"many{first + n}" for n in range(100)], priority=4)
    await submit(hasty, f"small-{hasty.tenant}", few, priority=4)

    async with hasty.worker(gateway, workflows_cached=2000):
        order = await until_asked(gateway, few)
        shared = max(order.index(each) for each in few)
        before = len(gateway.requests)
        await submit(hasty, hasty.tenant, ["high"], priority=1)
        order = await until_asked(gateway, ["high"])

    assert shared < 2 * len(few) + 2 * SLOTS
    assert order.index("high") - before <= 2 * SLOTS


async def test_an_urgent_task_overtakes_those_that_wait_for_a_providers_limit(
    server_address: str, tmp_path: Path, workspace: Path
):
    limits = {"*": ProviderLimits(requests_per_second=2)}
    home, gateway = tmp_path / "home", scripted(says("Done."))
    async with (
        bench(server_address, home, workspace, provider_limits=limits) as made,
        made.worker(gateway, workflows_cached=500),
    ):
        low = [f"low{n}" for n in range(40)]
        await submit(made, made.tenant, low, priority=4)
        # All of them have begun, and stand in the provider's line.
        for text in low:
            await made.until(SessionKey(made.tenant, f"task:{text}"), "turn_started")
        before = len(gateway.requests)
        await submit(made, made.tenant, ["high"], priority=1)
        order = await until_asked(gateway, ["high"])
    assert before < 28
    assert order.index("high") - before < 12


async def test_a_run_that_goes_on_keeps_its_priority(made: Bench):
    key = SessionKey(made.tenant, "task:t")
    await submit(made, made.tenant, ["t"], priority=1)
    await made.send(key, "And then?")
    gateway = scripted(says("Done.", hold="here"))
    async with made.worker(gateway):
        await made.until(key, "turn_started")
        await made.send(key, "And then again?")
        gateway.release("here")
        await made.until(key, "turn_started", turn=2)
        handle = made.client.get_workflow_handle(key.workflow_id)
        info: Any = (await handle.describe()).raw_description.workflow_execution_info
        gateway.release("here")
        await made.until(key, "turn_finished", turn=2)
    assert info.execution.run_id != info.first_run_id
    assert (info.priority.priority_key, info.priority.fairness_key) == (1, made.tenant)
