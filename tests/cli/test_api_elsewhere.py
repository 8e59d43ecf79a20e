"""Commands talk with an API elsewhere: by its address, with its key, under any path."""

import asyncio
import re
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from by_hand import Runtime, Served
from commands import Commands

from everturn.client import Client
from everturn.errors import RuntimeUnavailable, UsageError

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(handle: Handler) -> AsyncIterator[int]:
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def behind_a_prefix(port: int, asked: list[str]) -> Handler:
    """A proxy that has the API at `port` below /agents, one request a connection."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, _, rest = head.partition("\r\n")
        asked.append(first)
        length = re.search(r"content-length: (\d+)", rest.lower())
        body = await reader.readexactly(int(length[1]) if length else 0)
        onward, back = await asyncio.open_connection("127.0.0.1", port)
        first = first.replace(" /agents/", " /", 1)
        rest = re.sub(r"(?i)connection: .*\r\n", "", rest)
        back.write(f"{first}\r\nconnection: close\r\n{rest}".encode() + body)
        while piece := await onward.read(65536):
            writer.write(piece)
        for one in (writer, back):
            one.close()
            await one.wait_closed()

    return handle


def saying(answer: bytes) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    return handle


async def test_a_session_is_made_at_an_api_below_a_path(
    runtime: Runtime, served: Served, commands: Commands, tmp_path: Path
):
    asked: list[str] = []
    elsewhere = {"EVERTURN_PORT": "1", "EVERTURN_HOME": str(tmp_path / "another")}
    async with listening(behind_a_prefix(int(served.url.rpartition(":")[2]), asked)) as port:
        url = f"http://127.0.0.1:{port}/agents/"
        workspace = str(runtime.workspace)
        ran = await commands(
            *("--api-url", url, "run", "--detach", "--session", "s", "--workspace", workspace, "x"),
            **elsewhere,
        )
        assert (ran.code, ran.out) == (0, "s\n"), ran.err
        listed = await commands("sessions", "list", "--json", EVERTURN_API_URL=url, **elsewhere)
    assert '"id":"s"' in listed.out.replace(" ", "")
    assert "POST /agents/v1/sessions HTTP/1.1" in asked


async def test_a_workspace_of_an_api_elsewhere_is_named_by_its_whole_path(commands: Commands):
    for workspace in ((), ("--workspace", "here")):
        ran = await commands("--api-url", "http://127.0.0.1:1", "run", *workspace, "x")
        assert (ran.code, ran.err) == (
            2,
            "Name the workspace by its whole path where the API http://127.0.0.1:1 is, with"
            " --workspace or EVERTURN_WORKSPACE.\n",
        )


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("everturn.example.com", "this is no address"),
        ("ftp://everturn.example.com", "this is no address"),
        ("http://:80", "this is no address"),
        ("http://host:hunter2", "this is no address"),
        ("https://:hunter2@host", "a key does not belong into it"),
        ("https://host?key=hunter2", "a key does not belong into it"),
    ],
)
async def test_a_wrong_address_is_told_in_one_sentence(commands: Commands, url: str, why: str):
    ran = await commands("--api-url", url, "sessions", "list")
    assert ran.code == 2
    assert ran.err.startswith(f"Setting 'api_url' is wrong: Value error, {why}; write http://")
    assert ran.err.endswith("; mend the flag --api-url.\n")
    assert "hunter2" not in ran.err


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi",
            "is no Everturn; check the address.",
        ),
        (
            b"HTTP/1.1 308 Moved\r\nlocation: https://there.example/v1/sessions\r\n"
            b"content-length: 0\r\n\r\n",
            "leads on to https://there.example; name the address where the API is.",
        ),
    ],
)
async def test_what_is_no_everturn_is_told_of(answer: bytes, why: str):
    async with listening(saying(answer)) as port, Client(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(UsageError) as told:
            await client.sessions()
    assert str(told.value) == f"What answers at http://127.0.0.1:{port} {why}"


@pytest.fixture
def self_signed(tmp_path: Path) -> ssl.SSLContext:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    asked = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate]
    subprocess.run(["openssl", *asked.split(), *names], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context


async def test_no_key_is_sent_where_nobody_vouches_for_the_certificate(
    self_signed: ssl.SSLContext,
):
    heard: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read())
        writer.close()

    server = await asyncio.start_server(hear, "127.0.0.1", 0, ssl=self_signed)
    async with server:
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        async with Client(url, "the key") as client:
            with pytest.raises(RuntimeUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
                await client.sessions()
    assert not heard
