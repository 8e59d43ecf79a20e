"""LiteLLM before providers with protocols of their own, as servers that speak them."""

import orjson
import pytest
from model_servers import (
    KEY,
    Answer,
    asking,
    begin_stream,
    end_stream,
    raw_server,
    refusing,
    replied,
    send_chunk,
)

from everturn.agents import ToolSpec
from everturn.errors import ModelRefused, ModelUnavailable, UnknownModel
from everturn.messages import (
    AssistantMessage,
    Text,
    Thinking,
    ToolMessage,
    ToolResult,
    user_text,
)
from everturn_activities.gateways.litellm import LiteLLMGateway

pytestmark = pytest.mark.filterwarnings("ignore:Accessing the 'model_")

CLAUDE = "anthropic/claude-sonnet-4-5"
ADD = ToolSpec(name="add", description="Adds.", parameters={"type": "object", "properties": {}})


def anthropic(*events: dict, stop: bool = True) -> Answer:
    """A server of Anthropic's messages; without `stop` the stream ends before `message_stop`."""
    usage = {"input_tokens": 12, "output_tokens": 1, "cache_read_input_tokens": 5}
    begin = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "c"}
    all_events = [{"type": "message_start", "message": {**begin, "usage": usage}}, *events]
    if stop:
        all_events.append({"type": "message_stop"})

    async def answer(request, writer):
        await begin_stream(writer)
        for event in all_events:
            data = orjson.dumps(event)
            await send_chunk(writer, b"event: %s\ndata: %s\n\n" % (event["type"].encode(), data))
        await end_stream(writer)

    return answer


def block(index: int, start: dict, *deltas: dict) -> list[dict]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def ended(reason: str) -> dict:
    return {
        "type": "message_delta",
        "delta": {"stop_reason": reason},
        "usage": {"output_tokens": 9},
    }


THOUGHT = block(
    0,
    {"type": "thinking", "thinking": "", "signature": ""},
    {"type": "thinking_delta", "thinking": "Hm, "},
    {"type": "thinking_delta", "thinking": "two."},
    {"type": "signature_delta", "signature": "c2lnbmVk"},
)
HIDDEN = block(1, {"type": "redacted_thinking", "data": "Y2lwaGVy"})
SAID = block(2, {"type": "text", "text": ""}, {"type": "text_delta", "text": "I add."})
ASKED = block(
    3,
    {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}},
    {"type": "input_json_delta", "partial_json": '{"a": '},
    {"type": "input_json_delta", "partial_json": "1}"},
)


async def test_anthropics_signed_thoughts_are_kept_and_go_back_before_the_call(litellm):
    events = [*THOUGHT, *HIDDEN, *SAID, *ASKED, ended("tool_use")]
    async with raw_server(anthropic(*events)) as server:
        context = asking(server.url, user_text("1+1"), model=CLAUDE, tools=(ADD,))
        _, reply = await replied(litellm, context)
        result = ToolMessage(results=(ToolResult(call_id="toolu_1", name="add", text="2"),))
        again = context.model_copy(update={"messages": (*context.messages, reply.message, result)})
        await replied(litellm, again)
    assert [part for part in reply.message.parts if isinstance(part, Thinking)] == [
        Thinking(text="Hm, two.", signature="c2lnbmVk"),
        Thinking(encrypted="Y2lwaGVy"),
    ]
    assert reply.message.text == "I add."
    assert reply.message.tool_calls[0].arguments == {"a": 1}
    assert (reply.stop, reply.usage.output_tokens, reply.usage.cached_tokens) == ("tool_use", 9, 5)
    user, assistant, results = server.requests[1].body["messages"]
    assert user["role"] == "user"
    kinds = [part["type"] for part in assistant["content"]]
    assert kinds == ["thinking", "redacted_thinking", "text", "tool_use"]
    assert assistant["content"][0]["signature"] == "c2lnbmVk"
    assert assistant["content"][1]["data"] == "Y2lwaGVy"
    assert results["content"][0]["tool_use_id"] == "toolu_1"


def marked(body: dict) -> list[str]:
    """The texts of a request's blocks that are marked for Anthropic's cache, in its order."""
    found = [f"tool {tool['name']}" for tool in body.get("tools", ()) if "cache_control" in tool]
    blocks = [*body.get("system", ())]
    for message in body["messages"]:
        blocks += message["content"]
    for one in blocks:
        if "cache_control" in one:
            assert one["cache_control"] == {"type": "ephemeral"}
            found.append(one.get("text") or one["content"])
    return found


