"""Programs of a cluster that are forked from a process which has imported all they need.

A worker or an API imports for more than a second; a proof with a kill every few seconds would
spend the machine on that.
"""

import asyncio
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from preloaded import Forked, Preloaded
from systems import until

from everturn.errors import RuntimeUnavailable
from everturn_workers import processes
from everturn_workers.children import READY_SECONDS, STOP_SECONDS


class ForkedProcess:
    """A forked process as asyncio's are."""

    def __init__(self, forked: Forked) -> None:
        self._forked = forked

    @property
    def pid(self) -> int:
        return self._forked.pid

    @property
    def returncode(self) -> int | None:
        return self._forked.returncode

    def kill(self) -> None:
        self._forked.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self._forked.send_signal(signal.SIGTERM)

    async def wait(self) -> int:
        while (code := self.returncode) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return code


class ForkedProgram:
    """A program that prints a line `WORD ...` to its log once it is ready."""

    def __init__(
        self,
        preloaded: Preloaded,
        name: str,
        command: Sequence[str],
        environment: dict[str, str],
        folder: Path,
        word: str,
    ) -> None:
        self.name = name
        self.process: ForkedProcess | None = None
        self._preloaded, self._environment, self._word = preloaded, environment, word
        # `python -P -m MODULE ARGUMENTS` without its beginning.
        self._module = command[command.index("-m") + 1 :]
        self._log = processes.Log(folder / "logs" / f"{name}.log")

    async def launch(self) -> None:
        self._log.open().close()
        forked = self._preloaded.spawn(self._module, self._environment, self._log.path)
        await until(lambda: forked.started)
        self.process = ForkedProcess(forked)

    async def ready(self) -> str:
        assert self.process is not None
        async with asyncio.timeout(READY_SECONDS):
            while True:
                ended = self.process.returncode is not None
                for line in self._log.lines():
                    first, _, rest = line.partition(" ")
                    if first == self._word:
                        return rest.strip()
                if ended:
                    raise RuntimeUnavailable(f"The {self.name} ended: {self._log.tail()}")
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        if self.process is not None:
            await processes.end(self.process, STOP_SECONDS)  # type: ignore[arg-type]


def forking(preloaded: Preloaded) -> Callable[..., ForkedProgram]:
    """What makes the programs of a `Topology`."""

    def make(*given: object) -> ForkedProgram:
        return ForkedProgram(preloaded, *given)  # type: ignore[arg-type]

    return make
