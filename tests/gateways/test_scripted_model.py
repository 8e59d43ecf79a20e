"""The scripted model: the same script, in process and as an endpoint."""

import asyncio
import socket
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import httpx
import pytest
from model_servers import Endpoint, asking, replied, scripted_endpoint

from everturn.errors import ModelRefused, ModelUnavailable, UsageError
from everturn.messages import AssistantMessage, Text, ToolMessage, ToolResult, user_text
from everturn_activities.gateways.scripted import (
    Script,
    ScriptedGateway,
    calls,
    read_script,
    says,
)
from everturn_workers.scripted_model import ScriptedModel

ADD = {"calls": [{"name": "add", "arguments": {"a": 1}}]}
SUM = {"text": "It is two.", "thinking": "Easy."}


async def test_the_place_follows_from_the_conversation_and_not_from_a_counter():
    gateway = ScriptedGateway(calls("add", a=1), says("two"))
    first = asking(None, user_text("1+1"))
    _, called = await replied(gateway, first)
    _, again = await replied(gateway, first)
    assert again.message == called.message
    call = called.message.tool_calls[0]
    results = ToolMessage(results=(ToolResult(call_id=call.id, name="add", text="2"),))
    for tool_role in (True, False):
        messages = (*first.messages, called.message, results)
        later = asking(None, *messages, tool_role=tool_role)
        _, answered = await replied(gateway, later)
        assert answered.message.text == "two"
    assert gateway.requests[0] is first


async def test_a_new_user_message_begins_the_script_anew():
    gateway = ScriptedGateway(says("one"), says("two"))
    _, first = await replied(gateway, asking(None, user_text("a")))
    _, second = await replied(gateway, asking(None, user_text("a"), first.message, user_text("b")))
    assert second.message.text == "one"


async def test_the_last_user_text_picks_the_list():
    script = Script(replies=(says("usual"),), by_last_user={"(?i)weather": (says("rain"),)})
    gateway = ScriptedGateway(script)
    _, weather = await replied(gateway, asking(None, user_text("The Weather?")))
    _, other = await replied(gateway, asking(None, user_text("Hello")))
    assert (weather.message.text, other.message.text) == ("rain", "usual")


async def test_a_script_that_is_at_its_end_says_so():
    gateway = ScriptedGateway(says("one"))
    spoken = AssistantMessage(parts=(Text(text="one"),))
    with pytest.raises(ModelRefused, match="No reply at 1"):
        await replied(gateway, asking(None, user_text("a"), spoken))


async def test_faults_meet_the_first_requests_only():
    gateway = ScriptedGateway(says("ok then", cut_after=1, times=2))
    for _ in range(2):
        with pytest.raises(ModelUnavailable, match="was cut"):
            await replied(gateway, asking(None))
    _, reply = await replied(gateway, asking(None))
    assert reply.message.text == "ok then"


async def test_a_held_stream_goes_on_when_it_is_released():
    gateway = ScriptedGateway(says("a b c d", hold="door"))
    task = asyncio.create_task(replied(gateway, asking(None)))
    await gateway.reached("door")
    gateway.release("door")
    _, reply = await task
    assert reply.message.text == "a b c d"


@pytest.mark.parametrize("text", ["{", '{"replies": [{"txt": 1}]}', "[]"])
def test_a_broken_script_is_one_sentence(text):
    with pytest.raises(UsageError, match="The script is wrong at"):
        read_script(text)


async def test_both_speak_the_same_script_alike(chat_completions, tmp_path: Path):
    script = {"replies": [{**SUM, **ADD}]}
    with scripted_endpoint(tmp_path, script) as endpoint:
        _, served = await replied(chat_completions, asking(endpoint.url))
    _, local = await replied(ScriptedGateway(read_script(str_of(script))), asking(None))
    assert served.message == local.message
    assert served.stop == local.stop == "tool_use"


def str_of(script: dict) -> bytes:
    return httpx.Request("POST", "http://x", json=script).content


async def test_the_endpoint_logs_what_it_received_and_what_it_completed(
    chat_completions, tmp_path: Path
):
    script = {"replies": [{"text": "a b c", "cut_after": 1}]}
    with scripted_endpoint(tmp_path, script) as endpoint:
        with pytest.raises(ModelUnavailable):
            await replied(chat_completions, asking(endpoint.url, user_text("x")))
        await replied(chat_completions, asking(endpoint.url, user_text("x")))
        await _completed(endpoint)
        with pytest.raises(ModelUnavailable):
            await replied(chat_completions, asking(endpoint.url, user_text("y")))
        received, completed = endpoint.events("received"), endpoint.events("completed")
    assert [line["id"] for line in received] == [1, 2, 3]
    assert received[0]["key"] == received[1]["key"] != received[2]["key"]
    # `y` is another place, so its first request is cut as well.
    assert [line["id"] for line in completed] == [2]


async def test_a_client_that_goes_away_has_not_completed(chat_completions, tmp_path: Path):
    script = {"replies": [{"text": "a b c d", "hold": "door"}]}
    with scripted_endpoint(tmp_path, script) as endpoint:
        root = endpoint.url.removesuffix("/v1")
        async with httpx.AsyncClient() as client:
            async with aclosing(chat_completions.stream(asking(endpoint.url))) as items:
                await anext(items)
                await anext(items)
                await _held(client, root, ["door"])
            await _held(client, root, [])
            assert endpoint.events("completed") == []
            await client.post(root + "/control/release", json={"name": "door"})
        _, reply = await replied(chat_completions, asking(endpoint.url))
        await _completed(endpoint)
        assert len(endpoint.events("completed")) == 1
    assert reply.message.text == "a b c d"


async def _completed(endpoint: Endpoint) -> None:
    """Waits for the line that the endpoint writes after the last byte, which the client reads."""
    async with asyncio.timeout(5):
        while not endpoint.events("completed"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def _held(client: httpx.AsyncClient, root: str, names: list[str]) -> None:
    async with asyncio.timeout(5):
        while (await client.get(root + "/control/held")).json()["held"] != names:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_the_endpoint_also_answers_without_a_stream(tmp_path: Path):
    with scripted_endpoint(tmp_path, {"replies": [{**SUM, **ADD}]}) as endpoint:
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        async with httpx.AsyncClient() as client:
            answer = (await client.post(endpoint.url + "/chat/completions", json=body)).json()
            models = (await client.get(endpoint.url + "/models")).json()
            broken = await client.post(endpoint.url + "/chat/completions", content=b"{")
    assert broken.status_code == 400
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "It is two."
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"a":1}'
    assert models["data"]


def test_the_endpoint_says_in_one_line_that_its_script_is_missing(tmp_path: Path):
    command = [sys.executable, "-m", "everturn_workers.scripted_model", "--script", "/missing.json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "/missing.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_endpoint_says_in_one_line_that_its_port_is_taken(tmp_path: Path):
    (tmp_path / "s.json").write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "everturn_workers.scripted_model", "--script", "s.json"]
        command += ["--port", port]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert port in done.stderr
    assert "Traceback" not in done.stderr


async def test_an_endpoint_with_a_rate_refuses_what_is_beyond_it():
    endpoint = ScriptedModel(Script(replies=(says("ok"),)), per_second=2)
    transport = httpx.ASGITransport(app=endpoint)
    body = {"model": "any", "messages": [{"role": "user", "content": "hello"}]}
    async with httpx.AsyncClient(transport=transport, base_url="http://endpoint/v1") as client:
        answers = [await client.post("/chat/completions", json=body) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 0 < float(answers[2].headers["retry-after-ms"]) <= 1000
