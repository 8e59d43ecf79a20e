"""The home folder: what the first start puts there, and where its sockets go."""

import hashlib
import json
import os
import secrets
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from everturn.agents import Agent
from everturn.errors import UsageError
from everturn_workers import settings_file

FOLDERS = ("agents/default", "skills", "sessions", "logs", "run", "blobs")

CONFIG = """\
# Settings of everturn on this machine. Each is also a variable EVERTURN_<NAME>,
# which wins over this file, and some are flags, which win over both:
# `everturn config show` tells what is in force. What agents work with is set in a
# workspace's own everturn.toml.

# port = 7430
# log_level = "info"

# The agent and the model of new sessions, where the workspace does not say.
# agent = "default"
# model = "openai/gpt-5-mini"

# A Temporal server and a database file of your own instead of the embedded ones.
# temporal_address = "127.0.0.1:7233"
# database_url = "sqlite:////srv/everturn/everturn.db"
"""


def prepare(home: Path) -> Path:
    """Create what is missing of the home folder, for its owner only; returns it absolute.

    What is there already is left as it is. Raises UsageError where it cannot be made.
    """
    home = home.expanduser().absolute()
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in FOLDERS:
            (home / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        agent = Agent()
        _write_new(home / settings_file.NAME, CONFIG)
        _write_new(home / "active_session", "")
        _write_new(home / "agents" / "default" / "config.toml", _agent_config(agent))
        _write_new(home / "agents" / "default" / "agent.md", agent.prompt + "\n")
    except OSError as error:
        raise UsageError(
            f"The home folder {home} cannot be used: {error.strerror}; set EVERTURN_HOME to a"
            " folder that you can write to."
        ) from None
    return home


def home_id(home: Path) -> str:
    """The home's own id, for all processes that share it: written once, by the first of them."""
    path = home / "id"
    with suppress(FileNotFoundError):
        return path.read_text(encoding="utf-8").strip()
    part = path.with_name(f".id.{secrets.token_hex(4)}")
    part.write_text(f"{secrets.token_hex(4)}\n", encoding="utf-8")
    # As one step, and not over the id of who was quicker.
    with suppress(FileExistsError):
        os.link(part, path)
    part.unlink()
    return path.read_text(encoding="utf-8").strip()


def socket_dir(store_url: str) -> Path:
    """The folder of the sockets of all processes on one store.

    A socket's path is limited to about 100 bytes, so it does not stand in the home folder.
    Raises UsageError where someone else could have made or could read the folder.
    """
    folder = _socket_path(store_url)
    for path in (folder.parent, folder):
        path.mkdir(mode=0o700, exist_ok=True)
        if not _is_private(path):
            raise UsageError(
                f"The socket folder {path} is not a private folder of yours; remove it or set"
                " TMPDIR to another place."
            )
    return folder


def leave_socket_dir(store_url: str) -> None:
    """Remove the folder of sockets unless a living process has one there.

    Whoever opens a socket may find the folder gone since `socket_dir` made it, and asks again.
    """
    folder = _socket_path(store_url)
    with suppress(OSError):
        if not (_is_private(folder.parent) and _is_private(folder)):
            return
        for path in folder.iterdir():
            if path.is_socket() and not _is_open(path):
                path.unlink(missing_ok=True)
        # Each fails where something is left in it.
        folder.rmdir()
        folder.parent.rmdir()


def _socket_path(store_url: str) -> Path:
    ours = Path(tempfile.gettempdir()) / f"everturn-{os.getuid()}"
    return ours / hashlib.sha256(store_url.encode()).hexdigest()[:16]


def _is_private(path: Path) -> bool:
    found = path.lstat()
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return private and found.st_uid == os.getuid()


def _is_open(path: Path) -> bool:
    """Whether a process listens at the socket; a killed one leaves its file."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        return asking.connect_ex(str(path)) == 0


def _agent_config(agent: Agent) -> str:
    return (
        f"name = {json.dumps(agent.name)}\n"
        f"model = {json.dumps(agent.model)}\n"
        f"tool_role = {json.dumps(agent.tool_role)}\n"
    )


def _write_new(path: Path, text: str) -> None:
    """Write `text` whole or not at all, unless the file exists."""
    if path.exists():
        return
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def demand_no_homes_own(blobs: Path) -> None:
    """Raises UsageError where a folder that texts of the store are to be kept in is that of a home.

    A home removes from its own what no record of changed files names, the texts too. A folder
    that cannot be looked at is away, and kept in by nobody.
    """
    try:
        place = blobs.resolve()
        homes = place.name == "blobs" and all((place.parent / name).is_dir() for name in FOLDERS)
    except (OSError, RuntimeError):
        return
    if homes:
        home = place.parent
        raise UsageError(
            f"EVERTURN_BLOBS_URL names {blobs}, where the home {home} keeps what files held"
            " and removes what it does not know; name another folder."
        )
