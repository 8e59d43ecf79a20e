"""What a local cluster keeps from start to start: its ports, its passwords, its lock."""

import json
import os
import secrets
import socket
from pathlib import Path

from everturn.errors import UsageError

PORTS = range(15_000, 32_000)
"""Below those that the kernel gives to connections, which would take the port of a server that is
away; and Temporal keeps its services' ports in 15 bits where it is on PostgreSQL."""


class State:
    """Ports and passwords by name, made when first asked for and kept in a file of its owner's."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "state.json"
        self._kept: dict[str, int | str] = {}
        if self._path.exists():
            self._kept = json.loads(self._path.read_text())

    def port(self, name: str) -> int:
        """The port of the last start, so that who knows the address finds it again; a free one
        where something else has it by now."""
        kept = int(self._kept.get(f"port of {name}", 0))
        port = kept if kept and _is_free(kept) else _free_port()
        return int(self._keep(f"port of {name}", port))

    def password(self, name: str) -> str:
        kept = self._kept.get(f"password of {name}")
        return str(kept or self._keep(f"password of {name}", secrets.token_urlsafe(24)))

    def _keep(self, name: str, value: int | str) -> int | str:
        self._kept[name] = value
        part = self._path.with_suffix(".part")
        part.touch(mode=0o600)
        part.write_text(json.dumps(self._kept, indent=1))
        part.replace(self._path)
        return value


def made_folder(folder: Path) -> Path:
    """The cluster's folder, made where it lacks; others may pass through it and see nothing, for
    PostgreSQL runs as a user of its own where we are root."""
    folder = folder.expanduser().absolute()
    try:
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        (folder / "logs").mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"The folder {folder} cannot be made: {error.strerror}; name another with --folder."
        ) from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"The folder {folder} is not yours; name another with --folder.")
    return folder


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        # As servers do: connections of the last one that linger do not block the port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    while True:
        port = secrets.choice(PORTS)
        if _is_free(port):
            return port
