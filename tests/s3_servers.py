"""A small S3 server of this process, and one that does wrong what it is told to."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

BUCKET = "everturn-blobs"


class S3Server:
    def __init__(self) -> None:
        # Imported late: most tests need none of it.
        from moto.server import ThreadedMotoServer
        from werkzeug.serving import WSGIRequestHandler

        # Else each request is told on the terminal.
        WSGIRequestHandler.log = lambda *_: None  # type: ignore[method-assign]
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        _, port = self._server.get_host_and_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        client = self.client()
        client.create_bucket(Bucket=BUCKET)
        client.close()

    def client(self) -> Any:
        import boto3

        made = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="anybody",
            aws_secret_access_key="anything",
        )
        return made

    def stop(self) -> None:
        self._server.stop()


_ERROR = "<?xml version='1.0'?><Error><Code>{}</Code><Message>{}</Message></Error>"


class _Wrong(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    how: ClassVar[str] = ""
    asked: ClassVar[list[str]] = []
    goes_on: ClassVar[threading.Event]

    def _answer(self) -> None:
        self.asked.append(self.command)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.how == "slow":
            self.goes_on.wait(10)
        if self.how == "cut":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"a part")
            self.close_connection = True
            return
        if self.how == "nonsense":
            self.wfile.write(b"220 mail.example.com\r\n\r\n")
            self.close_connection = True
            return
        status, _, code = self.how.partition(" ")
        body = _ERROR.format(code, "the key AKIA-secret is wrong").encode() if code else b"no XML"
        self.send_response(int(status) if status.isdigit() else 500)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        return


class _Keeping(_Wrong):
    """Keeps one content; `answers` are what is answered instead, by method."""

    kept: ClassVar[dict[str, bytes]]
    answers: ClassVar[dict[str, str]]

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if (how := self.answers.get(self.command)) is not None:
            status, _, code = how.partition(" ")
            self._say(int(status), _ERROR.format(code, "no").encode())
        elif self.command == "PUT":
            self.kept[self.path] = body
            self._say(200, b"")
        elif self.command == "DELETE":
            self.kept.pop(self.path, None)
            self._say(204, b"")
        else:
            self._say(200, self.kept[self.path])

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_DELETE = _answer  # noqa: N815


@contextmanager
def keeping_server(answers: dict[str, str]) -> Iterator[str]:
    handler = type("Keeping", (_Keeping,), {"kept": {}, "answers": answers})
    with _served(handler) as endpoint:
        yield endpoint


@contextmanager
def wrong_server(how: str) -> Iterator[tuple[str, list[str]]]:
    """Answers each request `how`; with the methods that it was asked by."""
    asked: list[str] = []
    goes_on = threading.Event()
    handler = type("Wrong", (_Wrong,), {"how": how, "asked": asked, "goes_on": goes_on})
    with _served(handler) as endpoint:
        try:
            yield endpoint, asked
        finally:
            goes_on.set()


@contextmanager
def _served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def in_time(began: float, seconds: float) -> bool:
    return time.monotonic() - began < seconds
