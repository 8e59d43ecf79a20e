"""The command as a process, and what came of it."""

import asyncio
import itertools
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

from preloaded import Preloaded

MODULE = "everturn_workers.cli"


@dataclass
class Ran:
    code: int | None
    out: str
    err: str


@dataclass
class Commands:
    """Starts `everturn` in a folder, with settings that point at the served API.

    Who waits for the end of a command has it forked from a process that has imported all: most
    of its time would be imports.
    """

    folder: Path
    environment: dict[str, str]
    preloaded: Preloaded
    outputs: Path
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def start(self, *arguments: str | bytes, **given: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", MODULE, *arguments),
            cwd=self.folder,
            env={**self.environment, **given},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def __call__(self, *arguments: str | bytes, stdin: bytes = b"", **given: str) -> Ran:
        written = self.outputs / f"{next(self._numbers)}"
        given_in, out, err = (written.with_suffix(s) for s in (".in", ".out", ".err"))
        given_in.write_bytes(stdin)
        forked = self.preloaded.spawn(
            [MODULE, *map(os.fsdecode, arguments)],
            {**self.environment, **given},
            out,
            errors=err,
            stdin=given_in,
            folder=self.folder,
        )
        try:
            async with asyncio.timeout(60):
                while not forked.started or forked.returncode is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        finally:
            if forked.started:
                forked.send_signal(signal.SIGKILL)
        return Ran(forked.returncode, out.read_text(), err.read_text())


async def ended(process: asyncio.subprocess.Process, stdin: bytes = b"") -> Ran:
    try:
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin)
    finally:
        if process.returncode is None:
            process.kill()
    return Ran(process.returncode, out.decode(), err.decode())
