"""What every gateway must do, against real HTTP endpoints."""

import asyncio
import re
from contextlib import aclosing
from pathlib import Path

import orjson
import pytest
from model_servers import (
    DONE,
    KEY,
    asking,
    begin_stream,
    event,
    raw_server,
    refusing,
    replied,
    scripted_endpoint,
    send_chunk,
    streaming,
)

from everturn.agents import ToolSpec
from everturn.context.nudges import CUT
from everturn.errors import ContextOverflow, ModelRefused, ModelUnavailable
from everturn.messages import (
    AssistantMessage,
    Document,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    user_text,
)
from everturn_activities.gateways import ModelGateway, TextDelta, ThinkingDelta, ToolCallDelta

# LiteLLM's own use of pydantic, where a provider tells its usage.
pytestmark = pytest.mark.filterwarnings("ignore:Accessing the 'model_")


def call(index: int, name: str | None, arguments: str) -> dict:
    opening = {"id": f"id{index}", "type": "function"} if name else {}
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"tool_calls": [{"index": index, **opening, "function": function}]}


@pytest.mark.parametrize("name", ["", " ", "a tool", "fs.read", "caf\u00e9", "x" * 65])
async def test_a_call_by_an_impossible_name_goes_back_by_one_that_providers_take(gateway, name):
    """They refuse the request otherwise, though it was their own model that wrote it."""
    asked = {"index": 0, "id": "id0", "type": "function"}
    wrong = {"tool_calls": [{**asked, "function": {"name": name, "arguments": "{}"}}]}
    async with raw_server(streaming(event(wrong), event({}, "tool_calls"), DONE)) as server:
        context = asking(server.url + "/v1")
        _, reply = await replied(gateway, context)
        [made] = reply.message.tool_calls
        told = ToolResult(call_id=made.id, name=made.name, text="unknown", failed=True)
        messages = (*context.messages, reply.message, ToolMessage(results=(told,)))
        await replied(gateway, context.model_copy(update={"messages": messages}))

    assistant, result = server.requests[1].body["messages"][-2:]
    [sent] = assistant["tool_calls"]
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", sent["function"]["name"])
    assert sent["id"] == result["tool_call_id"]


WHOLE = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Adding.",
                "tool_calls": [
                    {
                        "id": "id0",
                        "type": "function",
                        "function": {"name": "add", "arguments": '{"a": 1}'},
                    },
                    {
                        "id": "id1",
                        "type": "function",
                        "function": {"name": "add", "arguments": '{"a": 2}'},
                    },
                ],
            },
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
}


async def test_a_reply_in_one_piece_is_asked_for_and_read_where_an_agent_does_not_stream(gateway):
    async with raw_server(refusing(200, WHOLE)) as server:
        context = asking(server.url + "/v1").model_copy(update={"stream": False})
        _, reply = await replied(gateway, context)

    [request] = server.requests
    assert not request.body.get("stream")
    assert "stream_options" not in request.body
    assert reply.message.text == "Adding."
    assert [call.arguments for call in reply.message.tool_calls] == [{"a": 1}, {"a": 2}]
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (7, 3)
    assert reply.stop == "tool_use"


async def test_a_reply_in_one_piece_that_breaks_off_is_none(gateway):
    async def broken(request, writer):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
        writer.write(b"content-length: 500\r\n\r\n" + orjson.dumps(WHOLE)[:100])
        await writer.drain()
        writer.close()

    async with raw_server(broken) as server:
        context = asking(server.url + "/v1").model_copy(update={"stream": False})
        with pytest.raises(ModelUnavailable):
            await replied(gateway, context)


async def test_b14_text_thinking_and_interleaved_tool_calls_accumulate_apart(gateway):
    pieces = [
        event({"role": "assistant", "content": ""}),
        event({"reasoning_content": "Let me "}),
        event({"reasoning_content": "add."}),
        event({"content": "I "}),
        event({"content": "add."}),
        event(call(0, "add", '{"a": ')),
        event(call(1, "sub", '{"b": ')),
        event(call(0, None, "1}")),
        event(call(1, None, "2}")),
        event({}, "tool_calls"),
        DONE,
    ]
    async with raw_server(streaming(*pieces)) as server:
        deltas, reply = await replied(gateway, asking(server.url + "/v1"))
    thinking = [part for part in reply.message.parts if isinstance(part, Thinking)]
    assert [part.text for part in thinking] == ["Let me add."]
    assert reply.message.text == "I add."
    assert reply.message.tool_calls == (
        ToolCall(id="id0", name="add", arguments={"a": 1}),
        ToolCall(id="id1", name="sub", arguments={"b": 2}),
    )
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == "I add."
    assert "".join(d.text for d in deltas if isinstance(d, ThinkingDelta)) == "Let me add."
    second = [d.text for d in deltas if isinstance(d, ToolCallDelta) and d.index == 1]
    assert "".join(second) == '{"b": 2}'
    assert reply.stop == "tool_use"


