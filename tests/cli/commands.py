"""The command as a process, and what came of it."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Ran:
    code: int | None
    out: str
    err: str


@dataclass
class Commands:
    """Starts `everturn` in a folder, with settings that point at the served API."""

    folder: Path
    environment: dict[str, str]

    async def start(self, *arguments: str | bytes, **given: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "everturn_workers.cli", *arguments),
            cwd=self.folder,
            env={**self.environment, **given},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def __call__(self, *arguments: str | bytes, stdin: bytes = b"", **given: str) -> Ran:
        process = await self.start(*arguments, **given)
        return await ended(process, stdin)


async def ended(process: asyncio.subprocess.Process, stdin: bytes = b"") -> Ran:
    try:
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin)
    finally:
        if process.returncode is None:
            process.kill()
    return Ran(process.returncode, out.decode(), err.decode())
