"""Workflows that are lost, and the wake-ups that race their ends."""

import asyncio
import itertools
from typing import Any

import pytest
from harness import Bench, calls, says, scripted
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.service import RPCError

from everturn.session import SessionKey
from everturn_workers import reconciler


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "HOSTLESS_SECONDS", 1.0)


async def terminate(made: Bench, key: SessionKey) -> None:
    await made.client.get_workflow_handle(key.workflow_id).terminate()


async def delete(made: Bench, key: SessionKey) -> None:
    handle = made.client.get_workflow_handle(key.workflow_id)
    await made.client.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(
            namespace=made.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=key.workflow_id),
        )
    )
    async with asyncio.timeout(20):
        while True:
            try:
                await handle.describe()
            except RPCError:
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("lose", [terminate, delete])
async def test_a_lost_workflow_is_adopted_and_no_finished_call_runs_again(
    made: Bench, lose: Any
) -> None:
    gateway = scripted(calls("effect"), says("done", hold="mid"))
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "go")
        await gateway.reached("mid")
        await lose(made, key)
        gateway.release("mid")
        events = await made.until(key, "turn_finished")
        await made.closed(key)

    assert events[-1].body["outcome"] == "completed"
    assert events[-1].body["text"] == "done"
    assert len((made.workspace / "effects.log").read_text().splitlines()) == 1
    assert [e.step for e in events if e.type == "step_finished"] == [1, 2]
    # The reply of the first step was paid for and is not asked for again.
    assert [len(request.messages) for request in gateway.requests].count(1) == 1
    assert any("lost its workflow" in e.body.get("text", "") for e in events if e.type == "status")


async def test_turns_that_wait_for_long_keep_no_lost_one_from_being_adopted(
    made: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "BATCH", 2)
    gateway = scripted(says("done", hold="mid"))
    # The lost one is the last by age, and by name.
    keys = [await made.session(name) for name in "abcde"]
    async with made.worker(gateway):
        for key in keys:
            await made.send(key, "go")
            await made.until(key, "step_started")
        await terminate(made, keys[-1])
        events = await made.until(keys[-1], "status")
        gateway.release("mid")
        for key in keys:
            await made.until(key, "turn_finished")

    assert events[-1].body["text"].startswith("The turn lost its workflow")


@pytest.mark.filterwarnings("ignore:Cannot find activity to cancel")
@pytest.mark.parametrize(
    "races", [pytest.param(12, id="100"), pytest.param(125, id="1000", marks=pytest.mark.long)]
)
async def test_signals_that_land_while_a_turn_completes_repeat_and_lose_nothing(
    made: Bench, races: int
) -> None:
    """A message is sent at the moment at which the turn before ends, in eight sessions."""
    sessions = 8
    gateway = scripted(says("ok"))
    sent: dict[str, list[str]] = {}

    async def race(number: int) -> None:
        key = await made.session(f"race-{number}")
        names = sent[key.session] = []
        ids = itertools.count()

        async def send() -> None:
            name = f"{number}-{next(ids)}"
            names.append(name)
            await made.send(key, name, message_id=name)

        await send()
        async for batch in made.runtime.events.watch(key, (1, 0)):
            kinds = [event.type for event in batch]
            ended = kinds.count("turn_finished")
            if len(names) < races and ("step_finished" in kinds or ended):
                await send()
            if ended and len(names) >= races:
                view = await made.runtime.store.session(key)
                if view.waiting == 0 and view.status == "idle":
                    break
        await made.closed(key)

    # With a cache, as in earnest: without one the SDK cuts inline calls off to evict a run.
    async with made.worker(gateway, placement="inline", workflows_cached=100):
        async with asyncio.timeout(5 * races):
            await asyncio.gather(*(race(number) for number in range(sessions)))

    turns = 0
    for name, names in sent.items():
        events = await made.events(made.key(name))
        started = [e for e in events if e.type == "turn_started"]
        assert [m for e in started for m in e.body["messages"]] == names
        assert len([e for e in events if e.type == "turn_finished"]) == len(started)
        assert [e.seq for e in events] == list(range(1, len(events) + 1))
        turns += len(started)
    assert len(gateway.requests) == turns
