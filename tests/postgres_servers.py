"""A PostgreSQL server of the Debian package, on a free port, and databases in it for tests."""

import asyncio
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
from sqlalchemy.engine import make_url

from everturn_activities.store import schema
from everturn_activities.store.postgres import PostgresDatabase

NO_POSTGRES = "There is no PostgreSQL: the store on it is NOT tested; install postgresql."
USER = "everturn"
EMPTIED = "emptied"

# Nothing of a test has to outlive the machine.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "autovacuum": "off",
    "max_wal_senders": "0",
    "wal_level": "minimal",
    "shared_buffers": "32MB",
    "max_connections": "200",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
}


def _binaries() -> Path | None:
    """Where the newest PostgreSQL's programs are; Debian keeps them off PATH."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=_version)
    if versions:
        return versions[-1].parent
    found = shutil.which("postgres")
    return Path(found).parent if found else None


def _version(binary: Path) -> float:
    with suppress(ValueError):
        return float(binary.parent.parent.name)
    return 0.0


BINARIES = _binaries()


class PostgresServer:
    """Up until it is told otherwise; its data outlive `stop` and `kill`."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        assert BINARIES is not None
        self._data = folder / "data"
        self._as = _account()
        if self._as is not None:
            shutil.chown(folder, self._as, self._as)
        if port is None:
            with socket.create_server(("127.0.0.1", 0)) as taken:
                port = taken.getsockname()[1]
        self.port = port
        self._numbers = itertools.count()
        self._has_schema = False
        self._run(
            "initdb", "-D", str(self._data), "-U", USER, "-A", "trust", "-E", "UTF8",
            "--locale=C", "--no-sync", "--no-instructions",
        )  # fmt: skip
        self.start()

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str, port: int | None = None) -> str:
        return f"postgresql://{USER}@127.0.0.1:{port or self.port}/{database}"

    def start(self) -> None:
        assert BINARIES is not None
        flags = [flag for name, value in SETTINGS.items() for flag in ("-c", f"{name}={value}")]
        log = (self._data.parent / "log").open("ab")
        self._process = subprocess.Popen(
            [str(BINARIES / "postgres"), "-D", str(self._data), "-p", str(self.port), *flags],
            stdout=log,
            stderr=log,
            cwd="/",
            user=self._as,
        )
        log.close()
        give_up = time.monotonic() + 30
        while not self._answers():
            assert self._process.poll() is None, (self._data.parent / "log").read_text()
            assert time.monotonic() < give_up, "PostgreSQL does not answer"
            time.sleep(0.02)

    def _answers(self) -> bool:
        """Whether it takes connections: it listens before it does."""
        assert BINARIES is not None
        asked = [str(BINARIES / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(asked, check=False).returncode == 0

    def stop(self) -> None:
        """At once, but as somebody who means it: connections are ended, nothing is lost."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait()

    def kill(self) -> None:
        """As a machine that dies; its children see that their parent is gone."""
        self._process.kill()
        self._process.wait()
        # Whatever is left holds the data folder's lock, and the port.
        with suppress(FileNotFoundError):
            (self._data / "postmaster.pid").unlink()

    def quit(self) -> None:
        """For good, with all connections, in the quickest way."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """With all its processes stopped: what is sent to it is taken, and nothing is said."""
        # First the one that makes others.
        stopped = [self._process.pid]
        os.kill(stopped[0], signal.SIGSTOP)
        try:
            for process in _children(stopped[0]):
                stopped.append(process)
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGSTOP)
            yield
        finally:
            for process in stopped:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)

    def emptied(self) -> str:
        """The URL of a database with the schema and nothing else in it, until this is asked again:
        to empty one takes a tenth of the time of making one."""
        _apart(self._empty())
        return self.url_of(EMPTIED)

    async def _empty(self) -> None:
        if not self._has_schema:
            await self._create(EMPTIED)
            database = PostgresDatabase(make_url(self.url_of(EMPTIED)), lambda told: None)
            await database.open()
            await database.close()
            self._has_schema = True
        connection = await asyncpg.connect(self.url_of(EMPTIED))
        try:
            await connection.execute(_EMPTY)
        finally:
            await connection.close()

    def made(self) -> str:
        """The URL of a database that has nothing in it."""
        name = f"made_{next(self._numbers)}"
        _apart(self._create(name))
        return self.url_of(name)

    async def _create(self, name: str) -> None:
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(f"CREATE DATABASE {name}")
        finally:
            await connection.close()

    def _run(self, program: str, *arguments: str) -> None:
        assert BINARIES is not None
        done = subprocess.run(
            [str(BINARIES / program), *arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
            user=self._as,
        )
        assert done.returncode == 0, done.stderr


_NUMBERED = [
    (table.name, column.name)
    for table in schema.metadata.sorted_tables
    if (column := table.autoincrement_column) is not None
]
_EMPTY = ";".join(
    [f'DELETE FROM "{table.name}"' for table in schema.metadata.sorted_tables]
    + [f"SELECT setval('{table}_{name}_seq', 1, false)" for table, name in _NUMBERED]
)


def _children(of: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # One that has ended meanwhile has no such file.
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == of:
                found.append(int(stat.parent.name))
    return found


def _apart(work: Coroutine[Any, Any, None]) -> None:
    """Do `work` in a loop of its own: a fixture may be made within another's."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


def _account() -> str | None:
    """Whom it runs as: it refuses to be root's."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise AssertionError("There is neither a user postgres nor a user nobody.")


def _quick_place() -> str | None:
    """Memory, where the system offers it as a folder."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    folder = Path(tempfile.mkdtemp(prefix="everturn-postgres-", dir=_quick_place()))
    try:
        server = PostgresServer(folder)
        try:
            yield server
        finally:
            server.quit()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
