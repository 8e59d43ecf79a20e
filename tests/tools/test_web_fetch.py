"""web_fetch: pages as text that a model can read."""

import asyncio
import gzip
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from everturn import ToolFailed
from everturn.hosts import Reach
from everturn_activities import egress, web
from everturn_activities.builtin import builtins
from everturn_activities.markdown import HTML_CHARACTERS_MAX, markdown

sys.path.insert(0, str(Path(__file__).parent.parent / "escapes"))
from local_servers import Answer, local_server

PAGE = """<!doctype html><html><head><title>Tea &amp; more</title><style>p {color: red}</style>
<script>alert(1)</script></head><body><nav><a href="/home">Home</a></nav>
<h2>Green</h2><p>It is <b>good</b>, see <a href="https://example.com/x">this</a>.</p>
<ul><li>one</li><li>two</li></ul><img src="https://example.com/t.gif?secret" alt="a cup">
<pre><code>brew()</code></pre><iframe src="http://example.com"></iframe>
<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table></body></html>"""


def answers(content: bytes, kind: str = "text/html", status: str = "200 OK") -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}"
        writer.write(head.encode() + b"\r\n\r\n" + content)

    return answer


async def fetched(call, answer: Answer, path: str = "/"):
    async with local_server(answer) as server:
        url = f"http://127.0.0.1:{server.port}{path}"
        result = await call("web_fetch", {"url": url}, allowed_hosts=(f"127.0.0.1:{server.port}",))
    return result, url


async def test_B39_a_page_of_an_allowed_host_comes_as_markdown(call):
    result, url = await fetched(call, answers(PAGE.encode()))

    assert not result.failed
    assert result.text == (
        f"{url}\n\n# Tea & more\n\n[Home](/home)\n\n## Green\n\nIt is **good**, see"
        " [this](https://example.com/x).\n\n- one\n- two\n\na cup\n\n```\nbrew()\n```\n\n"
        "| a | b |\n| --- | --- |\n| 1 | 2 |"
    )


@pytest.mark.parametrize(
    ("content", "kind", "text"),
    [
        ("naïve".encode("latin-1"), "text/plain; charset=ISO-8859-1", "naïve"),
        ("naïve".encode(), "text/plain; charset=nonsense", "naïve"),
        (b"aGVsbG8=", "text/plain; charset=base64", "aGVsbG8="),
        (b'{"a": 1}', "application/problem+json", '{"a": 1}'),
        (b"plain", "", "plain"),
        ("naïve".encode("latin-1"), "text/plain; a=b; Charset='ISO-8859-1'", "naïve"),
        (b"<p>It is <b>good</b></p>", "application/xhtml+xml", "It is **good**"),
    ],
)
async def test_text_comes_as_it_is(call, content, kind, text):
    result, url = await fetched(call, answers(content, kind))

    assert result.text == f"{url}\n\n{text}"


@pytest.mark.parametrize("kind", ["image/png", "application/octet-stream", ""])
async def test_what_is_no_text_is_not_read(call, kind):
    result, _ = await fetched(call, answers(b"\x89PNG\0\0", kind))

    assert result.failed
    assert "no text; it was not read." in result.text


async def test_an_error_of_the_server_is_told_with_what_it_said(call):
    result, url = await fetched(call, answers(b"gone", "text/plain", "410 Gone"))

    assert (result.failed, result.text) == (True, f"{url} answered with status 410:\ngone")


async def test_a_page_that_is_too_long_says_that_it_was_cut(call, monkeypatch):
    monkeypatch.setattr("everturn_activities.builtin.web.BYTES_MAX", 100)
    monkeypatch.setattr(web, "BYTES_MAX", 100)

    result, url = await fetched(call, answers(b"x" * 500, "text/plain"))

    assert result.text == f"{url}\n\n{'x' * 100}\n[Only the first 100 bytes were read.]"


async def test_what_an_error_page_says_is_shortened(call):
    result, url = await fetched(call, answers(b"x" * 5000, "text/plain", "500 Oops"))

    assert result.text == f"{url} answered with status 500:\n{'x' * 2000}"


def packed(coding: str, content: bytes, then: bytes = b"", stays: bool = False) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: {coding}\r\n"
        writer.write(head.encode() + b"\r\n" + content + then)
        await writer.drain()
        if stays:
            await writer.wait_closed()

    return answer


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (packed("gzip", gzip.compress(b"tea")), "tea"),
        (packed(" GZIP ", gzip.compress(b"tea" * 9_000)), "tea" * 9_000),
        (packed("identity", b"tea"), "tea"),
        # What follows the end of a packed page is neither read nor waited for.
        (packed("gzip", gzip.compress(b"tea"), b"coffee", stays=True), "tea"),
    ],
)
async def test_a_page_comes_as_it_was_before_it_was_packed(call, answer, text):
    result, url = await fetched(call, answer)

    assert result.text == f"{url}\n\n{text}"


