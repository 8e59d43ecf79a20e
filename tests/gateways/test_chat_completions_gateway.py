"""What only the gateway on httpx does: fields and faults of OpenAI-compatible endpoints."""

import asyncio
import email.utils
import gc
import json
import time
from contextlib import asynccontextmanager
from typing import Any

import pytest
from model_servers import (
    DONE,
    KEY,
    answer_json,
    asking,
    begin_stream,
    end_stream,
    event,
    raw_server,
    refusing,
    replied,
    send_chunk,
    streaming,
)

from everturn.agents import ToolSpec
from everturn.errors import ModelRefused, ModelUnavailable
from everturn.messages import Thinking, ToolMessage, ToolResult, user_text
from everturn_activities.gateways import TextDelta
from everturn_activities.gateways.chat_completions import ChatCompletionsGateway

CALL = {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "add", "arguments": "{}"}}]}
ADD = ToolSpec(name="add", description="Adds.", parameters={"type": "object"})
END = [event({}, "stop"), DONE]
ADDED = ToolMessage(results=(ToolResult(call_id="c1", name="add", text="2"),))


async def sent_back(gateway, *pieces: bytes) -> tuple[tuple[Thinking, ...], dict]:
    """The thoughts of a reply of these pieces, and the message as the next request holds it."""
    async with raw_server(streaming(*pieces)) as server:
        context = asking(server.url + "/v1")
        _, reply = await replied(gateway, context)
        messages = (*context.messages, reply.message, ADDED)
        await replied(gateway, context.model_copy(update={"messages": messages}))
    thoughts = tuple(part for part in reply.message.parts if isinstance(part, Thinking))
    return thoughts, server.requests[1].body["messages"][2]


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_a_thought_goes_back_in_the_field_it_came_in(chat_completions, field):
    pieces = [event({field: "Hm "}), event({field: "hm"}), event(CALL), *END]
    _, message = await sent_back(chat_completions, *pieces)
    assert message[field] == "Hm hm"


async def test_signed_and_encrypted_reasoning_details_go_back_unchanged(chat_completions):
    def detail(**item):
        return event({"reasoning_details": [{"format": "f", **item}]})

    pieces = [
        event({"reasoning": "Hm "}),
        detail(type="reasoning.text", index=0, text="Hm "),
        detail(type="reasoning.text", index=0, text="hm", signature="c2ln"),
        detail(type="reasoning.encrypted", index=1, data="Y2lw", id="rs_1"),
        event(CALL),
        *END,
    ]
    thoughts, message = await sent_back(chat_completions, *pieces)
    assert [thought.text for thought in thoughts] == ["Hm hm", ""]
    assert thoughts[0].signature == "c2ln"
    first, second = message["reasoning_details"]
    assert first == {
        "format": "f", "type": "reasoning.text", "index": 0, "text": "Hm hm", "signature": "c2ln",
    }  # fmt: skip
    assert (second["data"], second["id"]) == ("Y2lw", "rs_1")


async def test_what_is_attached_to_a_call_goes_back_with_it(chat_completions):
    extra = {"google": {"thought_signature": "c2ln"}}
    call = {"tool_calls": [{**CALL["tool_calls"][0], "extra_content": extra}]}
    _, message = await sent_back(chat_completions, event(call), *END)
    assert message["tool_calls"][0]["extra_content"] == extra


async def test_calls_without_an_index_are_kept_apart_by_their_ids(chat_completions):
    def call(call_id, name):
        function = {"name": name, "arguments": '{"a": 1}'}
        return event({"tool_calls": [{"id": call_id, "function": function}]})

    async with raw_server(streaming(call("x", "add"), call("y", "sub"), *END)) as server:
        _, reply = await replied(chat_completions, asking(server.url + "/v1"))
    assert [(call.id, call.name) for call in reply.message.tool_calls] == [
        ("x", "add"),
        ("y", "sub"),
    ]


