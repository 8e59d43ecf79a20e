"""A Redis server in a folder of the cluster's, with AOF and a password, on loopback."""

import asyncio
import os
import shutil
from asyncio.subprocess import Process
from pathlib import Path

from everturn.errors import RuntimeUnavailable
from everturn_workers import processes

START_SECONDS = 20.0
STOP_SECONDS = 5.0

BINARY = shutil.which("redis-server")


class Redis:
    """The server; launching waits until it answers."""

    name = "redis"

    def __init__(self, folder: Path, port: int, password: str) -> None:
        self.process: Process | None = None
        self.port = port
        self._password = password
        self._data = folder / "redis"
        self._log = processes.Log(folder / "logs" / "redis.log")

    @property
    def url(self) -> str:
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    async def launch(self) -> None:
        if BINARY is None:
            raise RuntimeUnavailable(
                "There is no redis-server on this machine; install it (apt-get install"
                " redis-server), or do without it with --without-redis."
            )
        self._data.mkdir(mode=0o700, exist_ok=True)
        with self._log.open() as output:
            self.process = await processes.spawn(
                [BINARY, str(self._configured())], environment=dict(os.environ), log=output
            )
        await self._wait_until_it_answers()

    async def ready(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def stop(self) -> None:
        if self.process is not None:
            await processes.end(self.process, STOP_SECONDS)

    def _configured(self) -> Path:
        """A file, for command lines are for everybody to read."""
        path = self._data / "redis.conf"
        path.touch(mode=0o600)
        path.write_text(
            f"bind 127.0.0.1\nport {self.port}\nrequirepass {self._password}\n"
            f'dir {self._data}\nappendonly yes\nappendfsync everysec\nsave ""\n'
            # Keys have a time to live of their own; none may go before.
            "maxmemory-policy noeviction\n"
        )
        return path

    async def _wait_until_it_answers(self) -> None:
        assert self.process is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                while self.process.returncode is None:
                    if await self._answers():
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            came = f"did not answer within {START_SECONDS:g} s"
            processes.kill(self.process)
            await self.process.wait()
        else:
            came = f"ended with code {self.process.returncode}"
        raise RuntimeUnavailable(f"Redis {came}; {self._log.path} ends with: {self._log.tail()}")

    async def _answers(self) -> bool:
        """Whether it has read its file of appended commands: until then it refuses."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        try:
            writer.write(f"AUTH {self._password}\r\nPING\r\n".encode())
            return await reader.readline() == b"+OK\r\n" and await reader.readline() == b"+PONG\r\n"
        except OSError:
            return False
        finally:
            writer.close()
