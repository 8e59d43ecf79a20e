"""An endpoint that misbehaves as a test says, and is as strict with requests as providers are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from model_servers import (
    DONE,
    Answer,
    RawServer,
    Request,
    answer_json,
    begin_stream,
    event,
    raw_server,
    refusing,
    send_chunk,
    streaming,
)

Fault = Literal["cut", "silence"]


@dataclass(frozen=True)
class Call:
    name: str
    arguments: str
    id: str = "call-1"


@dataclass(frozen=True)
class Says:
    """A reply, whole but for its fault: `cut` breaks the connection in the middle of it, and
    `silence` keeps it open and sends no more."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    finish: str | None = None
    usage: bool = True
    fault: Fault | None = None

    @property
    def finish_reason(self) -> str:
        return self.finish or ("tool_calls" if self.calls else "stop")

    def streamed(self) -> Answer:
        half = len(self.text) // 2
        pieces = [event({"content": part}) for part in (self.text[:half], self.text[half:]) if part]
        for index, call in enumerate(self.calls):
            pieces.append(event({"tool_calls": [{"index": index, **_call(call)}]}))
        if self.fault == "cut":
            return streaming(*pieces[:-1], end=False)
        if self.fault == "silence":
            return _falls_silent(pieces[:-1])
        pieces.append(event({}, self.finish_reason))
        if self.usage:
            pieces.append(b"data: " + orjson.dumps({"choices": [], "usage": USAGE}) + b"\n\n")
        return streaming(*pieces, DONE)

    def whole(self) -> Answer:
        """The reply as an endpoint gives it that cannot stream."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None}
        if self.calls:
            message["tool_calls"] = [_call(call) for call in self.calls]
        choice = {"index": 0, "message": message, "finish_reason": self.finish_reason}
        body: dict[str, Any] = {"object": "chat.completion", "choices": [choice]}
        if self.usage:
            body["usage"] = USAGE
        if self.fault == "cut":
            return _breaks_off(orjson.dumps(body))
        return _falls_silent([]) if self.fault == "silence" else refusing(200, body)


USAGE = {"prompt_tokens": 11, "completion_tokens": 5}
OK = Says("all is well")


@dataclass(frozen=True)
class Refuses:
    status: int
    message: str = "no"
    headers: tuple[tuple[str, str], ...] = ()

    def streamed(self) -> Answer:
        error = {"error": {"message": self.message, "code": None}}
        return refusing(self.status, error, **dict(self.headers))

    whole = streamed


def _call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _falls_silent(pieces: list[bytes]) -> Answer:
    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        await begin_stream(writer)
        for piece in pieces:
            await send_chunk(writer, piece)
        await asyncio.Event().wait()

    return answer


def _breaks_off(content: bytes) -> Answer:
    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        head = (
            f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(content)}"
        )
        writer.write(head.encode() + b"\r\n\r\n" + content[: len(content) // 2])
        await writer.drain()
        writer.close()

    return answer


@asynccontextmanager
async def endpoint(wire: str, *replies: Says | Refuses) -> AsyncIterator[RawServer]:
    """Gives its replies in turn, the last one for ever, and refuses what a provider would."""
    given = 0

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal given
        if (wrong := fault_of(request.body)) is not None:
            await answer_json(writer, 400, {"error": {"message": f"invalid request: {wrong}"}})
            return
        reply = replies[min(given, len(replies) - 1)]
        given += 1
        await (reply.streamed() if wire == "stream" else reply.whole())(request, writer)

    async with raw_server(answer) as server:
        yield server


def fault_of(body: dict[str, Any]) -> str | None:
    """What a strict provider would refuse in a request, or None."""
    asked: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            if not asked or message["tool_call_id"] != asked.pop(0):
                return "a result that no call asked for"
            continue
        if asked:
            return "a call without its result"
        if message["role"] != "assistant":
            continue
        calls = message.get("tool_calls", ())
        if not calls and not str(message["content"] or "").strip():
            return "a message of nothing"
        asked = [call["id"] for call in calls]
        if len(set(asked)) < len(asked):
            return "an id that stands twice"
        for call in calls:
            try:
                arguments = orjson.loads(call["function"]["arguments"])
            except orjson.JSONDecodeError:
                return "arguments that are not JSON"
            if not isinstance(arguments, dict):
                return "arguments that are no object"
    return "a call without its result" if asked else None
