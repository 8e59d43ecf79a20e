"""What Temporal keeps of a turn: ids and counts, always as much, and replayable."""

import pytest
from harness import Bench, calls, says, scripted
from temporalio.client import WorkflowHistory
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer

from everturn.session import SessionKey
from everturn_workers.isolation import sandbox
from everturn_workers.temporal import PAYLOAD_BYTES_MAX, CappedPayloadConverter
from everturn_workflows.turn import Turn


async def histories(made: Bench, key: SessionKey) -> list[WorkflowHistory]:
    """The histories of all runs of a session's workflow, oldest first."""
    found = []
    handle = made.client.get_workflow_handle(key.workflow_id)
    while True:
        history = await handle.fetch_history()
        found.insert(0, history)
        started = history.events[0].workflow_execution_started_event_attributes
        if not started.continued_execution_run_id:
            return found
        handle = made.client.get_workflow_handle(
            key.workflow_id, run_id=started.continued_execution_run_id
        )


def size(history: WorkflowHistory) -> int:
    return sum(event.ByteSize() for event in history.events)


async def replays(made: Bench, *found: WorkflowHistory) -> None:
    replayer = Replayer(
        workflows=[Turn], workflow_runner=sandbox, data_converter=made.client.data_converter
    )
    for history in found:
        await replayer.replay_workflow(history)


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_nothing_that_a_person_a_model_or_a_provider_wrote_enters_the_history(
    made: Bench, placement: str
) -> None:
    """Invariant 1."""
    (made.workspace / "agents").mkdir()
    (made.workspace / "agents" / "default.md").write_text("CANARY-prompt\n")
    provider = {"error": {"message": "CANARY-provider"}, "message": "CANARY-provider"}
    gateway = scripted(
        {**calls("echo", text="CANARY-argument"), "text": "CANARY-reply"},
        says("over", status=400, error_body=provider, times=99),
    )
    key = await made.session()
    async with made.worker(gateway, placement=placement):
        await made.send(key, "CANARY-message", message_id="m-1")
        events = await made.until(key, "turn_finished")
        await made.closed(key)
        assert events[-1].body["outcome"] == "model_failed"
        assert events[-1].body["reason"]
        found = await histories(made, key)
    assert gateway.requests[-1].messages[-1].role == "tool"
    for history in found:
        assert "CANARY" not in history.to_json()
        assert not any(b"CANARY" in event.SerializeToString() for event in history.events)
    await replays(made, *found)


async def test_history_of_a_turn_does_not_grow_with_the_conversation(made: Bench) -> None:
    gateway = scripted(calls("add", a=1, b=2), says("three"))
    key = await made.session()
    sizes = []
    async with made.worker(gateway, placement="inline"):
        for turn in range(1, 21):
            await made.send(key, "add 1 and 2, please, once more")
            await made.until(key, "turn_finished", turn=turn)
            await made.closed(key)
            found = await histories(made, key)
            sizes.append(sum(size(history) for history in found))
            if turn in (1, 20):
                await replays(made, *found)
    assert sizes[-1] <= 1.05 * sizes[0], sizes


async def test_u1_a_tool_result_of_five_megabytes_keeps_the_history_small(made: Bench) -> None:
    gateway = scripted(calls("huge", megabytes=5), says("read it"))
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "read")
        await made.until(key, "turn_finished")
        await made.closed(key)
        (history,) = await histories(made, key)
    assert size(history) < 32 * 1024


def test_a_value_above_the_cap_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ApplicationError, match="over the limit") as refused:
        CappedPayloadConverter().to_payloads(["x" * (PAYLOAD_BYTES_MAX + 1)])
    assert refused.value.non_retryable


async def test_a_turn_continues_as_new_at_a_step_boundary_and_loses_nothing(made: Bench) -> None:
    gateway = scripted(*[calls("add", a=n, b=1) for n in range(6)], says("all added"))
    key = await made.session()
    made.waker._settings = made.settings.model_copy(update={"history_events_max": 8})
    async with made.worker(gateway, placement="queued"):
        await made.send(key, "add")
        events = await made.until(key, "turn_finished")
        await made.closed(key)
        found = await histories(made, key)
    assert events[-1].body["outcome"] == "completed"
    assert events[-1].body["steps"] == 7
    assert len(gateway.requests) == 7
    assert len(found) > 2
    assert len([e for e in events if e.type == "tool_finished"]) == 6
    assert [e for e in events if e.type == "status"] == []
    await replays(made, *found)


async def test_a_limit_below_one_step_still_takes_steps(made: Bench) -> None:
    gateway = scripted(calls("add", a=1, b=1), calls("add", a=2, b=1), says("done"))
    key = await made.session()
    made.waker._settings = made.settings.model_copy(update={"history_events_max": 1})
    async with made.worker(gateway, placement="queued"):
        await made.send(key, "add")
        events = await made.until(key, "turn_finished")
        await made.closed(key)
    assert events[-1].body["outcome"] == "completed"
    assert len(gateway.requests) == 3


async def test_a_queued_turn_follows_as_a_run_of_its_own(made: Bench) -> None:
    gateway = scripted(by_last_user={"one": [says("first", hold="mid")], "two": [says("second")]})
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "one")
        await gateway.reached("mid")
        await made.send(key, "two")
        gateway.release("mid")
        await made.until(key, "turn_finished", turn=2)
        await made.closed(key)
        found = await histories(made, key)
    assert len(found) == 2
    await replays(made, *found)
