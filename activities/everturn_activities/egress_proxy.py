"""The network of a sandbox: a proxy on a unix socket, which connects where tools may go."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx

from everturn.errors import ToolFailed
from everturn.hosts import Reach
from everturn_activities.egress import addresses

HEAD_BYTES_MAX = 16 * 1024
HEAD_SECONDS = 10.0
CONNECT_SECONDS = 10.0
CONNECTIONS_MAX = 64

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def egress_proxy(reach: Reach) -> AsyncIterator[Path]:
    """The proxy's socket, for the length of the block; then its connections are cut."""
    proxy = _Proxy(reach)
    with tempfile.TemporaryDirectory(prefix="everturn-") as folder:
        path = Path(folder) / "proxy"
        server = await asyncio.start_unix_server(proxy.accept, path, limit=HEAD_BYTES_MAX)
        try:
            yield path
        finally:
            server.close()
            await proxy.close()


class _Proxy:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._serving: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._serving) >= CONNECTIONS_MAX:
            writer.close()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def close(self) -> None:
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            try:
                far, first = await self._connected(head)
            except ToolFailed as error:
                writer.write(_refusal(str(error)))
                await writer.drain()
                return
            if first:
                far[1].write(first)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await _joined((reader, writer), far)
        except (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError):
            pass  # Whoever asked sees the end of the connection.
        finally:
            writer.close()

    async def _connected(self, head: bytes) -> tuple[Pair, bytes]:
        """A connection to where `head` asks for, and what is sent there first."""
        method, _, rest = head.partition(b" ")
        target = rest.partition(b" ")[0].decode("ascii", "replace")
        tunnel = method == b"CONNECT"
        try:
            url = httpx.URL(f"https://{target}" if tunnel else target)
        except httpx.InvalidURL:
            raise ToolFailed(f"{target[:200]!r} is no address of a host.") from None
        if not url.raw_host or url.userinfo or url.scheme not in ("http", "https"):
            raise ToolFailed(f"{target[:200]!r} is no address of a host.")
        if not tunnel and url.scheme == "https":
            raise ToolFailed("A page of https is reached by CONNECT.")
        host = url.raw_host.decode("ascii")
        port = url.port or (443 if tunnel else 80)
        for address in await addresses(self._reach, host, port):
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    far = await asyncio.open_connection(address, port)
                return far, b"" if tunnel else _rewritten(method, url, head)
        raise ToolFailed(f"{host} cannot be reached.")


def _rewritten(method: bytes, url: httpx.URL, head: bytes) -> bytes:
    """The head as the server expects it: of the URL's own host, and of no proxy."""
    lines = [method + b" " + url.raw_path + b" HTTP/1.1", b"Host: " + url.netloc]
    for line in head.split(b"\r\n")[1:-2]:
        name = line.partition(b":")[0].strip().lower()
        if name not in (b"host", b"connection", b"keep-alive") and not name.startswith(b"proxy-"):
            lines.append(line)
    return b"\r\n".join([*lines, b"Connection: close", b"", b""])


def _refusal(reason: str) -> bytes:
    text = f"{reason}\n".encode()
    head = f"HTTP/1.1 403 Forbidden\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    return head.encode() + text


async def _joined(near: Pair, far: Pair) -> None:
    """Pass on what each side says until both have ended."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_pumped(near[0], far[1]))
            group.create_task(_pumped(far[0], near[1]))
    except* OSError:
        pass
    finally:
        far[1].close()


async def _pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
