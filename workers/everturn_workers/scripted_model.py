"""An OpenAI-compatible endpoint that answers from a script, as a process of its own."""

import argparse
import asyncio
import json
import socket
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import orjson
import uvicorn

from everturn.errors import UsageError
from everturn_activities.gateways.scripted import (
    Place,
    Script,
    ScriptedReply,
    call_id,
    pieces_of,
    place_of,
    read_script,
)

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]

_JSON = [(b"content-type", b"application/json")]
_EVENTS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]


class ScriptedModel:
    """The endpoint as an ASGI application.

    `log` receives a JSON line when a request arrives, with all of it where `bodies` is set,
    and one when its reply was sent whole, with the usage it told, or `cut` off. `delay_ms`
    passes before each reply. More requests than `per_second` within any second are refused,
    as providers do.
    """

    def __init__(
        self,
        script: Script,
        log: TextIO | None = None,
        delay_ms: float = 0,
        per_second: int | None = None,
        bodies: bool = False,
    ) -> None:
        self._script = script
        self._log = log
        self._bodies = bodies
        self._delay_seconds = delay_ms / 1000
        self._window = _Window(per_second) if per_second is not None else None
        self._requests = 0
        self._asked: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._released: dict[str, asyncio.Event] = {}

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        match scope["type"], scope.get("method"), scope.get("path"):
            case "http", "POST", "/v1/chat/completions":
                await self._complete(await _body(receive), receive, send)
            case "http", "POST", "/v1/embeddings":
                await self._embed(await _body(receive), send)
            case "http", "GET", "/v1/models":
                await _answer(send, 200, {"object": "list", "data": [{"id": "scripted"}]})
            case "http", "GET", "/control/held":
                held = sorted(name for name, waiting in self._held.items() if waiting)
                await _answer(send, 200, {"held": held})
            case "http", "POST", "/control/release":
                self._gate(orjson.loads(await _body(receive))["name"]).set()
                await _answer(send, 200, {})
            case "http", _, _:
                await _answer(send, 404, {"error": {"message": "There is nothing here."}})

    async def _complete(self, body: bytes, receive: Receive, send: Send) -> None:
        try:
            request = orjson.loads(body)
            place = place_of(request["messages"])
        except (ValueError, LookupError, TypeError, AttributeError):
            message = "The body is no request for a chat completion."
            await _answer(send, 400, {"error": {"message": message, "type": "invalid_request"}})
            return
        self._requests += 1
        told = {
            "id": self._requests,
            "model": request.get("model"),
            "key": place.key,
            "position": place.position,
            "messages": len(request["messages"]),
        }
        self._tell("received", {**told, "request": request} if self._bodies else told)
        if await self._refused(told, send):
            return
        reply = self._script.reply(place)
        if reply is None:
            message = f"The script has no reply at position {place.position}."
            await _answer(send, 400, {"error": {"message": message, "type": "invalid_request"}})
            return
        asked = self._asked[place.key] = self._asked.get(place.key, 0) + 1
        if asked > reply.times:
            reply = reply.sound
        if self._delay_seconds:
            await asyncio.sleep(self._delay_seconds)
        if reply.status is not None:
            await _refuse(send, reply)
            return
        told["finish"] = reply.finish_reason
        if not request.get("stream"):
            whole = _whole(request, place, reply)
            await _answer(send, 200, whole)
            self._tell("completed", {**told, "usage": whole["usage"]})
            return
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            if await self._streamed(request, place, reply, send, gone):
                usage = _usage(request, len(list(_events(request, place, reply))))
                self._tell("completed", {**told, "usage": usage})
            else:
                self._tell("cut", told)
        finally:
            gone.cancel()

    async def _refused(self, told: dict[str, Any], send: Send) -> bool:
        """Answer a request that is beyond the rate; whether it was."""
        seconds = 0.0 if self._window is None else self._window.refuses(time.monotonic())
        if seconds:
            self._tell("refused", told)
            error = {"message": "Too many requests in a second.", "type": "rate_limit_exceeded"}
            headers = [(b"retry-after-ms", f"{1000 * seconds:.0f}".encode())]
            await _answer(send, 429, {"error": error}, headers)
        return seconds > 0

    async def _embed(self, body: bytes, send: Send) -> None:
        try:
            request = orjson.loads(body)
            texts = [str(text) for text in request["input"]]
        except (ValueError, LookupError, TypeError):
            error = {"message": "The body is no request for embeddings.", "type": "invalid_request"}
            await _answer(send, 400, {"error": error})
            return
        told = {"model": request.get("model"), "texts": len(texts)}
        if await self._refused(told, send):
            return
        self._tell("embedded", told)
        rows = [
            {"object": "embedding", "index": index, "embedding": self._script.vector(text)}
            for index, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        await _answer(send, 200, {"object": "list", "data": rows, "usage": usage})

    async def _streamed(
        self,
        request: dict[str, Any],
        place: Place,
        reply: ScriptedReply,
        send: Send,
        gone: "asyncio.Future[None]",
    ) -> bool:
        """Send the reply's events. False where the stream was cut or the client went away."""
        await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
        events = list(_events(request, place, reply))
        last = len(events) - 1
        waiting: list[bytes] = []
        for number, event in enumerate(events):
            if number == reply.cut_after:
                await send({"type": "http.response.body", "body": b"".join(waiting)})
                return False
            if number == reply.stall_after:
                await _sent(send, waiting)
                await gone
                return False
            if reply.hold is not None and number == len(events) // 2:
                await _sent(send, waiting)
                await self._hold(reply.hold, gone)
            if reply.token_ms and number:
                await _sent(send, waiting)
                await asyncio.sleep(reply.token_ms / 1000)
            if gone.done():
                return False
            waiting.append(event)
        usage = _usage(request, last + 1)
        waiting.append(_event({**_frame(request, place), "choices": [], "usage": usage}))
        waiting.append(b"data: [DONE]\n\n")
        await send({"type": "http.response.body", "body": b"".join(waiting)})
        return not gone.done()

    async def _hold(self, name: str, gone: "asyncio.Future[None]") -> None:
        """Wait until `name` is released or the client is gone."""
        self._held[name] = self._held.get(name, 0) + 1
        released = asyncio.ensure_future(self._gate(name).wait())
        try:
            await asyncio.wait((released, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            released.cancel()
            self._held[name] -= 1

    def _gate(self, name: str) -> asyncio.Event:
        return self._released.setdefault(name, asyncio.Event())

    def _tell(self, event: str, told: dict[str, Any]) -> None:
        if self._log is not None:
            self._log.write(json.dumps({"event": event, "time": time.time(), **told}) + "\n")
            self._log.flush()


class _Window:
    """The requests that were taken within the last second."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: deque[float] = deque()

    def refuses(self, now: float) -> float:
        """For how many seconds another request is refused; 0 where it is taken."""
        while self._taken and self._taken[0] <= now - 1:
            self._taken.popleft()
        if len(self._taken) >= self._most:
            return self._taken[0] + 1 - now
        self._taken.append(now)
        return 0.0


async def _body(receive: Receive) -> bytes:
    pieces: list[bytes] = []
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _answer(
    send: Send, status: int, body: Any, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    content = orjson.dumps(body)
    length = (b"content-length", str(len(content)).encode())
    all_headers = [*_JSON, length, *(headers or ())]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": content})


async def _refuse(send: Send, reply: ScriptedReply) -> None:
    message = {"message": f"Scripted status {reply.status}.", "type": "scripted"}
    headers = []
    if reply.retry_after is not None:
        headers.append((b"retry-after", f"{reply.retry_after:g}".encode()))
    await _answer(send, reply.status or 500, reply.error_body or {"error": message}, headers)


async def _sent(send: Send, waiting: list[bytes]) -> None:
    """Send what waits. Events without a pause between them leave in one piece, which is cheap."""
    if waiting:
        await send({"type": "http.response.body", "body": b"".join(waiting), "more_body": True})
        waiting.clear()


def _events(request: dict[str, Any], place: Place, reply: ScriptedReply) -> Iterator[bytes]:
    """The events of the stream, each a word, a call's name or a piece of its arguments."""
    head, tail = _around(request, place)
    for piece in pieces_of(reply.thinking):
        yield head + b'{"reasoning_content":' + orjson.dumps(piece) + b"}" + tail
    for piece in pieces_of(reply.text):
        yield head + b'{"content":' + orjson.dumps(piece) + b"}" + tail
    for index, call in enumerate(_calls(place, reply)):
        arguments = call["function"].pop("arguments")
        half = len(arguments) // 2
        opening = {**call["function"], "arguments": arguments[:half]}
        yield _call(head, tail, {"index": index, **call, "function": opening})
        yield _call(head, tail, {"index": index, "function": {"arguments": arguments[half:]}})
    choice = {"index": 0, "delta": {}, "finish_reason": reply.finish_reason}
    yield _event({**_frame(request, place), "choices": [choice]})


def _around(request: dict[str, Any], place: Place) -> tuple[bytes, bytes]:
    """What stands before and after the delta of every event of a reply."""
    frame = orjson.dumps(_frame(request, place))[:-1]
    head = b"data: " + frame + b',"choices":[{"index":0,"delta":'
    return head, b',"finish_reason":null}]}\n\n'


def _call(head: bytes, tail: bytes, call: dict[str, Any]) -> bytes:
    return head + orjson.dumps({"tool_calls": [call]}) + tail


def _calls(place: Place, reply: ScriptedReply) -> list[dict[str, Any]]:
    return [
        {
            "id": call_id(place.key, index),
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": call.raw
                if call.raw is not None
                else orjson.dumps(call.arguments).decode(),
            },
        }
        for index, call in enumerate(reply.calls)
    ]


def _whole(request: dict[str, Any], place: Place, reply: ScriptedReply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.thinking:
        message["reasoning_content"] = reply.thinking
    if reply.calls:
        message["tool_calls"] = _calls(place, reply)
    choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
    frame = {**_frame(request, place), "object": "chat.completion"}
    return {**frame, "choices": [choice], "usage": _usage(request, len(pieces_of(reply.text)))}


def _frame(request: dict[str, Any], place: Place) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{place.key}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": request.get("model", "scripted"),
    }


def _usage(request: dict[str, Any], written: int) -> dict[str, int]:
    """Ten tokens a message and one for each event: easy to foresee in a test."""
    asked = 10 * len(request["messages"])
    return {
        "prompt_tokens": asked,
        "completion_tokens": written,
        "total_tokens": asked + written,
    }


def _event(data: Any) -> bytes:
    return b"".join((b"data: ", orjson.dumps(data), b"\n\n"))


async def serve(
    script: Script,
    port: int,
    log: TextIO | None,
    delay_ms: float,
    per_second: int | None = None,
    bodies: bool = False,
) -> None:
    """Serve until the process is told to end; says where once it listens."""
    # asyncio turns Nagle's delay of 40 ms off only for sockets that name their protocol.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    config = uvicorn.Config(
        ScriptedModel(script, log, delay_ms, per_second, bodies),
        lifespan="off",
        log_level="error",
        access_log=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    print(f"listening http://127.0.0.1:{listener.getsockname()[1]}/v1", flush=True)
    with listener:
        await server.serve(sockets=[listener])


def main() -> None:
    parser = argparse.ArgumentParser(prog="everturn_workers.scripted_model", description=__doc__)
    parser.add_argument("--script", type=Path, required=True, help="the script, a JSON file")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--log", type=Path, help="where to write a JSON line for each request")
    parser.add_argument("--delay-ms", type=float, default=0, help="a pause before each reply")
    parser.add_argument("--per-second", type=int, help="refuse more requests with HTTP 429")
    parser.add_argument("--bodies", action="store_true", help="log requests whole")
    flags = parser.parse_args()
    try:
        script = read_script(flags.script.read_bytes())
        log = flags.log.open("a") if flags.log else None
    except (UsageError, OSError) as error:
        sys.exit(f"{error}")
    try:
        asyncio.run(serve(script, flags.port, log, flags.delay_ms, flags.per_second, flags.bodies))
    except OSError as error:
        sys.exit(f"Port {flags.port} cannot be opened: {error.strerror}; choose another --port.")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
