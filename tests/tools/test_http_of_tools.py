"""context.http: a tool's way to a server, with the key of its call and through the guard."""

import asyncio
import functools
import gzip
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "gateways"))

from model_servers import RawServer, Request, answer_json, raw_server

from everturn import ToolContext
from everturn.errors import ToolFailed
from everturn.outgoing import Http
from everturn_activities.keyed_http import keyed_http

CALL = "k" * 64


def http_to(server: RawServer) -> Http:
    host = server.url.removeprefix("http://")
    return functools.partial(keyed_http, (host,), CALL)


async def ordered(request: Request, writer: Any) -> None:
    await answer_json(writer, 201, {"order": 7}, location="/orders/7")


async def test_what_changes_something_carries_the_calls_key_and_what_reads_does_not():
    async with raw_server(ordered) as server:
        http = http_to(server)
        answer = await http("post", f"{server.url}/orders", json={"item": "tea"})
        await http("PUT", f"{server.url}/x", headers={"idempotency-key": "mine"}, content=b"{}")
        await http("GET", f"{server.url}/orders/7", headers={"X-Mine": "1"})
    post, put, get = server.requests
    assert post.headers["idempotency-key"] == put.headers["idempotency-key"] == CALL
    assert post.body == {"item": "tea"}
    assert "idempotency-key" not in get.headers
    assert get.headers["x-mine"] == "1"
    assert (answer.status, answer.json(), answer.headers["location"]) == (
        201,
        {"order": 7},
        "/orders/7",
    )


async def test_a_key_of_the_tools_own_does_not_stand_beside_the_calls():
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 No\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        mine = {"IDEMPOTENCY-key": "mine"}
        await keyed_http((host,), CALL, "DELETE", f"http://{host}/", headers=mine)
    assert heads[0].lower().count(b"idempotency-key") == 1
    assert b"mine" not in heads[0]


async def test_a_redirect_is_an_answer_and_is_not_followed():
    async def away(request: Request, writer: Any) -> None:
        await answer_json(writer, 302, {}, location="http://169.254.169.254/")

    async with raw_server(away) as server:
        answer = await http_to(server)("GET", server.url)
    assert (answer.status, len(server.requests)) == (302, 1)


async def test_packed_answers_are_unpacked():
    async def packed(request: Request, writer: Any) -> None:
        content = gzip.compress(b'{"a": 1}')
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n"
            % len(content)
        )
        writer.write(content)
        await writer.drain()

    async with raw_server(packed) as server:
        assert (await http_to(server)("GET", server.url)).json() == {"a": 1}


@pytest.mark.parametrize("allowed", [None, ("example.com",)])
async def test_only_hosts_that_the_agent_may_reach_are_asked(allowed):
    async with raw_server(ordered) as server:
        with pytest.raises(ToolFailed, match=r"There is no way to 127\.0\.0\.1"):
            await keyed_http(allowed, CALL, "POST", server.url)
    assert server.connections == 0


@pytest.mark.parametrize(
    ("method", "headers", "told"),
    [
        ("GET /", {}, "is no method"),
        ("GET", {"X": "secret\r\nY: 1"}, "The header 'X' has a name or a value that none can have"),
        ("GET", {"X Y": "1"}, "The header 'X Y' has a name"),
        ("GET", {"Host": "other"}, "The header Host is not a tool's to set"),
        ("POST", {"Transfer-Encoding": "chunked"}, "is not a tool's to set"),
    ],
)
async def test_what_could_make_another_request_of_it_is_refused(method, headers, told):
    async with raw_server(ordered) as server:
        with pytest.raises(ToolFailed) as raised:
            await http_to(server)(method, server.url, headers=headers)
    assert told in str(raised.value)
    assert "secret" not in str(raised.value)
    assert server.connections == 0


async def test_an_answer_that_is_no_json_is_told_in_words():
    async def plain(request: Request, writer: Any) -> None:
        writer.write(b"HTTP/1.1 502 Bad\r\ncontent-length: 4\r\n\r\noops")
        await writer.drain()

    async with raw_server(plain) as server:
        answer = await http_to(server)("GET", server.url)
    assert answer.text == "oops"
    with pytest.raises(ToolFailed, match=r"The answer \(HTTP 502\) is no JSON"):
        answer.json()


async def test_a_context_without_a_runtime_has_no_way_to_the_web(tmp_path: Path):
    with pytest.raises(ToolFailed, match="no way to the web"):
        await ToolContext("t", "s", tmp_path, CALL).http("GET", "https://example.com")