async def test_B21_anthropics_cache_is_marked_at_the_boundary_and_behind_the_newest_messages(
    litellm,
):
    events = [*SAID, *ASKED, ended("tool_use")]
    async with raw_server(anthropic(*events)) as server:
        prompt = {"system": "Above.\n\nBelow.", "cached": 6, "steady": True}
        context = asking(server.url, user_text("1+1"), model=CLAUDE, tools=(ADD, ADD), **prompt)
        _, reply = await replied(litellm, context)
        result = ToolMessage(results=(ToolResult(call_id="toolu_1", name="add", text="2"),))
        again = context.model_copy(update={"messages": (*context.messages, reply.message, result)})
        await replied(litellm, again)
    first, second = (request.body for request in server.requests)
    assert [block["text"] for block in first["system"]] == ["Above.", "\n\nBelow."]
    assert marked(first) == ["tool add", "Above.", "1+1"]
    assert marked(second) == ["tool add", "Above.", "1+1", "2"]


async def test_in_a_pair_anthropics_mark_stands_in_the_context_message(litellm):
    async with raw_server(anthropic(*SAID, ended("end_turn"))) as server:
        pair = (user_text("Above.\nBelow."), AssistantMessage(parts=(Text(text="Yes."),)))
        context = asking(server.url, *pair, user_text("go"), model=CLAUDE, system="", cached=6)
        context = context.model_copy(update={"steady": True})
        await replied(litellm, context)
    (request,) = server.requests
    assert "system" not in request.body
    assert marked(request.body) == ["Above.", "go"]


async def test_behind_a_prompt_that_changes_with_each_step_nothing_is_marked(litellm):
    async with raw_server(anthropic(*SAID, ended("end_turn"))) as server:
        await replied(litellm, asking(server.url, model=CLAUDE, system="A. 12:01", cached=2))
        await replied(litellm, asking(server.url, model=CLAUDE, system="12:01", cached=0))
    first, second = server.requests
    assert marked(first.body) == ["A."]
    assert marked(second.body) == []


async def test_a_model_of_another_provider_is_sent_no_marks(litellm):
    async with raw_server(gemini(candidate("Hi", "STOP"))) as server:
        context = asking(
            server.url, model="gemini/gemini-2.5-flash", tools=(ADD,), system="Be.", cached=3
        )
        await replied(litellm, context)
    (request,) = server.requests
    assert b"cache" not in orjson.dumps(request.body).lower()


@pytest.mark.parametrize(
    "events",
    [SAID[:2], [*SAID, *ASKED[:2]], [*SAID, ended("end_turn")]],
    ids=["in text", "in tool json", "before message_stop"],
)
async def test_an_anthropic_stream_without_message_stop_is_no_reply(litellm, events):
    async with raw_server(anthropic(*events, stop=False)) as server:
        with pytest.raises(ModelUnavailable, match="was cut"):
            await replied(litellm, asking(server.url, model=CLAUDE))


async def test_a_refused_anthropic_key_names_its_variable(litellm):
    body = {"type": "error", "error": {"type": "authentication_error", "message": f"bad {KEY}"}}
    async with raw_server(refusing(401, body)) as server:
        with pytest.raises(ModelRefused, match="Set ANTHROPIC_API_KEY") as raised:
            await replied(litellm, asking(server.url, model=CLAUDE))
    assert KEY not in str(raised.value)
    assert "bad" in str(raised.value)


