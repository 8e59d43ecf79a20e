"""The proxy of a sandbox: what it passes on, and what it refuses, without any sandbox."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from everturn.hosts import Reach
from everturn_activities import egress_proxy

sys.path.insert(0, str(Path(__file__).parent.parent / "escapes"))
from local_servers import local_server

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Echo:
    """A server that keeps the heads it was sent, and sends back what follows them."""

    port: int = 0
    heads: list[str] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            while data := await reader.read(1000):
                writer.write(data)
            writer.write(b"[end]")
            await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()
            self.gone.set()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    made = Echo()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()
    await server.wait_closed()


@asynccontextmanager
async def proxied(*listed: str) -> AsyncIterator[Path]:
    async with asyncio.timeout(20), egress_proxy.egress_proxy(Reach.of(listed)) as path:
        yield path


async def asked(path: Path, head: str) -> str:
    """All that comes back for `head`, after which nothing more is sent."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(head.encode())
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer.decode()


async def test_a_request_is_passed_on_as_its_own_host_expects_it(echo: Echo) -> None:
    """One connection asks one host once: a second request would be of another host's choosing."""
    async with proxied(f"127.0.0.1:{echo.port}") as path:
        answer = await asked(
            path,
            f"POST http://127.0.0.1:{echo.port}/a?b=c HTTP/1.1\r\nHost: other.example\r\n"
            "X-Mine: 1\r\nProxy-Authorization: Basic x\r\nConnection: keep-alive\r\n"
            "Keep-Alive: timeout=9\r\n\r\nbody",
        )

    assert echo.heads == [
        f"POST /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:{echo.port}\r\nX-Mine: 1\r\n"
        "Connection: close\r\n\r\n"
    ]
    assert answer == "body[end]"


async def test_a_tunnel_passes_on_what_each_side_says_until_both_have_ended(echo: Echo) -> None:
    async with proxied(f"127.0.0.1:{echo.port}") as path:
        answer = await asked(
            path, f"CONNECT 127.0.0.1:{echo.port} HTTP/1.1\r\n\r\nhello\r\n\r\n" + "x" * 200_000
        )

    assert echo.heads == ["hello\r\n\r\n"]
    assert answer == "HTTP/1.1 200 Connection established\r\n\r\n" + "x" * 200_000 + "[end]"


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("GET https://127.0.0.1:{port}/ HTTP/1.1", "A page of https is reached by CONNECT."),
        ("GET http://me@127.0.0.1:{port}/ HTTP/1.1", "is no address of a host."),
        ("CONNECT me:secret@127.0.0.1:{port} HTTP/1.1", "is no address of a host."),
        ("GET ftp://127.0.0.1:{port}/ HTTP/1.1", "is no address of a host."),
        ("GET /path HTTP/1.1", "is no address of a host."),
        ("CONNECT 127.0.0.1:x HTTP/1.1", "is no address of a host."),
        ("CONNECT :{port} HTTP/1.1", "is no address of a host."),
        ("GET http://127.0.0.2:{port}/ HTTP/1.1", "127.0.0.2:{port} is not among the allowed"),
        ("CONNECT 127.0.0.1 HTTP/1.1", "127.0.0.1:443 is not among the allowed hosts"),
        ("GET http://127.0.0.1/ HTTP/1.1", "127.0.0.1:80 is not among the allowed hosts"),
        ("nonsense", "is no address of a host."),
    ],
)
async def test_what_is_refused_is_answered_with_the_reason(head: str, reason: str) -> None:
    async with local_server() as server, proxied(f"127.0.0.1:{server.port}") as path:
        answer = await asked(path, head.format(port=server.port) + "\r\n\r\n")

    told, _, text = answer.partition("\r\n\r\n")
    assert told.startswith("HTTP/1.1 403 Forbidden\r\n")
    assert f"Content-Length: {len(text)}\r\n" in told
    assert reason.format(port=server.port) in text
    assert server.came == []


async def test_the_next_address_is_tried_where_nobody_is_at_the_first(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(*asked: object, **more: object) -> list[object]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, echo.port))
            for address in ("127.0.0.2", "127.0.0.1")
        ]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    async with proxied("echo.test:*", "127.0.0.1:*", "127.0.0.2:*") as path:
        answer = await asked(path, f"GET http://echo.test:{echo.port}/ HTTP/1.1\r\n\r\n")
    assert answer == "[end]"


async def test_nobody_there_is_told() -> None:
    async with local_server() as server:
        port = server.port
    async with proxied("127.0.0.1:*") as path:
        answer = await asked(path, f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n")
    assert answer.endswith("\r\n\r\n127.0.0.1 cannot be reached.\n")


async def test_who_says_nothing_or_too_much_is_not_listened_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(egress_proxy, "HEAD_SECONDS", 0.2)
    async with proxied() as path:
        silent, writer = await asyncio.open_unix_connection(path)
        assert await silent.read() == b""
        writer.close()
        talking, writer = await asyncio.open_unix_connection(path)
        writer.write(b"GET http://127.0.0.1/ HTTP/1.1\r\nX: " + b"x" * 40_000 + b"\r\n\r\n")
        assert await talking.read() == b""
        writer.close()


async def test_so_many_connections_are_open_at_once_and_no_more(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress_proxy, "CONNECTIONS_MAX", 2)
    monkeypatch.setattr(egress_proxy, "HEAD_SECONDS", 60)
    head = f"GET http://127.0.0.1:{echo.port}/ HTTP/1.1\r\n\r\n"
    async with proxied(f"127.0.0.1:{echo.port}") as path:
        idle: list[Pair] = [await asyncio.open_unix_connection(path) for _ in range(2)]
        refused, writer = await asyncio.open_unix_connection(path)
        assert await refused.read() == b""
        writer.close()
        # A place that is given up is another's.
        for reader, gone in idle:
            gone.write_eof()
            assert await reader.read() == b""
            gone.close()
        assert await asked(path, head) == "[end]"


async def test_connections_end_with_the_command(echo: Echo) -> None:
    async with proxied(f"127.0.0.1:{echo.port}") as path:
        near, writer = await asyncio.open_unix_connection(path)
        writer.write(f"CONNECT 127.0.0.1:{echo.port} HTTP/1.1\r\n\r\nhello\r\n\r\n".encode())
        await near.readuntil(b"\r\n\r\n")
    assert not path.exists()
    async with asyncio.timeout(5):
        assert await near.read() == b""
        await echo.gone.wait()
    writer.close()
