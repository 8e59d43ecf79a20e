"""Servers at an address: reached where the operator said, with what the operator named."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from guarded import faulty
from harness import Bench, calls, says, scripted
from mcp_servers import server

from everturn.errors import ServerFailed
from everturn.hosts import Reach
from everturn.mcp import ServerConfig
from everturn.messages import ToolMessage
from everturn.session import SessionKey
from everturn_activities.mcp.manager import Manager
from everturn_activities.mcp.pool import Pool
from everturn_activities.mcp.remote import NOWHERE, checked_client
from everturn_activities.mcp.requests import ExecuteTool, GetToolSpecs, LaunchServer
from everturn_activities.vault import Vault


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@asynccontextmanager
async def everything(port: int) -> AsyncIterator[None]:
    """The reference server on a port, until the block ends."""
    process = await asyncio.create_subprocess_exec(
        *server("everything", "streamableHttp"),
        env={**os.environ, "PORT": str(port)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    break
                except OSError:
                    await asyncio.sleep(0.05)
        writer.close()
        yield
    finally:
        process.kill()
        await process.wait()


def remote(port: int, host: str = "127.0.0.1", **more: object) -> ServerConfig:
    return ServerConfig.model_validate({"url": f"http://{host}:{port}/mcp", **more})


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    made = Pool(Vault({"MY_TOKEN": "hush-hush-hush"}))
    yield made
    await made.close()


async def test_a_turn_calls_the_reference_server_at_its_address(made: Bench):
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    (made.workspace / "everturn.toml").write_text(f'[mcp.servers.far]\nurl = "{url}"\n')
    key = await made.session()
    script = scripted(calls("mcp_far_get-sum", a=2, b=3), says("done"))
    async with everything(port), made.worker(script):
        await made.send(key, "go")
        await made.until(key, "turn_finished")
        [message] = [m for m in await made.transcript(key) if isinstance(m, ToolMessage)]
        assert "The sum of 2 and 3 is 5." in message.results[0].text
        await made.runtime.servers.close()


@pytest.mark.parametrize(
    ("status", "stateful", "told"),
    [
        (503, False, "Server far answered with HTTP 503 while the call ran: it may or may not"),
        (404, False, "Hello, you."),
        (404, True, "[Server far was started anew: what it remembered of this session until"),
    ],
)
async def test_what_a_server_answers_in_place_of_a_result_is_told_as_what_it_is(
    made: Bench, status: int, stateful: bool, told: str
):
    key = await made.session()
    async with faulty(status) as far:
        settings = f'[mcp.servers.far]\nurl = "{far.url}"\nstateful = {str(stateful).lower()}\n'
        (made.workspace / "everturn.toml").write_text(settings)
        async with made.worker(scripted(calls("mcp_far_who"), calls("mcp_far_who"), says("done"))):
            await made.send(key, "go")
            await made.until(key, "turn_finished")
            messages = [m for m in await made.transcript(key) if isinstance(m, ToolMessage)]
            await made.runtime.servers.close()
    first, second = (message.results[0].text.splitlines()[1] for message in messages)
    assert first.startswith(told)
    assert second == "Hello, you."


@pytest.mark.parametrize("met_dead", [True, False])
async def test_a_server_that_was_started_again_is_connected_to_anew(pool: Pool, met_dead: bool):
    port = free_port()
    manager = Manager(pool, SessionKey("t", "s"), "/")
    add = ExecuteTool(server_name="far", tool_name="get-sum", args={"a": 2, "b": 3})
    async with everything(port):
        await manager.handle(LaunchServer(server_name="far", config=remote(port)))
        assert "is 5" in (await manager.handle(add)).text
    if met_dead:
        with pytest.raises(ServerFailed):
            await manager.handle(add)
    async with everything(port):
        assert "is 5" in (await manager.handle(add)).text


async def test_headers_have_the_values_of_the_variables_they_name(pool: Pool):
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        error = {"code": -32000, "message": "Nobody knows hush-hush-hush."}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}).encode()
        writer.write(b"HTTP/1.1 401 No\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body))
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        config = remote(port, headers={"Authorization": "Bearer ${MY_TOKEN}"})
        manager = Manager(pool, SessionKey("t", "s"), "/")
        with pytest.raises(ServerFailed) as refused:
            await manager.handle(LaunchServer(server_name="far", config=config))
    assert b"\r\nauthorization: Bearer hush-hush-hush\r\n" in heard[0].replace(
        b"Authorization", b"authorization"
    )
    assert str(refused.value).endswith("launched: Nobody knows [...].")


@pytest.mark.parametrize(
    "config",
    [
        remote(80, "localhost"),
        remote(80, "169.254.169.254", allowed_hosts=["example.com"]),
        remote(80, "2130706433", allowed_hosts=["*"]),
        remote(80, "[::ffff:127.0.0.1]", allowed_hosts=["*:*"]),
    ],
)
async def test_an_address_that_is_not_public_is_reached_only_where_it_is_listed(
    pool: Pool, config: ServerConfig
):
    manager = Manager(pool, SessionKey("t", "s"), "/")
    with pytest.raises(ServerFailed, match="There is no way to"):
        await manager.handle(LaunchServer(server_name="far", config=config))


async def test_a_redirect_to_elsewhere_is_not_followed(pool: Pool):
    reached: list[bytes] = []

    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(await reader.readline())
        writer.close()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        to = other.sockets[0].getsockname()[1]
        writer.write(
            f"HTTP/1.1 307 x\r\nLocation: http://127.0.0.1:{to}/\r\n".encode()
            + b"Content-Length: 0\r\nConnection: close\r\n\r\n"
        )
        writer.close()

    other = await asyncio.start_server(elsewhere, "127.0.0.1", 0)
    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listener, other:
        port = listener.sockets[0].getsockname()[1]
        manager = Manager(pool, SessionKey("t", "s"), "/")
        with pytest.raises(ServerFailed, match="MCP server far cannot be launched"):
            await manager.handle(LaunchServer(server_name="far", config=remote(port)))
        with pytest.raises(ServerFailed):
            await manager.handle(GetToolSpecs(server_name="far"))
    assert reached == []


async def test_what_renews_a_token_is_reached_beside_the_server_and_nothing_else():
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 x\r\nConnection: close\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listener:
        here = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        server, other = Reach.of(("127.0.0.1:1",)), Reach.of((here,))
        async with checked_client(server, {}, None, lambda: other) as client:
            assert (await client.get(f"http://{here}/")).status_code == 204
        for nowhere in (NOWHERE, Reach.of(None), Reach.of(("127.0.0.1:2",))):
            with pytest.raises(ServerFailed, match=r"There is no way to 127\.0\.0\.1"):
                async with checked_client(server, {}, None, lambda one=nowhere: one) as client:
                    await client.get(f"http://{here}/")