async def test_a_key_whose_variable_is_named_goes_instead_of_the_providers_own(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    gateway = LiteLLMGateway(key={"MY_KEY": "key-of-mine-0000"}.get)
    async with raw_server(anthropic(*SAID, ended("end_turn"))) as server:
        context = asking(server.url, model=CLAUDE, api_key_variable="MY_KEY")
        await replied(gateway, context)
        with pytest.raises(ModelRefused, match="set OTHER_KEY"):
            await replied(gateway, asking(server.url, model=CLAUDE, api_key_variable="OTHER_KEY"))
    await gateway.close()
    assert [request.headers["x-api-key"] for request in server.requests] == ["key-of-mine-0000"]


async def test_an_overloaded_anthropic_is_asked_once_and_its_wait_is_told(litellm):
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    async with raw_server(refusing(529, body, retry_after="3")) as server:
        with pytest.raises(ModelUnavailable, match="Overloaded") as raised:
            await replied(litellm, asking(server.url, model=CLAUDE))
    assert raised.value.retry_after_seconds == 3
    assert len(server.requests) == 1


def ollama(*lines: dict) -> Answer:
    async def answer(request, writer):
        if request.path != "/api/chat":
            await refusing(404, {"error": "no"})(request, writer)
            return
        await begin_stream(writer, "application/x-ndjson")
        for line in lines:
            await send_chunk(writer, orjson.dumps({"model": "llama3", **line}) + b"\n")
        await end_stream(writer)

    return answer


WORD = {"message": {"role": "assistant", "content": "Hi "}, "done": False}
LAST = {
    "message": {"role": "assistant", "content": ""},
    "done": True,
    "done_reason": "stop",
    "prompt_eval_count": 7,
    "eval_count": 2,
}


async def test_ollamas_reply_ends_with_done(litellm):
    async with raw_server(ollama(WORD, WORD, LAST)) as server:
        _, reply = await replied(litellm, asking(server.url, model="ollama_chat/llama3"))
    assert (reply.message.text, reply.stop, reply.usage.input_tokens) == ("Hi Hi ", "end_turn", 7)


async def test_an_ollama_stream_without_done_is_no_reply(litellm):
    async with raw_server(ollama(WORD, WORD)) as server:
        with pytest.raises(ModelUnavailable, match="was cut"):
            await replied(litellm, asking(server.url, model="ollama_chat/llama3"))


def gemini(*chunks: dict) -> Answer:
    async def answer(request, writer):
        await begin_stream(writer)
        for chunk in chunks:
            await send_chunk(writer, b"data: " + orjson.dumps(chunk) + b"\r\n\r\n")
        await end_stream(writer)

    return answer


def candidate(text: str, finish: str | None = None) -> dict:
    content = {"parts": [{"text": text}], "role": "model"}
    ending = {"finishReason": finish} if finish else {}
    usage = {"promptTokenCount": 4, "candidatesTokenCount": 2, "totalTokenCount": 6}
    return {"candidates": [{"content": content, "index": 0, **ending}], "usageMetadata": usage}


async def test_geminis_reply_ends_with_a_finish_reason(litellm):
    async with raw_server(gemini(candidate("Hi "), candidate("you", "STOP"))) as server:
        _, reply = await replied(litellm, asking(server.url, model="gemini/gemini-2.5-flash"))
    assert (reply.message.text, reply.stop) == ("Hi you", "end_turn")


async def test_a_gemini_stream_without_a_finish_reason_is_no_reply(litellm):
    async with raw_server(gemini(candidate("Hi "), candidate("you"))) as server:
        with pytest.raises(ModelUnavailable, match="was cut"):
            await replied(litellm, asking(server.url, model="gemini/gemini-2.5-flash"))


async def test_a_name_without_a_provider_is_unknown(litellm):
    with pytest.raises(UnknownModel, match="nonsense"):
        await replied(litellm, asking(None, model="nonsense"))


async def test_a_reply_that_is_no_stream_is_refused_instead_of_dropped(litellm):
    message = {"role": "assistant", "content": "hi there"}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    async with raw_server(refusing(200, body)) as server:
        with pytest.raises(ModelRefused, match="without a stream; set base_url"):
            await replied(litellm, asking(server.url + "/v1"))


SAMPLING = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "repeat_penalty": 1.1}


async def test_R22_gemini_is_told_of_tools_as_function_declarations(litellm):
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    add = ADD.model_copy(update={"parameters": parameters})
    async with raw_server(gemini(candidate("Hi", "STOP"))) as server:
        context = asking(server.url, model="gemini/gemini-2.5-flash", tools=(add,), **SAMPLING)
        await replied(litellm, context)

    [request] = server.requests
    [[declared]] = [tool["function_declarations"] for tool in request.body["tools"]]
    assert (declared["name"], declared["description"]) == ("add", "Adds.")
    assert declared["parameters"]["properties"]["a"]["type"].lower() == "integer"
    assert declared["parameters"]["required"] == ["a"]
    sampled = request.body["generationConfig"]
    assert (sampled["top_p"], sampled["top_k"]) == (0.9, 40)
    assert b"penalty" not in orjson.dumps(request.body)


