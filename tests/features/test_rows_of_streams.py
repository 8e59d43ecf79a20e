"""Rows B14, B29, U3: what goes over the wire to a model and back."""

import json
from pathlib import Path

import pytest
from endpoints import call, endpoint, more_arguments
from harness import Bench, says
from model_servers import scripted_endpoint

from everturn.messages import AssistantMessage, Thinking, ToolCall
from everturn.reading import Transcript
from everturn_activities.gateways.chat_completions import ChatCompletionsGateway


async def test_B14_interleaved_deltas_become_thinking_text_and_calls(made: Bench):
    interleaved = [
        {"reasoning_content": "Two "},
        {"content": "I "},
        call(0, "add", '{"a": 1'),
        {"reasoning_content": "numbers."},
        call(1, "add", '{"a"'),
        {"content": "add them."},
        more_arguments(0, ', "b": 2}'),
        more_arguments(1, ': 3, "b": 4}'),
    ]
    key = await made.session()

    async with (
        endpoint((interleaved, "tool_calls"), ([{"content": "3 and 7."}], "stop")) as (_, gateway),
        made.worker(gateway),
    ):
        await made.send(key, "add")
        await made.until(key, "turn_finished")

    _, asked, *_ = await made.transcript(key)
    assert isinstance(asked, AssistantMessage)
    kinds = {part.type for part in asked.parts}
    assert kinds == {"thinking", "text", "tool_call"}
    assert "".join(p.text for p in asked.parts if isinstance(p, Thinking)) == "Two numbers."
    assert asked.text == "I add them."
    assert asked.tool_calls == (
        ToolCall(id="call-0", name="add", arguments={"a": 1, "b": 2}),
        ToolCall(id="call-1", name="add", arguments={"a": 3, "b": 4}),
    )


async def test_B29_results_are_injected_as_one_user_message(made: Bench):
    (made.workspace / "agents").mkdir()
    (made.workspace / "agents" / "default.md").write_text("---\ntool_role: false\n---\nAdd.\n")
    asks = [call(0, "add", '{"a": 1, "b": 2}'), call(1, "add", '{"a": 3, "b": 4}')]
    key = await made.session()

    async with (
        endpoint((asks, "tool_calls"), ([{"content": "3 and 7."}], "stop")) as (server, gateway),
        made.worker(gateway),
    ):
        await made.send(key, "add")
        await made.until(key, "turn_finished")

    first, second = (request.body["messages"] for request in server.requests)
    added = second[len(first) :]
    assert [message["role"] for message in added] == ["assistant", "user"]
    _heading, *lines = added[1]["content"].splitlines()
    results = [json.loads(line) for line in lines]
    assert [(r["call_id"], r["text"]) for r in results] == [("call-0", "3"), ("call-1", "7")]


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_U3_a_stalled_stream_is_retried_and_leaves_no_duplicate_prefix(
    made: Bench, tmp_path: Path, placement: str
):
    (made.workspace / "agents").mkdir()
    (made.workspace / "agents" / "default.md").write_text("---\nstall_seconds: 1.5\n---\nCount.\n")
    text = " ".join(map(str, range(20)))
    key = await made.session()

    with scripted_endpoint(tmp_path, {"replies": [says(text, stall_after=10)]}) as model:
        gateway = ChatCompletionsGateway(base_url=model.url, key="sk-test")
        async with made.worker(gateway, placement=placement):
            await made.send(key, "count")
            events = await made.until(key, "turn_finished")
        await gateway.close()

    reading = Transcript()
    for event in events:
        reading.apply(event)
    assert reading.steps[(1, 1)].text == reading.text(1) == text
    deltas = [(e.attempt, e.body["text"]) for e in events if e.type == "text_delta"]
    assert "".join(words for attempt, words in deltas if attempt == 1) == text[:20]
    assert "".join(words for attempt, words in deltas if attempt == 2) == text
    assert [e.attempt for e in events if e.type == "superseded"] == [2]
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    assert {(e.turn, e.step) for e in events if e.type.endswith("_delta")} == {(1, 1)}
