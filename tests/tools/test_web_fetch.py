"""web_fetch: pages as text that a model can read."""

import asyncio
import shutil
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from everturn_activities import web
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


def test_html_that_nests_without_end_and_more_than_is_read_comes_as_text():
    assert markdown("<div>" * 3000 + "deep") == "deep"
    assert len(markdown("<p>" + "x" * (HTML_CHARACTERS_MAX + 10))) <= HTML_CHARACTERS_MAX
