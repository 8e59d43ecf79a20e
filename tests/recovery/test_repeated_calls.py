"""A model that repeats itself: calls that fail for sure, and calls that poll."""

import time

import pytest
from harness import Bench, calls, says, scripted

from everturn.messages import ToolMessage


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_the_third_call_that_would_fail_alike_is_refused_with_a_hint(
    made: Bench, placement: str
) -> None:
    asked = calls("add", a=1, b="two")
    gateway = scripted(asked, asked, asked, says("I cannot."))
    key = await made.session()
    async with made.worker(gateway, placement=placement):
        await made.send(key, "add")
        events = await made.until(key, "turn_finished")

    results = gateway.requests[3].messages[-1]
    assert isinstance(results, ToolMessage)
    assert "failed 2 times with the same error" in results.results[0].text
    began = [event.step for event in events if event.type == "tool_started"]
    assert began == [1, 2]
    assert events[-1].body["text"] == "I cannot."


async def test_a_call_that_polls_waits_as_a_timer_that_a_cancel_ends_at_once(made: Bench) -> None:
    gateway = scripted(*[calls("add", a=1, b=2)] * 30)
    key = await made.session()
    async with made.worker(gateway, placement="inline"):
        await made.send(key, "poll")
        waiting = await made.until(key, "status")
        assert "same; it waits 5 s" in waiting[-1].body["text"]
        await made.until(key, "step_finished")
        handle = made.client.get_workflow_handle(key.workflow_id)
        while not [
            event
            async for event in handle.fetch_history_events()
            if event.HasField("timer_started_event_attributes")
        ]:
            pass
        began = time.monotonic()
        await made.cancel(key)
        events = await made.until(key, "turn_finished")

    assert time.monotonic() - began < 3.0
    assert events[-1].body["outcome"] == "cancelled"
    assert len(gateway.requests) == 17
    assert len([event for event in events if event.type == "tool_started"]) == 16