async def test_T13_providers_are_sent_the_sampling_that_they_have(litellm):
    async with raw_server(anthropic(*SAID, ended("end_turn"))) as claude:
        await replied(litellm, asking(claude.url, model=CLAUDE, **SAMPLING))
    async with raw_server(ollama({"message": {"content": "Hi"}, "done": True})) as server:
        await replied(litellm, asking(server.url, model="ollama_chat/qwen3", **SAMPLING))

    [sent] = claude.requests
    assert (sent.body["top_k"], sent.body["top_p"]) == (40, 0.9)
    assert "repeat_penalty" not in sent.body
    options = server.requests[-1].body["options"]
    assert (options["top_k"], options["repeat_penalty"]) == (40, 1.1)


SEARCHES = [
    *block(
        0,
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"query": '},
        {"type": "input_json_delta", "partial_json": '"tea"}'},
    ),
    *block(
        1,
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [
                {
                    "type": "web_search_result",
                    "url": "https://tea.example/",
                    "title": "Tea",
                    "encrypted_content": "eA==",
                }
            ],
        },
    ),
]
CITES = block(
    4,
    {"type": "text", "text": "", "citations": []},
    {"type": "text_delta", "text": " It is tea."},
    {
        "type": "citations_delta",
        "citation": {
            "type": "web_search_result_location",
            "url": "https://tea.example/",
            "title": "Tea",
            "encrypted_index": "eA==",
            "cited_text": "tea",
        },
    },
)


@pytest.mark.parametrize("ours", [[], ASKED], ids=["alone", "beside ours"])
async def test_R21_a_search_of_anthropics_own_is_no_call_of_ours(litellm, ours):
    events = [*SEARCHES, *SAID, *ours, *CITES, ended("tool_use" if ours else "end_turn")]
    async with raw_server(anthropic(*events)) as server:
        context = asking(
            server.url,
            model=CLAUDE,
            tools=(ADD,),
            native_tools=("web_search", "web_fetch_20250910"),
        )
        _, reply = await replied(litellm, context)

    [request] = server.requests
    own, search, fetch = request.body["tools"]
    assert own["name"] == "add"
    assert (search["type"], search["name"]) == ("web_search_20250305", "web_search")
    assert (fetch["type"], fetch["name"]) == ("web_fetch_20250910", "web_fetch")
    assert reply.message.text == "I add. It is tea."
    called = [(call.id, call.arguments) for call in reply.message.tool_calls]
    assert called == ([("toolu_1", {"a": 1})] if ours else [])
    assert reply.stop == ("tool_use" if ours else "end_turn")


@pytest.mark.parametrize(
    ("model", "tools", "natives"),
    [
        ("gemini-2.5-flash", (), ["googleSearch", "codeExecution", "urlContext"]),
        # It refuses its own search beside functions, so LiteLLM leaves that out.
        ("gemini-2.5-flash", (ADD,), ["codeExecution"]),
        ("gemini-3-pro-preview", (ADD,), ["googleSearch", "codeExecution", "urlContext"]),
    ],
)
async def test_R21_geminis_own_tools_are_merged_into_the_list(litellm, model, tools, natives):
    own = ("googleSearch", "urlContext", "codeExecution")
    async with raw_server(gemini(candidate("Hi", "STOP"))) as server:
        context = asking(server.url, model=f"gemini/{model}", tools=tools, native_tools=own)
        await replied(litellm, context)

    [request] = server.requests
    names = [name for tool in request.body["tools"] for name in tool]
    assert [name for name in names if name != "function_declarations"] == [
        {"codeExecution": "code_execution", "urlContext": "url_context"}.get(name, name)
        for name in natives
    ]
    assert ("function_declarations" in names) == bool(tools)


async def test_R21_what_gemini_ran_and_found_is_no_call_of_ours(litellm):
    ran = candidate("It is ")
    ran["candidates"][0]["content"]["parts"] += [
        {"executableCode": {"language": "PYTHON", "code": "print(2)"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}},
    ]
    last = candidate("2.", "STOP")
    last["candidates"][0]["groundingMetadata"] = {
        "webSearchQueries": ["two"],
        "groundingChunks": [{"web": {"uri": "https://two.example/", "title": "Two"}}],
    }
    async with raw_server(gemini(ran, last)) as server:
        context = asking(
            server.url, model="gemini/gemini-2.5-flash", native_tools=("codeExecution",)
        )
        _, reply = await replied(litellm, context)
    assert reply.message.tool_calls == ()
    assert reply.stop == "end_turn"
    assert reply.message.text.startswith("It is ")
    assert reply.message.text.endswith("2.")
