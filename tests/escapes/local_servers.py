"""Servers on this machine that an escape would reach, and that count who came."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

SECRET = "canary-of-this-machine"
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class LocalServer:
    """A server; `came` are the first lines of those who connected."""

    port: int
    came: list[str] = field(default_factory=list)


async def secret(writer: asyncio.StreamWriter) -> None:
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
        + SECRET.encode()
    )


def redirects(location: str) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(
            f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()
        )

    return answer


@asynccontextmanager
async def local_server(
    answer: Answer = secret, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[LocalServer]:
    here: LocalServer
    open_now: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now.add(writer)
        try:
            line = await reader.readline()
            here.came.append(line.decode("latin-1").strip())
            while (await reader.readline()).strip():
                pass
            await answer(writer)
            await writer.drain()
        except (ConnectionError, ValueError):
            pass
        finally:
            writer.close()
            open_now.discard(writer)

    server = await asyncio.start_server(serve, host, 0, ssl=tls)
    here = LocalServer(server.sockets[0].getsockname()[1])
    try:
        yield here
    finally:
        server.close()
        for writer in list(open_now):
            writer.transport.abort()
        await server.wait_closed()
