"""Attempts of a tool to reach what is not public: each is refused, and nobody is connected to."""

import asyncio
import gzip
import hashlib
import re
import socket
import tracemalloc

import pytest
from local_servers import SECRET, local_server, redirects

from everturn_activities import web

# Any public host at any port: what refuses here is only where it leads.
ANYWHERE = ("*:*",)

OURS = re.compile("because .* not public|because .* neither a name nor|is no URL|a password in it")

HERE = [
    "http://127.0.0.1:{port}/",
    "http://localhost:{port}/",
    "http://LOCALHOST.:{port}/",
    "http://loc%61lhost:{port}/",
    "http://127.0.0.1.:{port}/",
    "http://127.1:{port}/",
    "http://2130706433:{port}/",
    "http://0x7f000001:{port}/",
    "http://0x7f.1:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://0.0.0.0:{port}/",
    "http://0:{port}/",
    "http://\u2460\u2461\u2466.\u24ea.\u24ea.\u2460:{port}/",
    "http://\uff11\uff12\uff17.0.0.1:{port}/",
    "http://[::1]:{port}/",
    "http://[::]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://[::127.0.0.1]:{port}/",
    "http://[64:ff9b::7f00:1]:{port}/",
    "http://[64:ff9b:1::7f00:1]:{port}/",
    "http://[2002:7f00:1::]:{port}/",
    "http://[2001:0:7f00:1::]:{port}/",
    "http://example.com@127.0.0.1:{port}/",
    "http://example.com\\@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}#@example.com/",
    "http://127.0.0.1:{port}\\.example.com/",
    "http:127.0.0.1:{port}/",
    "//127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\0.example.com/",
    "http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
]


@pytest.mark.parametrize("url", HERE, ids=ascii)
async def test_no_spelling_of_this_machine_is_fetched(call, url):
    async with local_server() as server:
        result = await call(
            "web_fetch", {"url": url.format(port=server.port)}, allowed_hosts=ANYWHERE
        )

    assert result.failed
    # By us, and not because there is nobody.
    assert OURS.search(result.text)
    assert server.came == []
    assert SECRET not in result.text


@pytest.mark.parametrize(
    "address",
    [
        *("10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "169.254.169.254"),
        *("168.63.129.16", "192.0.0.8", "198.18.0.1", "224.0.0.1", "255.255.255.255"),
        *("[fe80::1]", "[fe80::1%25lo]", "[fd00:ec2::254]", "[ff02::1]", "[2001:db8::1]"),
        *("[64:ff9b::a9fe:a9fe]", "[::ffff:169.254.169.254]", "[2002:a9fe:a9fe::]", "2852039166"),
    ],
)
@pytest.mark.parametrize("listed", [None, ("*",)], ids=["without-a-list", "any-host"])
async def test_no_address_that_is_not_public_is_fetched(call, address, listed):
    result = await call(
        "web_fetch", {"url": f"http://{address}/latest/meta-data/"}, allowed_hosts=listed
    )

    assert result.failed
    assert "is not public" in result.text or "neither a name nor an address" in result.text


@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1:80/", "/etc/passwd"),
        *("data:text/html,hello", "unix:///var/run/docker.sock", "javascript:1", " "),
    ],
)
async def test_only_urls_of_the_web_are_fetched(call, url):
    result = await call("web_fetch", {"url": url})

    assert result.failed
    assert "is no URL" in result.text


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://169.254.169.254/latest/meta-data/", "is not among the allowed hosts"),
        ("http://[fd00:ec2::254]/", "is not among the allowed hosts"),
        ("http://127.0.0.1:{other}/", "is not among the allowed hosts"),
        ("http://localhost:{other}/", "it leads to an address that is not public"),
        ("http://2130706433:{other}/", "is neither a name nor an address"),
        ("//127.0.0.1:{other}/", "is not among the allowed hosts"),
        ("file:///etc/passwd", "is no URL of the web"),
        ("http://user:password@localhost:{other}/", "with a user or a password in it"),
        ("/", "redirects more than 5 times"),
        ("http://[::1", "redirects to what is no URL"),
    ],
)
async def test_a_redirect_is_checked_as_the_first_address_was(call, location, reason):
    async with local_server() as other:
        answer = redirects(location.replace("{other}", str(other.port)))
        async with local_server(answer) as server:
            result = await call(
                "web_fetch",
                {"url": f"http://127.0.0.1:{server.port}/"},
                allowed_hosts=(f"127.0.0.1:{server.port}", "localhost:*"),
            )

    assert result.failed
    assert reason in result.text
    assert other.came == []
    # One that leads to itself is followed a few times, and given up.
    assert len(server.came) == (web.REDIRECTS_MAX + 1 if location == "/" else 1)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://user:password@127.0.0.1:{port}/", "with a user or a password in it"),
        ("http://127.0.0.1:{port}/" + "x" * 5000, "has more than 4096 characters"),
        ("http:///x", "is no URL of the web"),
    ],
)
async def test_a_host_that_is_allowed_is_not_asked_for_everything(call, url, reason):
    async with local_server() as server:
        listed = (f"127.0.0.1:{server.port}",)
        result = await call(
            "web_fetch", {"url": url.format(port=server.port)}, allowed_hosts=listed
        )

    assert result.failed
    assert reason in result.text
    assert server.came == []


