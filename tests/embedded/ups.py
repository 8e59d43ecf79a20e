"""`up` as a process of its own, and waiting for what it does."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from everturn_workers.processes import Identity, identify
from everturn_workers.up_record import RunningUp, running

T = TypeVar("T")


class UpProcess:
    """An `up` with stand-ins for worker and API, on a home."""

    def __init__(self, home: Path, *ways: str, **variables: str) -> None:
        self.home = home
        self.output = home / "up.out"
        self.children: set[Identity] = set()
        script = str(Path(__file__).with_name("up_process.py"))
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, script, *ways],
                env={
                    **os.environ,
                    "EVERTURN_HOME": str(home),
                    "EVERTURN_PORT": "0",
                    **variables,
                },
                stdout=output,
                stderr=output,
            )

    def ready(self) -> RunningUp:
        def found() -> RunningUp | None:
            assert self.process.poll() is None, self.output.read_text()
            up = running(self.home)
            return up if up and up.api_url and up.pid == self.process.pid else None

        up = wait_for(found)
        children = (identify(pid) for pid in up.children.values())
        self.children |= {child for child in children if child is not None}
        return up

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=30)


def wait_for(found: Callable[[], T | None], seconds: float = 20) -> T:
    """What `found` returns once it is there."""
    give_up = time.monotonic() + seconds
    while not (result := found()):
        assert time.monotonic() < give_up, "It did not happen."
        time.sleep(0.01)
    return result
