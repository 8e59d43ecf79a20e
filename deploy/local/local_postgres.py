"""A PostgreSQL server in a folder of the cluster's, with a password, on loopback."""

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from pathlib import Path

from everturn.errors import RuntimeUnavailable
from everturn_workers import processes

START_SECONDS = 30.0
STOP_SECONDS = 10.0
USER = "everturn"
OUR_USER = "postgres"
"""As whom it runs where we are root: it refuses to be root itself."""
DEBIAN = Path("/usr/lib/postgresql")


def bin_folder() -> Path | None:
    """Where `postgres` and `initdb` are; Debian keeps them off PATH."""
    found = shutil.which("postgres")
    if found:
        return Path(found).resolve().parent
    versions = sorted(DEBIAN.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    return versions[-1].parent if versions else None


class Postgres:
    """The server, with the databases that `databases` names; launching waits until it answers.

    `settings` are such as a `postgresql.conf` has.
    """

    name = "postgres"

    def __init__(
        self,
        folder: Path,
        port: int,
        password: str,
        databases: Sequence[str],
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.process: Process | None = None
        self.port = port
        self._password = password
        self._databases = databases
        self._settings = settings or {}
        self._folder = folder
        # A folder of its own, with the data in it: what stands beside is not that user's.
        self._data = folder / "postgres" / "data"
        self._log = processes.Log(folder / "logs" / "postgres.log")
        self._user = OUR_USER if os.getuid() == 0 else None
        self._bin = bin_folder()

    def url(self, database: str) -> str:
        return f"postgresql://{USER}:{self._password}@127.0.0.1:{self.port}/{database}"

    async def launch(self) -> None:
        made = (self._data / "PG_VERSION").exists()
        if not made:
            await self._make()
        while True:
            with self._log.open() as output:
                self.process = await processes.spawn(
                    self._command(), environment=self.environment, log=output, user=self._user
                )
            try:
                await self._wait_until_it_answers()
            except RuntimeUnavailable:
                # The backends of one that was killed need a moment to see it.
                if "pre-existing shared memory" not in " ".join(self._log.lines()):
                    raise
                await asyncio.sleep(0.1)
            else:
                break
        if not made:
            for database in self._databases:
                await self._run("createdb", "--owner", USER, database)

    async def ready(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def stop(self) -> None:
        if self.process is None or self.process.returncode is not None:
            return
        # SIGTERM would wait for every client to leave; SIGINT ends their sessions.
        self.process.send_signal(signal.SIGINT)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.process.wait()
        except TimeoutError:
            await processes.end(self.process, 0)

    @property
    def environment(self) -> dict[str, str]:
        """Of the server, and of programs that ask it: the password is there."""
        kept = {name: os.environ[name] for name in ("PATH", "TZ", "TMPDIR") if name in os.environ}
        return {**kept, "LC_ALL": "C.UTF-8", "PGPASSWORD": self._password}

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            # Two APIs and four workers with their pools, and Temporal with its own.
            "max_connections": "200",
            **self._settings,
        }
        command = [str(self._program("postgres")), "-D", str(self._data)]
        return [*command, *(f"--{name}={value}" for name, value in settings.items())]

    def _program(self, name: str) -> Path:
        if self._bin is None:
            raise RuntimeUnavailable(
                "There is no PostgreSQL on this machine; install it (apt-get install postgresql),"
                " or keep the store in SQLite with --store sqlite."
            )
        return self._bin / name

    async def _make(self) -> None:
        around = self._data.parent
        shutil.rmtree(around, ignore_errors=True)
        around.mkdir(mode=0o700)
        given = around / "password"
        given.touch(mode=0o600)
        given.write_text(self._password)
        if self._user is not None:
            for path in (around, given):
                shutil.chown(path, self._user)
        flags = ["--username", USER, "--pwfile", str(given), "--encoding", "UTF8"]
        flags += ["--auth", "scram-sha-256", "--locale", "C.UTF-8", "--no-instructions"]
        await self._run("initdb", "-D", str(self._data), *flags)
        given.unlink()

    async def _run(self, program: str, *arguments: str) -> None:
        where = [] if program == "initdb" else ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER]
        with self._log.open() as output:
            process = await processes.spawn(
                [str(self._program(program)), *where, *arguments],
                environment=self.environment,
                log=output,
                user=self._user,
            )
        if await process.wait():
            raise RuntimeUnavailable(
                f"{program} failed; {self._log.path} ends with: {self._log.tail()}"
            )

    async def _wait_until_it_answers(self) -> None:
        assert self.process is not None
        command = [str(self._program("pg_isready")), "-h", "127.0.0.1", "-p", str(self.port)]
        try:
            async with asyncio.timeout(START_SECONDS):
                while self.process.returncode is None:
                    asked = await asyncio.create_subprocess_exec(
                        *command, "-q", stdin=asyncio.subprocess.DEVNULL
                    )
                    if await asked.wait() == 0:
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            came = f"did not answer within {START_SECONDS:g} s"
            processes.kill(self.process)
            await self.process.wait()
        else:
            came = f"ended with code {self.process.returncode}"
        raise RuntimeUnavailable(
            f"PostgreSQL {came}; {self._log.path} ends with: {self._log.tail()}"
        )