async def test_a_name_that_leads_elsewhere_the_second_time_is_looked_up_once(call, monkeypatch):
    looked_up: list[str] = []

    def rebinding(host: str, port: int, *rest: object, **more: object) -> list:
        looked_up.append(host)
        address = "127.0.0.1" if len(looked_up) == 1 else "127.0.0.2"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    async with local_server() as server:
        listed = (f"127.0.0.1:{server.port}", f"rebind.test:{server.port}")
        result = await call(
            "web_fetch", {"url": f"http://rebind.test:{server.port}/"}, allowed_hosts=listed
        )

    assert looked_up == ["rebind.test"]
    assert not result.failed
    assert server.came == ["GET / HTTP/1.1"]


@pytest.mark.parametrize("listed", [("rebind.test:*",), ("*:*",), ("rebind.test:*", "127.0.0.1:*")])
async def test_a_name_is_refused_for_one_address_that_is_not_allowed(call, monkeypatch, listed):
    def mixed(host: str, port: int, *rest: object, **more: object) -> list:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in ("127.0.0.1", "93.184.216.34", "10.0.0.7")
        ]

    monkeypatch.setattr(socket, "getaddrinfo", mixed)
    async with local_server() as server:
        result = await call(
            "web_fetch", {"url": f"http://rebind.test:{server.port}/"}, allowed_hosts=listed
        )

    assert result.text == (
        "There is no way to rebind.test, because it leads to an address that is not public."
    )
    assert server.came == []


@pytest.mark.parametrize(
    "listed",
    [(), ("example.com",), ("*.127.0.0.1.example",), ("127.0.0.2:*",), ("10.0.0.0/8:*",)],
)
async def test_B39_a_host_that_is_not_listed_is_not_connected_to(call, listed):
    """B39: an error result, and no connection."""
    async with local_server() as server:
        result = await call(
            "web_fetch", {"url": f"http://127.0.0.1:{server.port}/"}, allowed_hosts=listed
        )

    assert result.text == (
        "There is no way to 127.0.0.1, because"
        f" 127.0.0.1:{server.port} is not among the allowed hosts."
    )
    assert server.came == []


async def test_a_page_that_unpacks_to_very_much_is_cut(call, monkeypatch):
    monkeypatch.setattr(web, "BYTES_MAX", 1 << 20)
    bomb = gzip.compress(b"0" * (16 << 20), 1)

    async def answer(writer: asyncio.StreamWriter) -> None:
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\n\r\n"
        writer.write(head.encode() + bomb)

    async with local_server(answer) as server:
        page = await web.fetch(
            f"http://127.0.0.1:{server.port}/", web.Reach.of((f"127.0.0.1:{server.port}",))
        )

    assert len(page.content) == 1 << 20
    assert not page.complete


async def test_a_page_is_unpacked_piece_by_piece():
    """What a few bytes unpack to is never in memory at once."""
    bomb = gzip.compress(b"0" * (64 << 20), 1)

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + bomb)

    async with local_server(answer) as server:
        reach = web.Reach.of((f"127.0.0.1:{server.port}",))
        tracemalloc.start()
        try:
            page = await web.fetch(f"http://127.0.0.1:{server.port}/", reach)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert not page.complete
    assert most < 4 * web.BYTES_MAX


async def test_a_packed_page_within_the_size_comes_whole(monkeypatch):
    monkeypatch.setattr(web, "BYTES_MAX", 420_000)
    text = "".join(hashlib.sha256(b"%d" % n).hexdigest() for n in range(6_250)).encode()

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(text))

    async with local_server(answer) as server:
        page = await web.fetch(
            f"http://127.0.0.1:{server.port}/", web.Reach.of((f"127.0.0.1:{server.port}",))
        )

    assert page.complete
    assert page.content == text


async def test_a_page_that_unpacks_to_nothing_for_ever_is_given_up(call, monkeypatch):
    monkeypatch.setattr(web, "BYTES_MAX", 1 << 20)
    # A packed page whose own name has no end.
    head = b"\x1f\x8b\x08\x08" + bytes(6)

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + head)
        while not writer.is_closing():
            writer.write(b"x" * 65536)
            await writer.drain()

    async with local_server(answer) as server:
        page = await web.fetch(
            f"http://127.0.0.1:{server.port}/", web.Reach.of((f"127.0.0.1:{server.port}",))
        )

    assert (page.content, page.complete) == (b"", False)


@pytest.mark.parametrize("coding", ["br", "gzip, gzip", "deflate", "zstd"])
async def test_only_one_coding_is_unpacked(call, coding):
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\n\r\nx".encode())

    async with local_server(answer) as server:
        result = await call(
            "web_fetch",
            {"url": f"http://127.0.0.1:{server.port}/"},
            allowed_hosts=(f"127.0.0.1:{server.port}",),
        )

    assert result.text == f"The page is packed as {coding}."


@pytest.mark.parametrize("drips", [b"H", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
async def test_a_page_that_drips_is_given_up(call, monkeypatch, drips):
    monkeypatch.setattr(web, "FETCH_SECONDS", 0.3)

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(drips)
        while not writer.is_closing():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with local_server(answer) as server:
        result = await call(
            "web_fetch",
            {"url": f"http://127.0.0.1:{server.port}/"},
            allowed_hosts=(f"127.0.0.1:{server.port}",),
        )

    assert result.text == "The page was not there within 0.3 s."


async def test_settings_of_proxies_are_not_followed(call, monkeypatch):
    async with local_server() as proxy, local_server() as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        result = await call(
            "web_fetch",
            {"url": f"http://127.0.0.1:{server.port}/"},
            allowed_hosts=(f"127.0.0.1:{server.port}",),
        )

    assert SECRET in result.text
    assert proxy.came == []
