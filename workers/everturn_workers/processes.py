"""Child processes that die with us, and processes known by more than their number."""

import asyncio
import ctypes
import os
import pwd
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

LOG_BYTES_MAX = 10_000_000
LOG_TAIL_CHARS = 300
PR_SET_PDEATHSIG = 1
# Loaded here: between fork and exec nothing may be imported.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class Log:
    """The log file of a child, one older file kept behind it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._start = 0

    def open(self) -> IO[bytes]:
        """The file to append to; what is written from now on is what `tail` shows."""
        if self.path.exists() and self.path.stat().st_size > LOG_BYTES_MAX:
            self.path.replace(self.path.with_suffix(".log.1"))
        file = self.path.open("ab")
        self._start = file.tell()
        return file

    def lines(self) -> list[str]:
        """The whole lines that were written since `open`."""
        with self.path.open("rb") as file:
            file.seek(self._start)
            written = file.read(LOG_BYTES_MAX).decode(errors="replace")
        return [line for line in written.split("\n")[:-1] if line.strip()]

    def tail(self, chars: int = LOG_TAIL_CHARS) -> str:
        """The last line since `open`, cut to its end where it is long."""
        lines = self.lines()
        return lines[-1].strip()[-chars:] if lines else "nothing"


@dataclass(frozen=True)
class Identity:
    """A process: its number, which the system gives to others later, and when it started."""

    pid: int
    started: str


def identify(pid: int) -> Identity | None:
    """The living process of that number; one that ended but was not yet waited for is None."""
    if sys.platform == "linux":
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # The name stands in parentheses and may hold spaces; fields are counted behind it.
        state, *fields = stat.rpartition(")")[2].split()
        return None if state in "ZX" else Identity(pid, fields[18])
    command = ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    state, _, started = listed.stdout.strip().partition(" ")
    return Identity(pid, started.strip()) if state and "Z" not in state else None


def lives(process: Identity) -> bool:
    return identify(process.pid) == process


async def kill_group(leader: Identity) -> None:
    """Kill a process that leads its group, with the group, and wait until it is gone.

    Nothing is killed where another process has that number by now.
    """
    while lives(leader):
        try:
            os.killpg(leader.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        await asyncio.sleep(0.01)


async def spawn(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    log: IO[bytes],
    inherited: Sequence[int] = (),
    user: str | None = None,
) -> Process:
    """Start a child in a group of its own; on Linux the kernel kills it when we die.

    Must be called on the process's main thread: the kernel watches the thread that forks.
    With `user` it runs as that user, and in no group but that user's first.
    """
    parent = os.getpid()
    group = None if user is None else pwd.getpwnam(user).pw_gid

    def die_with_parent() -> None:
        if _LIBC is not None:
            _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            # We may have died before the kernel was told.
            if os.getppid() != parent:
                os._exit(1)

    return await asyncio.create_subprocess_exec(
        *command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=inherited,
        user=user,
        group=group,
        extra_groups=None if user is None else (),
        # A group of its own: Ctrl-C reaches us only, and we end children in order.
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


async def end(process: Process, seconds: float) -> None:
    """Ask a child to end, and kill its group where it has not after `seconds`."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(seconds):
                await process.wait()
        except TimeoutError:
            kill(process)
    await process.wait()


def kill(process: Process) -> None:
    """Kill a child with its group, unless it has ended."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
