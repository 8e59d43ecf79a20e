"""Workspaces that break in mid-turn, and providers that answer what nobody expects."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from harness import Bench, calls, says, scripted

from everturn.messages import ToolMessage
from everturn_activities import workspaces
from everturn_activities.gateways.chat_completions import ChatCompletionsGateway


def results(transcript: list[object]) -> list[str]:
    return [
        result.text
        for message in transcript
        if isinstance(message, ToolMessage)
        for result in message.results
    ]


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a workspace are looked at before each call, and not once a second."""
    monkeypatch.setattr(workspaces, "FRESH_SECONDS", 0.0)


@pytest.mark.usefixtures("looking")
@pytest.mark.parametrize("name", ["slow", "effect", "add"])
async def test_a_tool_file_that_breaks_in_mid_turn_is_an_error_that_the_model_sees(
    made: Bench, name: str
) -> None:
    gateway = scripted({**calls(name, a=1, b=2), "hold": "mid"}, says("sorry"))
    key = await made.session()
    async with made.worker(gateway, placement="queued"):
        await made.send(key, "go")
        await gateway.reached("mid")
        (made.workspace / "tools" / "broken.py").write_text("def (")
        gateway.release("mid")
        events = await made.until(key, "turn_finished")

    assert events[-1].body["outcome"] == "completed"
    (told,) = results(await made.transcript(key))
    assert "cannot run" in told
    assert "broken.py" in told


@pytest.mark.usefixtures("looking")
async def test_a_workspace_that_is_deleted_in_mid_turn_leaves_the_built_in_tools(
    made: Bench,
) -> None:
    gateway = scripted({**calls("list_files", "slow"), "hold": "mid"}, says("sorry"))
    key = await made.session()
    async with made.worker(gateway, placement="queued"):
        await made.send(key, "go")
        await gateway.reached("mid")
        (made.workspace / "kept.txt").write_text("")
        shutil.rmtree(made.workspace / "tools")
        (made.workspace / "everturn.toml").unlink()
        gateway.release("mid")
        await made.until(key, "turn_finished")

    listed, refused = results(await made.transcript(key))
    assert "kept.txt" in listed
    assert "cannot run" in refused


@asynccontextmanager
async def endpoint(*answers: tuple[int, dict[str, str], bytes]) -> AsyncIterator[str]:
    """An HTTP server that gives its answers in turn, the last one for ever."""
    asked = iter(range(10**6))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
        status, headers, body = answers[min(next(asked), len(answers) - 1)]
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


def stream(*chunks: object) -> bytes:
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


GOOD = stream({"choices": [{"delta": {"content": "ok"}, "finish_reason": "stop"}]})
EVENTS = {"content-type": "text/event-stream"}


@pytest.mark.parametrize("placement", ["inline", "queued"])
@pytest.mark.parametrize("choices", [[{"delta": "hi"}], [None], "hi"])
async def test_a_reply_of_a_shape_that_nobody_expects_is_tried_again(
    made: Bench, placement: str, choices: object
) -> None:
    async with endpoint((200, EVENTS, stream({"choices": choices})), (200, EVENTS, GOOD)) as url:
        key = await made.session()
        gateway = ChatCompletionsGateway(base_url=url, key="none")
        async with made.worker(gateway, placement=placement):
            await made.send(key, "hello")
            events = await made.until(key, "turn_finished")

    assert events[-1].body["text"] == "ok"
    assert any("was cut" in e.body["text"] for e in events if e.type == "status")


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_a_provider_that_asks_to_wait_for_ever_is_named_and_not_waited_for(
    made: Bench, placement: str
) -> None:
    async with endpoint((429, {"retry-after": "9" * 400}, b"{}")) as url:
        key = await made.session()
        gateway = ChatCompletionsGateway(base_url=url, key="none")
        async with made.worker(gateway, placement=placement):
            await made.send(key, "hello")
            events = await made.until(key, "turn_finished")

    assert events[-1].body["outcome"] == "model_failed"
    assert "longer than 3600 s" in events[-1].body["reason"]