@pytest.mark.parametrize(
    ("finish", "stop"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal")],
)
async def test_b15_the_stop_reason_is_told(gateway, finish, stop, tmp_path: Path):
    with scripted_endpoint(tmp_path, {"replies": [{"text": "a b", "finish": finish}]}) as endpoint:
        _, reply = await replied(gateway, asking(endpoint.url))
    assert (reply.stop, reply.message.text) == (stop, "a b")


async def test_b15_calls_that_end_with_stop_are_calls_all_the_same(gateway):
    pieces = [event(call(0, "add", "{}")), event({}, "stop"), DONE]
    async with raw_server(streaming(*pieces)) as server:
        _, reply = await replied(gateway, asking(server.url + "/v1"))
    assert reply.stop == "tool_use"


async def test_a_call_cut_by_the_token_limit_is_not_kept(gateway):
    pieces = [event({"content": "x"}), event(call(0, "add", '{"a')), event({}, "length"), DONE]
    async with raw_server(streaming(*pieces)) as server:
        _, reply = await replied(gateway, asking(server.url + "/v1"))
    assert (reply.stop, reply.message.tool_calls) == ("max_tokens", ())


async def test_b16_after_half_a_call_the_partial_and_the_nudge_are_a_valid_request(gateway):
    pieces = [event({"content": "x"}), event(call(0, "add", '{"a')), event({}, "length"), DONE]
    async with raw_server(streaming(*pieces)) as server:
        _, reply = await replied(gateway, asking(server.url + "/v1"))
    body = await asked(gateway, user_text("go"), reply.message, user_text(CUT))
    partial, nudge = body["messages"][-2:]
    assert (partial["role"], partial["content"], partial.get("tool_calls")) == (
        "assistant",
        "x",
        None,
    )
    assert (nudge["role"], nudge["content"]) == ("user", CUT)


async def test_calls_of_one_id_get_ids_of_their_own(gateway):
    first, second = call(0, "add", '{"a": 1'), call(1, "add", '{"a": 2}')
    second["tool_calls"][0]["id"] = "id0"
    rest = {"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]}
    pieces = [event(first), event(second), event(rest), event({}, "tool_calls"), DONE]
    async with raw_server(streaming(*pieces)) as server:
        _, reply = await replied(gateway, asking(server.url + "/v1"))
    one, other = reply.message.tool_calls
    assert (one.id, one.arguments, other.arguments) == ("id0", {"a": 1}, {"a": 2})
    assert other.id != one.id


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", "nonsense", '{"a": NaN}'])
async def test_arguments_that_are_no_json_object_are_malformed_not_mended(gateway, arguments):
    pieces = [event(call(0, "add", arguments)), event({}, "tool_calls"), DONE]
    async with raw_server(streaming(*pieces)) as server:
        _, reply = await replied(gateway, asking(server.url + "/v1"))
    assert reply.message.tool_calls[0].malformed == arguments
    assert reply.message.tool_calls[0].arguments == {}


CUT_STREAMS = {
    "in text": [event({"content": "Hel"})],
    "in tool json": [event(call(0, "add", '{"a": 1'))],
    "after the finish": [event({"content": "Hi"}), event({}, "stop")],
    "done without a finish": [event({"content": "Hi"}), DONE],
}


@pytest.mark.parametrize("end", [True, False], ids=["clean EOF", "broken connection"])
@pytest.mark.parametrize("pieces", CUT_STREAMS.values(), ids=CUT_STREAMS.keys())
async def test_a_cut_stream_is_never_a_reply(gateway, pieces, end):
    async with raw_server(streaming(*pieces, end=end)) as server:
        with pytest.raises(ModelUnavailable, match=r"127\.0\.0\.1.* was cut"):
            await replied(gateway, asking(server.url + "/v1"))


async def test_a_marker_inside_the_text_is_no_terminal_marker(gateway):
    pieces = [event({"content": "data: [DONE]\n\ndata: [DONE]"}), event({}, "stop")]
    async with raw_server(streaming(*pieces)) as server:
        with pytest.raises(ModelUnavailable, match="was cut"):
            await replied(gateway, asking(server.url + "/v1"))


async def test_keep_alives_without_content_are_silence(gateway):
    async def answer(request, writer):
        await begin_stream(writer)
        await send_chunk(writer, event({"content": "Hi"}))
        while True:
            await send_chunk(writer, b": keep-alive\n\n")
            await asyncio.sleep(0.05)

    async with raw_server(answer) as server:
        with pytest.raises(ModelUnavailable, match=r"silent for 0\.4 s"):
            async with asyncio.timeout(20):
                await replied(gateway, asking(server.url + "/v1", stall_seconds=0.4))
        await asyncio.wait_for(server.closed.wait(), 1)


async def test_an_endpoint_that_never_answers_is_silence(gateway):
    async def answer(request, writer):
        await asyncio.Event().wait()

    async with raw_server(answer) as server:
        with pytest.raises(ModelUnavailable, match=r"silent for 0\.3 s"):
            await replied(gateway, asking(server.url + "/v1", stall_seconds=0.3))


async def test_a_rate_limit_carries_the_wait_and_is_not_retried(gateway, tmp_path: Path):
    script = {"replies": [{"text": "ok", "status": 429, "retry_after": 7}]}
    with scripted_endpoint(tmp_path, script) as endpoint:
        with pytest.raises(ModelUnavailable, match="HTTP 429") as raised:
            await replied(gateway, asking(endpoint.url))
        assert raised.value.retry_after_seconds == 7
        assert len(endpoint.events("received")) == 1
        _, reply = await replied(gateway, asking(endpoint.url))
    assert reply.message.text == "ok"


async def test_an_overloaded_endpoint_is_asked_once(gateway, tmp_path: Path):
    with scripted_endpoint(tmp_path, {"replies": [{"text": "ok", "status": 503}]}) as endpoint:
        with pytest.raises(ModelUnavailable, match="HTTP 503"):
            await replied(gateway, asking(endpoint.url))
        assert len(endpoint.events("received")) == 1


async def test_a_refused_key_is_named_but_not_shown(gateway):
    message = f"Incorrect API key provided: {KEY}. Also sk-proj-abcdefghijklmnop."
    body = {"error": {"message": message, "code": "invalid_api_key"}}
    async with raw_server(refusing(401, body)) as server:
        with pytest.raises(ModelRefused) as raised:
            await replied(gateway, asking(server.url + "/v1"))
    text = str(raised.value)
    assert "_API_KEY" in text
    assert "127.0.0.1" in text
    assert "Incorrect API key" in text
    assert KEY not in text
    assert "abcdefghijklmnop" not in text


@pytest.mark.parametrize("status", [400, 403, 404, 422])
async def test_what_waiting_cannot_repair_is_refused(gateway, status):
    body = {"error": {"message": "No such thing", "type": "invalid_request_error"}}
    async with raw_server(refusing(status, body)) as server:
        with pytest.raises(ModelRefused, match=f"HTTP {status}.*No such thing") as raised:
            await replied(gateway, asking(server.url + "/v1"))
    assert not isinstance(raised.value, ContextOverflow)
    assert "\n" not in str(raised.value)


async def test_a_request_too_long_for_the_model_is_an_overflow(gateway):
    message = "This model's maximum context length is 8192 tokens."
    body = {"error": {"message": message, "code": "context_length_exceeded"}}
    async with raw_server(refusing(400, body)) as server:
        with pytest.raises(ContextOverflow, match="window"):
            await replied(gateway, asking(server.url + "/v1"))


async def test_an_account_without_quota_is_not_waited_for(gateway):
    body = {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}
    async with raw_server(refusing(429, body)) as server:
        with pytest.raises(ModelRefused, match="quota"):
            await replied(gateway, asking(server.url + "/v1"))


async def test_an_error_inside_the_stream_is_classified(gateway):
    error = b'data: {"error": {"message": "Overloaded", "type": "server_error", "code": 503}}\n\n'
    async with raw_server(streaming(event({"content": "Hi"}), error)) as server:
        with pytest.raises(ModelUnavailable):
            await replied(gateway, asking(server.url + "/v1"))


async def test_a_dead_endpoint_is_unreachable(gateway, unused_tcp_port):
    with pytest.raises(ModelUnavailable, match=f"127.0.0.1:{unused_tcp_port} cannot be reached"):
        await replied(gateway, asking(f"http://127.0.0.1:{unused_tcp_port}/v1"))


async def _read_one(gateway: ModelGateway, url: str, reached: asyncio.Event) -> None:
    async with aclosing(gateway.stream(asking(url + "/v1"))) as items:
        async for _ in items:
            reached.set()


async def test_cancelling_in_the_middle_closes_the_connection_at_once(gateway):
    async def answer(request, writer):
        await begin_stream(writer)
        await send_chunk(writer, event({"content": "Hi"}))
        while True:
            writer.write(b"c\r\n: waiting...\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with raw_server(answer) as server:
        reached = asyncio.Event()
        task = asyncio.create_task(_read_one(gateway, server.url, reached))
        await asyncio.wait_for(reached.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The endpoint goes on for as long as somebody reads.
        await asyncio.wait_for(server.closed.wait(), 10)


async def test_a_connection_serves_the_next_call(gateway):
    pieces = [event({"content": "Hi"}), event({}, "stop"), DONE]
    async with raw_server(streaming(*pieces)) as server:
        for _ in range(5):
            await replied(gateway, asking(server.url + "/v1"))
    assert len(server.requests) == 5
    assert server.connections == 1


async def test_usage_is_the_providers_own(gateway, tmp_path: Path):
    with scripted_endpoint(tmp_path, {"replies": [{"text": "one two three"}]}) as endpoint:
        _, reply = await replied(gateway, asking(endpoint.url))
    assert (reply.usage.input_tokens, reply.usage.estimated) == (20, False)


async def test_missing_usage_is_counted_and_marked(gateway):
    pieces = [event({"content": "Hi there"}), event({}, "stop"), DONE]
    async with raw_server(streaming(*pieces)) as server:
        _, reply = await replied(gateway, asking(server.url + "/v1"))
    assert reply.usage.estimated
    assert reply.usage.output_tokens == 2
    assert reply.usage.input_tokens > 5


ADD = ToolSpec(name="add", description="Adds.", parameters={"type": "object", "properties": {}})
CALLED = AssistantMessage(parts=(ToolCall(id="c1", name="add", arguments={"a": 1}),))
ANSWERED = ToolMessage(results=(ToolResult(call_id="c1", name="add", text="2"),))


async def asked(gateway: ModelGateway, *messages, **more) -> dict:
    """What the endpoint was sent for these messages."""
    pieces = [event({"content": "Hi"}), event({}, "stop"), DONE]
    async with raw_server(streaming(*pieces)) as server:
        await replied(gateway, asking(server.url + "/v1", *messages, **more))
    return server.requests[0].body


async def test_t7_results_go_as_messages_of_role_tool(gateway):
    body = await asked(gateway, user_text("1+1"), CALLED, ANSWERED, tools=(ADD,))
    assert [message["role"] for message in body["messages"]] == [
        "system", "user", "assistant", "tool",
    ]  # fmt: skip
    assert body["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"a":1}'
    assert body["messages"][3]["tool_call_id"] == "c1"
    assert body["messages"][3]["content"] == "2"
    assert body["tools"][0]["function"]["name"] == "add"


async def test_b29_without_the_tool_role_results_are_one_user_message(gateway):
    calls = AssistantMessage(
        parts=(ToolCall(id="c1", name="add"), ToolCall(id="c2", name="add")),
    )
    results = ToolMessage(
        results=(
            ToolResult(call_id="c1", name="add", text="2"),
            ToolResult(call_id="c2", name="add", text="no", failed=True),
        )
    )
    body = await asked(gateway, user_text("1+1"), calls, results, tool_role=False)
    assert [message["role"] for message in body["messages"]] == [
        "system", "user", "assistant", "user",
    ]  # fmt: skip
    sent = body["messages"][3]["content"]
    assert '{"call_id":"c1","name":"add","text":"2"}' in sent
    assert '{"call_id":"c2","name":"add","text":"no","failed":true}' in sent
    assert "tool_calls" not in body["messages"][2]


async def test_images_and_pdfs_are_sent_as_parts(gateway):
    parts = (
        Text(text="See"),
        Image(media_type="image/png", data="aGk="),
        Document(media_type="application/pdf", data="JVBERi0=", name="a.pdf"),
    )
    body = await asked(gateway, UserMessage(parts=parts))
    text, image, document = body["messages"][1]["content"]
    assert text == {"type": "text", "text": "See"}
    assert image["image_url"]["url"] == "data:image/png;base64,aGk="
    assert document["file"]["file_data"] == "data:application/pdf;base64,JVBERi0="


async def test_a_thought_goes_back_with_the_tool_results(gateway):
    pieces = [
        event({"reasoning_content": "Hm."}),
        event(call(0, "add", "{}")),
        event({}, "tool_calls"),
        DONE,
    ]
    async with raw_server(streaming(*pieces)) as server:
        _, reply = await replied(gateway, asking(server.url + "/v1"))
    result = ToolMessage(results=(ToolResult(call_id="id0", name="add", text="2"),))
    body = await asked(gateway, user_text("1+1"), reply.message, result)
    assert body["messages"][2]["reasoning_content"] == "Hm."


async def test_lone_surrogates_become_valid_text(gateway):
    pieces = [
        b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        b'[{"index":0,"delta":{"content":"a\\ud800b"},"finish_reason":null}]}\n\n',
        event({}, "stop"),
        DONE,
    ]
    async with raw_server(streaming(*pieces)) as server:
        _, reply = await replied(gateway, asking(server.url + "/v1"))
    assert reply.message.text.encode()
    assert reply.message.text.startswith("a")
    assert reply.message.text.endswith("b")
