"""The reference servers of MCP, from npm: installed once, and then found in the cache folder."""

import fcntl
import functools
import os
import shutil
import subprocess
from pathlib import Path

import platformdirs
import pytest

PACKAGES = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
)


@functools.cache
def _installed() -> Path | str:
    """The folder of the packages, or why there is none."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        return "MCP's reference servers need node and npm: install them (apt-get install npm)."
    folder = Path(platformdirs.user_cache_dir("everturn")) / "mcp-servers"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "installed"
        if not done.exists() or done.read_text() != " ".join(PACKAGES):
            command = [
                npm,
                "install",
                "--no-audit",
                "--no-fund",
                "--prefix",
                str(folder),
                *PACKAGES,
            ]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            if ended.returncode != 0:
                lines = ended.stderr.strip().splitlines() or ["it gave no reason"]
                return f"npm could not install MCP's reference servers: {lines[-1]}"
            done.write_text(" ".join(PACKAGES))
    return folder / "node_modules" / "@modelcontextprotocol"


def server(name: str, *arguments: str) -> list[str]:
    """The command of a reference server, such as `everything`; skips the test without npm, but
    where nothing may be skipped."""
    found = _installed()
    if isinstance(found, str):
        if os.environ.get("CI"):
            pytest.fail(found)
        pytest.skip(found)
    return ["node", str(found / f"server-{name}" / "dist" / "index.js"), *arguments]


def table(name: str, command: list[str], **more: object) -> str:
    """The server's table in `everturn.toml`."""
    lines = [
        f"[mcp.servers.{name}]",
        f"command = {_toml(command[0])}",
        f"args = {_toml(command[1:])}",
    ]
    return "\n".join([*lines, *(f"{key} = {_toml(value)}" for key, value in more.items()), ""])


def _toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case dict():
            return (
                "{" + ", ".join(f"{_toml(key)} = {_toml(one)}" for key, one in value.items()) + "}"
            )
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
