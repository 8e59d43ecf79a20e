"""The page of this machine that a browser is led back to when a person has signed in."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

from everturn.errors import ServerFailed

PATH = "/callback"
REQUEST_BYTES_MAX = 16 * 1024
READ_SECONDS = 10.0
_DONE = "You are signed in. You can close this page."
_REFUSED = "Nobody was signed in. You can close this page."


class Callback:
    """`told` shows a person where to sign in."""

    def __init__(self, address: str, told: Callable[[str], None]) -> None:
        self.address = address
        self._told = told
        self._state = ""
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def show(self, url: str) -> None:
        """Only what comes back with this address' `state` counts."""
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        self._told(url)

    async def answer(self) -> dict[str, str]:
        return await self._answer

    def heard(self, target: str) -> tuple[str, str]:
        """The answer to a request for `target`: its status, and what the page says."""
        parts = urlsplit(target)
        given = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path != PATH:
            return "404 Not Found", "There is nothing here."
        if not self._state or given.get("state") != self._state or self._answer.done():
            # Any page of any browser can ask for this one.
            return "400 Bad Request", "That belongs to no sign-in that is under way."
        if "code" in given:
            self._answer.set_result(given)
            return "200 OK", _DONE
        reason = given.get("error_description") or given.get("error") or "it gave no reason"
        self._answer.set_exception(ServerFailed(f"it was refused: {reason[:200]}"))
        return "200 OK", _REFUSED


@asynccontextmanager
async def listening(told: Callable[[str], None]) -> AsyncIterator[Callback]:
    """A callback on a free port of the loopback, until the block ends."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(READ_SECONDS):
                line = (await reader.readline()).decode("latin-1")
                while (await reader.readline()).strip():
                    pass
            method, _, rest = line.partition(" ")
            target = rest.partition(" ")[0]
            status, said = ("405 Method Not Allowed", "") if method != "GET" else heard(target)
            body = said.encode()
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
                f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\n"
                "Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=REQUEST_BYTES_MAX)
    port = server.sockets[0].getsockname()[1]
    callback = Callback(f"http://127.0.0.1:{port}{PATH}", told)
    heard = callback.heard
    async with server:
        yield callback