async def test_halves_of_a_surrogate_pair_in_two_deltas_become_one_character(chat_completions):
    def raw(text: bytes) -> bytes:
        return b'data: {"choices":[{"delta":{"content":"' + text + b'"}}]}\n\n'

    pieces = [raw(b"a\\ud83d"), raw(b"\\ude00b"), *END]
    async with raw_server(streaming(*pieces)) as server:
        deltas, reply = await replied(chat_completions, asking(server.url + "/v1"))
    assert reply.message.text == "a\U0001f600b"
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "a\U0001f600b"


async def test_events_may_be_cut_anywhere_on_the_wire(chat_completions):
    whole = b"".join([event({"content": "H\u00e4"}), event({"content": "llo"}), *END])
    bytes_apart = [whole[i : i + 1] for i in range(len(whole))]
    async with raw_server(streaming(*bytes_apart)) as server:
        _, reply = await replied(chat_completions, asking(server.url + "/v1"))
    assert reply.message.text == "H\u00e4llo"


@pytest.mark.parametrize("header", ["retry-after", "retry-after-ms"])
async def test_the_wait_is_read_from_a_date_and_from_milliseconds(chat_completions, header):
    date = email.utils.formatdate(time.time() + 20, usegmt=True)
    value = date if header == "retry-after" else "20000"
    async with raw_server(refusing(429, {}, **{header.replace("-", "_"): value})) as server:
        with pytest.raises(ModelUnavailable) as raised:
            await replied(chat_completions, asking(server.url + "/v1"))
    assert raised.value.retry_after_seconds == pytest.approx(20, abs=2)


async def test_an_answer_that_is_no_chat_completion_is_refused(chat_completions):
    async with raw_server(refusing(200, {"choices": []})) as server:
        with pytest.raises(ModelRefused, match="no chat completion"):
            await replied(chat_completions, asking(server.url + "/v1"))


WHOLE = {
    "object": "chat.completion",
    "model": "m-2",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "Adding.",
                "refusal": None,
                "reasoning_content": "Hm.",
                "tool_calls": [
                    {"function": {"name": "add", "arguments": '{"a": 1}'}},
                    {"function": {"name": "add", "arguments": '{"a": 2}'}},
                ],
            },
        }
    ],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2},
}


async def test_an_endpoint_that_does_not_stream_gives_its_reply_whole(chat_completions):
    async with raw_server(refusing(200, WHOLE)) as server:
        deltas, reply = await replied(chat_completions, asking(server.url + "/v1"))
    assert (reply.message.text, reply.stop, reply.model) == ("Adding.", "tool_use", "m-2")
    assert [call.arguments for call in reply.message.tool_calls] == [{"a": 1}, {"a": 2}]
    assert (reply.usage.input_tokens, reply.usage.estimated) == (7, False)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Adding."


async def test_a_whole_reply_without_its_finish_reason_is_cut(chat_completions):
    choice = {**WHOLE["choices"][0], "finish_reason": None}
    async with raw_server(refusing(200, {"choices": [choice]})) as server:
        with pytest.raises(ModelUnavailable, match="was cut"):
            await replied(chat_completions, asking(server.url + "/v1"))


async def test_an_html_page_of_a_proxy_does_not_reach_the_sentence(chat_completions):
    async def answer(request, writer):
        page = b"<html><body>Bad Gateway</body></html>"
        writer.write(b"HTTP/1.1 502 Bad\r\ncontent-length: %d\r\n\r\n%s" % (len(page), page))
        await writer.drain()

    async with raw_server(answer) as server:
        with pytest.raises(ModelUnavailable) as raised:
            await replied(chat_completions, asking(server.url + "/v1"))
    assert "<" not in str(raised.value)


@pytest.mark.parametrize("address", ["nonsense", "ftp://x/v1", "http://", "http://[::1/v1"])
async def test_a_base_url_that_is_no_address_is_refused_with_an_example(chat_completions, address):
    with pytest.raises(ModelRefused, match="base_url"):
        await replied(chat_completions, asking(address))


