"""A Redis server of the Debian package, on a free port, without anything on disk."""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BINARY = shutil.which("redis-server")

PATIENT_SECONDS = 8.0
"""How long a test waits for an answer that is to come, on a machine that stalls."""


class RedisServer:
    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port = taken.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self.start()

    def start(self) -> None:
        assert BINARY is not None
        flags = [
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        self._process = subprocess.Popen(
            [BINARY, *flags, "--dir", str(self._folder)], stdout=subprocess.DEVNULL
        )
        give_up = time.monotonic() + 10
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as asked:
                asked.sendall(b"PING\r\n")
                if asked.recv(7) == b"+PONG\r\n":
                    return
            assert self._process.poll() is None, "redis-server ended"
            assert time.monotonic() < give_up, "redis-server does not answer"
            time.sleep(0.01)

    def ask(self, command: str) -> str:
        """What the server answers to a command, in one line."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as asked:
            asked.sendall(f"{command}\r\n".encode())
            return asked.recv(4096).decode().strip()

    def pause(self) -> None:
        """Have it say nothing, as a machine that is gone."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def redis_server(folder: Path) -> Iterator[RedisServer]:
    server = RedisServer(folder)
    try:
        yield server
    finally:
        server.kill()
