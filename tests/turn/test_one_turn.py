"""A turn from a message to its outcome."""

import pytest
from harness import Bench, calls, says, scripted

from everturn.messages import AssistantMessage, ToolMessage


@pytest.mark.parametrize("placement", ["inline", "queued", "auto"])
async def test_a_turn_calls_tools_and_answers(made: Bench, placement: str) -> None:
    gateway = scripted(calls("add", "add", a=1, b=2), says("It is 3."))
    key = await made.session()
    async with made.worker(gateway, placement=placement):
        await made.send(key, "add 1 and 2")
        events = await made.until(key, "turn_finished")

    assert events[-1].body["outcome"] == "completed"
    assert events[-1].body["text"] == "It is 3."
    _user, asked, results, _answer = await made.transcript(key)
    assert isinstance(asked, AssistantMessage)
    assert isinstance(results, ToolMessage)
    assert [result.text for result in results.results] == ["3", "3"]
    assert [result.call_id for result in results.results] == [c.id for c in asked.tool_calls]
    assert len(gateway.requests) == 2
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
