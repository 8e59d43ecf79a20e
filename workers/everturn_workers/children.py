"""Children of a supervisor: programs of ours and the Temporal server, each kept alive."""

import asyncio
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from everturn.errors import EverturnError, RuntimeUnavailable
from everturn_workers import processes
from everturn_workers.server import EmbeddedServer, start_server

READY_SECONDS = 60.0
STOP_SECONDS = 15.0
"""What a process is promised for ending by itself before it is killed."""
HEALTHY_SECONDS = 10.0
BACKOFF_SECONDS = (0.0, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0)


class Child(Protocol):
    """A process with a name. `launch` starts it, anew where it has ended, `ready` waits until it
    serves and says where."""

    name: str
    process: Process | None

    async def launch(self) -> None: ...
    async def ready(self) -> str: ...
    async def stop(self) -> None: ...


async def keep(child: Child, say: Callable[[str], None], launched: Callable[[], None]) -> None:
    """Start `child` again whenever it ends: at once, then ever more slowly."""
    failures = 0
    while True:
        assert child.process is not None
        began = time.monotonic()
        code = await child.process.wait()
        if time.monotonic() - began > HEALTHY_SECONDS:
            failures = 0
        await asyncio.sleep(BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)])
        failures += 1
        say(f"The {child.name} ended ({_told(code)}); starting it again.")
        try:
            await child.launch()
            launched()
            await child.ready()
        except EverturnError as error:
            say(str(error))
        else:
            say(f"The {child.name} is back.")


class TemporalServer:
    """The embedded Temporal server; launching it waits until it answers."""

    name = "temporal"

    def __init__(self, binary: Path, home: Path, namespace: str) -> None:
        self.process: Process | None = None
        self.address = ""
        self._binary, self._home, self._namespace = binary, home, namespace
        self._server: EmbeddedServer | None = None

    async def launch(self) -> None:
        self._server = await start_server(self._binary, self._home, self._namespace)
        self.process, self.address = self._server.process, self._server.address

    async def ready(self) -> str:
        return self.address

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()


class Program:
    """A process of ours that logs to a file and prints a line there when it is ready.

    The line begins with `word`; where it serves may stand behind. Told to end, it has
    `stop_seconds` for that.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: dict[str, str],
        home: Path,
        word: str = "ready",
        stop_seconds: float = STOP_SECONDS,
    ) -> None:
        self.name = name
        self.process: Process | None = None
        self.environment = environment
        self._command = command
        self._log = processes.Log(home / "logs" / f"{name}.log")
        self._word = word
        self._stop_seconds = stop_seconds

    async def launch(self) -> None:
        try:
            with self._log.open() as output:
                self.process = await processes.spawn(
                    self._command, environment=self.environment, log=output
                )
        except OSError as error:
            raise RuntimeUnavailable(
                f"The {self.name} cannot be started with {self._command[0]}: {error.strerror}."
            ) from None

    async def ready(self) -> str:
        """What stands behind the word. Raises RuntimeUnavailable where the process ends first."""
        assert self.process is not None
        give_up = time.monotonic() + READY_SECONDS
        while time.monotonic() < give_up:
            ended = self.process.returncode is not None
            for line in self._log.lines():
                if line.split(" ", 1)[0].strip() == self._word:
                    return line.removeprefix(self._word).strip()
            if ended:
                came = f"ended ({_told(self.process.returncode)}) before it was ready"
                break
            await asyncio.sleep(0.02)
        else:
            came = f"was not ready within {READY_SECONDS:g} s"
        raise RuntimeUnavailable(
            f"The {self.name} {came}; {self._log.path} ends with: {self._log.tail()}"
        )

    async def stop(self) -> None:
        if self.process is not None:
            await processes.end(self.process, self._stop_seconds)


def _told(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"code {code}"
