"""Lends a program in the sandbox a local port that leads to our proxy outside.

This runs inside the sandbox, by whatever Python 3 is there: its text is all that goes in, so it
imports nothing of ours. It guards nothing: who may be reached is decided outside.
"""

import os
import socket
import sys
import threading


def forward(path: str, port: int) -> None:
    """Serve `127.0.0.1:port` for ever, each connection on the unix socket at `path`."""
    while True:
        near, _ = _listening.accept()
        far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            far.connect(path)
        except OSError:
            near.close()
            continue
        for one, other in ((near, far), (far, near)):
            threading.Thread(target=pump, args=(one, other), daemon=True).start()


def pump(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        one.close()
        other.close()


if __name__ == "__main__":
    where, number, *command = sys.argv[1:]
    _listening = socket.create_server(("127.0.0.1", int(number)))
    if os.fork() == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        forward(where, int(number))
    _listening.close()
    os.execvp(command[0], command)  # noqa: S606