async def test_openai_without_a_key_names_the_variable_before_any_request():
    gateway = ChatCompletionsGateway()
    with pytest.raises(ModelRefused, match="set OPENAI_API_KEY"):
        await replied(gateway, asking(None, model="openai/gpt-5-mini"))
    await gateway.close()


KEYS = {"OPENAI_API_KEY": "key-of-openai-0000", "MY_KEY": "key-of-mine-0000"}
ELSEWHERE = "127.0.0.2"
"""This machine, at an address that stands for another."""


async def test_our_own_key_goes_to_no_endpoint_that_a_workspace_names():
    async def answer(request, writer):
        await answer_json(writer, 401, {"error": {"message": "who are you?"}})

    async with raw_server(answer, ELSEWHERE) as server, opened(key=KEYS.get) as gateway:
        with pytest.raises(ModelRefused) as raised:
            await replied(gateway, asking(server.url + "/v1"))
    assert "authorization" not in server.requests[0].headers
    assert str(raised.value).endswith(
        "wants a key for model hosted_vllm/scripted (HTTP 401): who are you?. Name the variable"
        " that holds it by api_key_variable, beside base_url in the workspace's settings."
    )


@pytest.mark.parametrize(
    ("host", "of_openai", "named", "sent"),
    [
        ("127.0.0.1", False, None, "key-of-openai-0000"),
        (ELSEWHERE, True, None, "key-of-openai-0000"),
        (ELSEWHERE, False, "MY_KEY", "key-of-mine-0000"),
        ("127.0.0.1", False, "MY_KEY", "key-of-mine-0000"),
        (ELSEWHERE, False, "OPENAI_API_KEY", "key-of-openai-0000"),
    ],
)
async def test_a_key_goes_to_the_endpoint_that_it_is_meant_for(host, of_openai, named, sent):
    async with raw_server(streaming(event({"content": "Hi"}), *END), host) as server:
        base_url = server.url + "/v1"
        async with opened(base_url if of_openai else None, key=KEYS.get) as gateway:
            await replied(gateway, asking(base_url, api_key_variable=named))
    assert server.requests[0].headers["authorization"] == f"Bearer {sent}"


async def test_a_named_key_that_is_not_set_is_said_before_any_request():
    async with opened(key=KEYS.get) as gateway:
        with pytest.raises(ModelRefused, match=r"at 127\.0\.0\.1:1: set OTHER_KEY\.$"):
            await replied(gateway, asking("http://127.0.0.1:1/v1", api_key_variable="OTHER_KEY"))


@asynccontextmanager
async def opened(*arguments, **more):
    gateway = ChatCompletionsGateway(*arguments, **more)
    try:
        yield gateway
    finally:
        await gateway.close()


async def test_a_key_of_impossible_characters_is_refused_and_not_shown():
    gateway = ChatCompletionsGateway(key="sk-\u00fcnicode\nkey")
    with pytest.raises(ModelRefused, match="OPENAI_API_KEY holds") as raised:
        await replied(gateway, asking("http://127.0.0.1:1/v1"))
    assert "nicode" not in str(raised.value)
    await gateway.close()


async def test_the_key_goes_in_the_header_and_the_model_without_its_route(chat_completions):
    async with raw_server(streaming(event({"content": "Hi"}), *END)) as server:
        await replied(chat_completions, asking(server.url + "/v1/", model="openai/gpt-x"))
    request = server.requests[0]
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body["model"] == "gpt-x"
    assert request.body["stream_options"] == {"include_usage": True}


async def test_a_slow_consumer_is_not_taken_for_a_silent_provider(chat_completions):
    async def answer(request, writer):
        await begin_stream(writer)
        await send_chunk(writer, event({"content": "Hi "}))
        await asyncio.sleep(1.5)
        await send_chunk(writer, event({"content": "there"}) + b"".join(END))
        await end_stream(writer)

    async with raw_server(answer) as server:
        # A busy machine's first request takes its time too.
        context = asking(server.url + "/v1", stall_seconds=1.0)
        items = []
        async for item in chat_completions.stream(context):
            if not items:
                # The provider says nothing for longer than it may; all but a little of it is ours.
                await asyncio.sleep(1.4)
            items.append(item)
    assert items[-1].message.text == "Hi there"


