"""A worker's health, for whoever looks after its process: `/healthz` and `/readyz` over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from everturn_workers.listening import listening
from everturn_workers.settings import Settings

ASK_SECONDS = 5.0
LOOK_SECONDS = 2.0
"""An answer that does not come in this time is something to wait for, too."""

WaitsFor = Callable[[], Coroutine[Any, Any, str | None]]
"""What keeps it from working, in words, or None."""


class Health:
    """`stage` is what the process waits for while it starts or ends; without one, each of `looks`
    is asked, by the names of those that answer it. `streams_wait` keeps nobody from working."""

    def __init__(self) -> None:
        self.stage: str | None = "Waits for the store."
        self.looks: dict[str, WaitsFor] = {}
        self.streams_wait: WaitsFor | None = None
        self._asked: dict[str, asyncio.Task[str | None]] = {}

    async def problem(self) -> str | None:
        """Why it takes no work now, as a sentence."""
        if self.stage is not None:
            return self.stage
        found = await asyncio.gather(*(self._looked(name) for name in self.looks))
        missing = [what for what in found if what is not None]
        return f"Waits for {' and '.join(missing)}." if missing else None

    async def degraded(self) -> dict[str, str]:
        """What watchers lack though work is taken."""
        what = None if self.streams_wait is None else await self.streams_wait()
        return {} if what is None else {"degraded": f"Streams wait for {what}."}

    async def _looked(self, name: str) -> str | None:
        asked = self._asked.get(name)
        if asked is None:
            asked = self._asked[name] = asyncio.ensure_future(self.looks[name]())
        done, _ = await asyncio.wait({asked}, timeout=LOOK_SECONDS)
        if not done:
            # The next one who asks waits for the same answer.
            return f"an answer of {name} within {LOOK_SECONDS:g} s"
        self._asked.pop(name, None)
        return asked.result()


@asynccontextmanager
async def told(health: Health, settings: Settings) -> AsyncIterator[str | None]:
    """Answer at the address of `settings` within the block, if they name one; yields its URL."""
    if settings.health_port is None:
        yield None
        return
    host = settings.health_host
    listener = listening(host, settings.health_port, "health address", "health_port")
    port = listener.getsockname()[1]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                writer.write(await _answer(await reader.readline(), health))
                await writer.drain()
        except (TimeoutError, ValueError, ConnectionError):
            # Whoever asks so is told nothing.
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, sock=listener)
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        server.close()


async def _answer(request: bytes, health: Health) -> bytes:
    path = [*request.split(b" "), b""][1].partition(b"?")[0]
    if path == b"/healthz":
        return _response(HTTPStatus.OK, {"status": "alive"})
    if path != b"/readyz":
        return _response(HTTPStatus.NOT_FOUND, _problem(404, "Ask for /healthz or /readyz."))
    sentence = await health.problem()
    if sentence is None:
        return _response(HTTPStatus.OK, {"status": "ready", **await health.degraded()})
    return _response(HTTPStatus.SERVICE_UNAVAILABLE, _problem(503, sentence))


def _problem(status: int, detail: str) -> dict[str, object]:
    title = HTTPStatus(status).phrase
    return {"type": "about:blank", "title": title, "status": status, "detail": detail}


def _response(status: HTTPStatus, body: dict[str, object]) -> bytes:
    text = json.dumps(body).encode()
    kind = "application/json" if status == HTTPStatus.OK else "application/problem+json"
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + text
