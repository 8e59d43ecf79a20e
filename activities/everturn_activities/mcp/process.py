"""The process of a server on this machine: its lines, its last words, and its end."""

import asyncio
import os
import shutil
import signal
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from everturn.context.untrusted import neutral
from everturn.errors import ServerFailed
from everturn_activities.sandbox import probe

LINE_BYTES_MAX = 16 << 20
"""A longer message ends the server: it would be held in the worker's memory."""
LEAVE_SECONDS = 0.5
"""How long a server may take to leave once its stdin is closed."""

_KEPT_VARIABLES = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "TZ")
_WORDS_BYTES = 2_000
_MASK = "[...]"


class ServerProcess:
    """A program that is talked to by lines. `secrets` never stand in what is told of it."""

    def __init__(self, process: asyncio.subprocess.Process, secrets: Sequence[str]) -> None:
        self._process = process
        self._secrets = [secret for secret in secrets if secret]
        self._words: deque[bytes] = deque(maxlen=20)
        self._listening = asyncio.create_task(self._listen())
        self._stopping = False
        self._silent = False

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        working_dir: Path,
        values: Mapping[str, str],
        hidden: Path | None = None,
    ) -> "ServerProcess":
        """Start `command` with `values` in its environment, and nothing of ours.

        `hidden` is a folder that it does not see. Raises ServerFailed where it cannot be started.
        """
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        environment = {**kept, **values}
        if shutil.which(command[0], path=environment.get("PATH")) is None:
            raise ServerFailed(f"there is no program {command[0]!r} on PATH")
        try:
            process = await asyncio.create_subprocess_exec(
                *_contained(hidden),
                *command,
                cwd=working_dir,
                env=environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=LINE_BYTES_MAX,
                start_new_session=True,
            )
        except OSError as error:
            raise ServerFailed(f"it cannot be started: {error.strerror}") from None
        return cls(process, list(values.values()))

    @property
    def running(self) -> bool:
        return self._process.returncode is None and not (self._stopping or self._silent)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def lines(self) -> AsyncIterator[bytes]:
        """What it writes to stdout, until it has ended, or has written what is no line."""
        assert self._process.stdout is not None
        with suppress(ValueError, ConnectionError):
            while line := await self._process.stdout.readline():
                yield line
        self._silent = True

    async def send(self, line: bytes) -> None:
        """Raises OSError once nobody reads it any more."""
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        await self._process.stdin.drain()

    async def stop(self) -> None:
        """Let it leave, else end it with all that it has started."""
        self._stopping = True
        if self._process.stdin is not None:
            self._process.stdin.close()
        waiting = asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait({waiting}, timeout=LEAVE_SECONDS)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await asyncio.wait({waiting}, timeout=5)
            self._listening.cancel()

    def last_words(self) -> str:
        """The last line that it wrote to stderr, fit to be shown; empty where there is none."""
        text = b"".join(self._words).decode("utf-8", "replace").strip()
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        lines = text.splitlines()
        return neutral(lines[-1].strip())[:300] if lines else ""

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while piece := await self._process.stderr.read(_WORDS_BYTES):
            self._words.append(piece)


def _contained(hidden: Path | None) -> list[str]:
    """What runs the program so that it ends with this process, however that ends, with all that
    it has started, and sees no other process; nothing where there is no sandbox."""
    if not probe().available:
        return []
    arguments = ["bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent"]
    arguments += ["--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--cap-drop", "ALL"]
    if hidden is not None and hidden.is_dir():
        # Where the store lies, and what wakes our processes.
        arguments += ["--tmpfs", str(hidden)]
    return [*arguments, "--"]
