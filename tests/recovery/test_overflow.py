"""A provider that finds the request too long: the conversation is summarised, and goes on."""

import pytest
from harness import Bench
from misbehaving import OK, Call, Refuses, Says, endpoint

from everturn_activities.gateways.chat_completions import ChatCompletionsGateway

TOO_LONG = Refuses(400, "This model's maximum context length is 8192 tokens.")
ADDING = Says("Adding.", (Call("add", '{"a": 1, "b": 2}'),))
SUMMARY = Says("The user wants sums; 1 + 2 is 3.")
TASK = "Add these numbers, one after the other. " * 40


async def work(made: Bench, wire: str, *replies: Says | Refuses):
    (made.workspace / "agents").mkdir()
    keys = "tools: [add]\ncompaction: {keep_last: 2}"
    (made.workspace / "agents" / "default.md").write_text(f"---\n{keys}\n---\nWork.\n")
    key = await made.session()
    async with endpoint(wire, *replies) as server:
        gateway = ChatCompletionsGateway(base_url=f"{server.url}/v1", key="sk-test")
        async with made.worker(gateway, placement="queued" if wire == "stream" else "inline"):
            await made.send(key, TASK)
            events = await made.until(key, "turn_finished")
    return [request.body["messages"] for request in server.requests], events


@pytest.mark.parametrize("wire", ["stream", "whole"])
async def test_a_request_that_is_too_long_is_compacted_and_made_again(
    made: Bench, wire: str
) -> None:
    asked, events = await work(made, wire, ADDING, ADDING, TOO_LONG, SUMMARY, OK)

    assert (events[-1].body["outcome"], events[-1].body["text"]) == ("completed", OK.text)
    assert events[-1].body["steps"] == 3
    assert len([event for event in events if event.type == "compacted"]) == 1
    assert len(asked) == 5
    assert TASK in str(asked[2])
    assert TASK not in str(asked[4])
    assert SUMMARY.text in str(asked[4])


@pytest.mark.parametrize("wire", ["stream", "whole"])
async def test_a_request_that_stays_too_long_ends_the_turn_after_one_compaction(
    made: Bench, wire: str
) -> None:
    asked, events = await work(made, wire, ADDING, ADDING, TOO_LONG, SUMMARY, TOO_LONG)

    assert events[-1].body["outcome"] == "model_failed"
    assert "longer than the window" in events[-1].body["reason"]
    assert len(asked) == 5
