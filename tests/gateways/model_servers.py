"""Real endpoints for the tests of gateways."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from everturn.context.compose import Context
from everturn.messages import user_text
from everturn_activities.gateways import Delta, ModelGateway, Reply

MODEL = "hosted_vllm/scripted"
KEY = "opaque-4f9a8b7c6d5e4f3a2b1c"


@dataclass
class Endpoint:
    """The scripted model as a process."""

    url: str
    log: Path

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = map(json.loads, self.log.read_text().splitlines())
        return [line for line in lines if line["event"] == kind]


@contextmanager
def scripted_endpoint(folder: Path, script: dict[str, Any], *flags: str) -> Iterator[Endpoint]:
    path, log = folder / "script.json", folder / "log.jsonl"
    path.write_bytes(orjson.dumps(script))
    command = [sys.executable, "-m", "everturn_workers.scripted_model", "--port", "0"]
    command += ["--script", str(path), "--log", str(log), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("listening "), line
            yield Endpoint(line.split()[1], log)
        finally:
            process.kill()


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: Any


Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class RawServer:
    """An HTTP server whose every byte the test writes; a connection serves several requests."""

    answer: Answer
    url: str = ""
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while request := await _request(reader):
                self.requests.append(request)
                await self.answer(request, writer)
                if writer.is_closing():
                    break
        finally:
            self.closed.set()
            writer.close()


@asynccontextmanager
async def raw_server(answer: Answer, host: str = "127.0.0.1") -> AsyncIterator[RawServer]:
    raw = RawServer(answer)
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        tasks.add(task)
        with suppress(ConnectionError, asyncio.CancelledError):
            await raw.serve(reader, writer)

    server = await asyncio.start_server(connected, host, 0)
    raw.url = f"http://{host}:{server.sockets[0].getsockname()[1]}"
    try:
        yield raw
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _request(reader: asyncio.StreamReader) -> Request | None:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = await reader.readline()
        if not line:
            return None
        head += line
    first, *lines = head.decode().strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(first.split()[1], headers, orjson.loads(body) if body else None)


async def begin_stream(writer: asyncio.StreamWriter, kind: str = "text/event-stream") -> None:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n"
    writer.write(head.encode())
    await writer.drain()


async def send_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))
    await writer.drain()


async def end_stream(writer: asyncio.StreamWriter) -> None:
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def answer_json(writer: asyncio.StreamWriter, status: int, body: Any, **headers: str) -> None:
    content = orjson.dumps(body)
    lines = [f"HTTP/1.1 {status} Status", "content-type: application/json"]
    lines += [f"content-length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
    await writer.drain()


def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """One event of a Chat Completions stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: " + orjson.dumps({**chunk, "choices": [choice]}) + b"\n\n"


DONE = b"data: [DONE]\n\n"


def streaming(*pieces: bytes, end: bool = True) -> Answer:
    """A server's answer that streams these pieces; without `end` the connection then breaks."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        await begin_stream(writer)
        for piece in pieces:
            await send_chunk(writer, piece)
        if end:
            await end_stream(writer)
        else:
            writer.close()

    return answer


def refusing(status: int, body: Any, **headers: str) -> Answer:
    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        await answer_json(writer, status, body, **headers)

    return answer


def asking(base_url: str | None, *messages: Any, **more: Any) -> Context:
    return Context(
        model=more.pop("model", MODEL),
        system=more.pop("system", "Be brief."),
        messages=messages or (user_text("hello"),),
        tools=more.pop("tools", ()),
        base_url=base_url,
        **more,
    )


async def replied(gateway: ModelGateway, context: Context) -> tuple[list[Delta], Reply]:
    items = [item async for item in gateway.stream(context)]
    assert isinstance(items[-1], Reply)
    return items[:-1], items[-1]