async def test_what_cannot_be_unpacked_is_told(call):
    result, _ = await fetched(call, packed("gzip", b"no gzip at all"))

    assert (result.failed, result.text) == (True, "The page cannot be unpacked.")


async def test_a_redirect_that_leads_nowhere_is_a_page_itself(call):
    result, url = await fetched(call, answers(b"Look elsewhere.", "text/plain", "302 Found"))

    assert result.text == f"{url}\n\nLook elsewhere."


async def test_the_next_address_is_tried_where_nobody_is_at_the_first(call, monkeypatch):
    def two(host: str, port: int, *rest: object, **more: object) -> list:
        addresses = ("127.0.0.2", "127.0.0.1")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", two)
    async with local_server(answers(b"tea", "text/plain")) as server:
        # Names may be written large, and with the dot of the root.
        url = f"http://TEA.test.:{server.port}/"
        listed = ("tea.test:*", "127.0.0.0/8:*")
        result = await call("web_fetch", {"url": url}, allowed_hosts=listed)

    assert result.text.endswith("\n\ntea")
    assert len(server.came) == 1


async def test_nobody_who_answers_in_time_is_told_in_a_sentence(call, monkeypatch):
    monkeypatch.setattr(web, "CONNECT_SECONDS", 0.2)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        place = deaf.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(place)
        result = await call(
            "web_fetch",
            {"url": f"http://127.0.0.1:{place[1]}/"},
            allowed_hosts=(f"127.0.0.1:{place[1]}",),
        )
        for one in waiting:
            one.close()

    assert (result.failed, result.text) == (True, "Nobody answers there in time.")


async def test_a_name_that_is_looked_up_for_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(egress, "LOOKUP_SECONDS", 0.1)
    known = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *asked, **more: known.wait(30) and [])
    try:
        with pytest.raises(ToolFailed, match=r"no way to slow\.test: no address is known of it"):
            await egress.addresses(Reach.of(None), "slow.test", 80)
    finally:
        known.set()


def test_what_strangers_write_is_shown_as_data():
    """Their tools say so; turns frame what those answer."""
    assert {"web_fetch", "read_more"} <= {n for n, tool in builtins().items() if tool.untrusted}


async def test_nobody_there_is_told_in_a_sentence(call):
    async with local_server() as server:
        port = server.port
    result = await call(
        "web_fetch", {"url": f"http://127.0.0.1:{port}/"}, allowed_hosts=(f"127.0.0.1:{port}",)
    )

    assert result.failed
    assert result.text.startswith("The page cannot be had: ")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl makes a certificate")
@pytest.mark.parametrize("name", ["tea.test", "other.test"])
async def test_a_certificate_must_be_the_hosts_whichever_address_was_checked(
    call, tmp_path, monkeypatch, name
):
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    made += ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}", "-days", "1"]
    files = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "certificate")]
    subprocess.run(["openssl", *made, *files], check=True, capture_output=True)  # noqa: ASYNC221
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    trusting = ssl.create_default_context(cafile=tmp_path / "certificate")
    monkeypatch.setattr(web, "_tls", lambda: trusting)
    here = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *asked, **more: here)

    async with local_server(answers(b"tea", "text/plain"), tls=serving) as server:
        result = await call(
            "web_fetch",
            {"url": f"https://tea.test:{server.port}/"},
            allowed_hosts=("tea.test:*", "127.0.0.1:*"),
        )

    wrong = "certificate is not valid for 'tea.test'"
    assert result.failed == (name != "tea.test")
    assert ("tea" if name == "tea.test" else wrong) in result.text
    assert bool(server.came) == (name == "tea.test")


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<title>Tea</title><h1>All of tea</h1><p>Hot.</p>", "# All of tea\n\nHot."),
        ("<title>Tea</title><p>Hot.</p>", "# Tea\n\nHot."),
        ("<p>one</p><br><br><br><div> </div><p>two</p>", "one\n\ntwo"),
        ("<p>one</p><script>1</script><style>2</style><noscript>3</noscript>", "one"),
        ("<template>4</template><iframe>5</iframe><p>one</p>", "one"),
        ("<svg><text>6</text></svg><canvas>7</canvas><p>one</p>", "one"),
        ("<!-- 8 --><p>one</p><img src='http://x/9'>", "one"),
    ],
)
def test_a_page_is_what_its_reader_sees(html, text):
    assert markdown(html) == text


def test_html_that_nests_without_end_and_more_than_is_read_comes_as_text():
    assert markdown("<div>" * 3000 + "deep") == "deep"
    assert len(markdown("<p>" + "x" * (HTML_CHARACTERS_MAX + 10))) <= HTML_CHARACTERS_MAX