async def test_a_server_that_keeps_the_stream_open_after_done_does_not_hold_the_reply(
    chat_completions,
):
    async def answer(request, writer):
        await begin_stream(writer)
        await send_chunk(writer, event({"content": "Hi"}) + b"".join(END))
        await asyncio.sleep(30)
        await end_stream(writer)

    async with raw_server(answer) as server:
        async with asyncio.timeout(5):
            _, reply = await replied(chat_completions, asking(server.url + "/v1"))
    assert reply.message.text == "Hi"


async def test_a_rendered_message_is_forgotten_with_the_message(chat_completions):
    async with raw_server(streaming(event({"content": "Hi"}), *END)) as server:
        context = asking(server.url + "/v1", user_text("kept"), user_text("gone"))
        await replied(chat_completions, context)
        kept = context.messages[0]
        del context
        gc.collect()
    assert list(chat_completions._as_tool._kept) == [id(kept)]


async def test_many_streams_run_at_once(chat_completions):
    async def answer(request, writer):
        if request.body["messages"][-1]["content"] == "refuse":
            await answer_json(writer, 400, {"error": {"message": "no"}})
            return
        await begin_stream(writer)
        for _ in range(3):
            await send_chunk(writer, event({"content": request.body["messages"][-1]["content"]}))
        await send_chunk(writer, b"".join(END))
        await end_stream(writer)

    async with raw_server(answer) as server:
        contexts = [asking(server.url + "/v1", user_text(f"{i} ")) for i in range(50)]
        replies = await asyncio.gather(*(replied(chat_completions, c) for c in contexts))
    assert [reply.message.text for _, reply in replies] == [f"{i} " * 3 for i in range(50)]


async def test_R21_an_endpoints_own_tools_stand_behind_ours_and_a_table_as_it_is(chat_completions):
    table = {"type": "web_search", "web_search": {"enable": True}}
    async with raw_server(streaming(event({"content": "Hi"}), *END)) as server:
        url = f"{server.url}/v1"
        await replied(
            chat_completions, asking(url, tools=(ADD,), native_tools=("browser_search", table))
        )
        await replied(chat_completions, asking(url, native_tools=("web_search",)))
    both, alone = (request.body["tools"] for request in server.requests)
    assert [tool["type"] for tool in both] == ["function", "browser_search", "web_search"]
    assert both[2] == table
    assert alone == [{"type": "web_search"}]


def test_R21_openais_own_search_is_an_option_in_this_protocol():
    body = json.loads(
        ChatCompletionsGateway()._body(asking(None, native_tools=("web_search", "other")))
    )
    assert body["web_search_options"] == {}
    assert body["tools"] == [{"type": "other"}]


async def test_R21_calls_that_an_endpoint_has_made_itself_are_none_of_ours(chat_completions):
    def piece(index: int, **call: Any) -> bytes:
        return event({"tool_calls": [{"index": index, **call}]})

    pieces = [
        piece(0, id="ws_1", type="web_search_call", function={"name": "search", "arguments": "{"}),
        piece(0, function={"arguments": '"q": 1}'}),
        piece(1, id="call_1", type="function", function={"name": "add", "arguments": "{}"}),
        event({"content": "Found.", "annotations": [{"type": "url_citation"}]}),
    ]
    async with raw_server(streaming(*pieces, *END)) as server:
        _, reply = await replied(chat_completions, asking(f"{server.url}/v1", tools=(ADD,)))
    assert [(call.id, call.name) for call in reply.message.tool_calls] == [("call_1", "add")]
    assert reply.message.text == "Found."
