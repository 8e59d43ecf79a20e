"""`everturn up`: a Temporal server, a worker and the API on one home, kept alive together."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from pydantic import SecretStr

from everturn.errors import RuntimeUnavailable, UsageError
from everturn_workers import fetch, processes, up_record
from everturn_workers.children import STOP_SECONDS, Child, Program, TemporalServer, keep
from everturn_workers.home import leave_socket_dir, prepare
from everturn_workers.listening import listening
from everturn_workers.locks import try_lock
from everturn_workers.roles import ROLES
from everturn_workers.settings import Settings
from everturn_workers.settings_secrets import file_variable
from everturn_workers.up_record import Record, RunningUp


@dataclass(frozen=True)
class Commands:
    """Command lines of the children. Each prints one line `ready ...` when it is; the API's
    is `ready <url>`."""

    # -P: or Python imports from the current folder first, which may be one that an agent writes to.
    worker: Sequence[str] = (sys.executable, "-P", "-m", "everturn_workers.cli", "worker")
    api: Sequence[str] = (sys.executable, "-P", "-m", "everturn_workers.cli", "api")
    fetch: Sequence[str] = (sys.executable, "-P", "-m", "everturn_workers.fetch")


class Up:
    """One `up`: `start` returns when all children are ready, `stop` leaves none.

    `say` hears one line for each change. Must run on the process's main thread.
    """

    def __init__(
        self,
        settings: Settings,
        say: Callable[[str], None],
        commands: Commands | None = None,
    ) -> None:
        self._settings = settings
        self._home = settings.home
        self._say = say
        self._commands = commands or Commands()
        self._lock: int | None = None
        self._children: list[Child] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._temporal_address: str | None = None
        self._api_url: str | None = None

    async def start(self) -> RunningUp:
        """Raises UsageError where the settings cannot be worked under or another `up` works on
        the home, RuntimeUnavailable where a child does not come up; then nothing is left
        running."""
        _check(self._settings)
        prepare(self._home)
        self._take_home()
        try:
            await self._end_leftovers()
            # Not earlier: what a killed `up` left may hold the port.
            if self._settings.port:
                listening(self._settings.host, self._settings.port).close()
            self._record()
            self._temporal_address = await self._start_temporal()
            self._api_url = await self._start_worker_and_api(self._temporal_address)
        except BaseException:
            await self.stop()
            raise
        self._record()
        self._keepers = [asyncio.create_task(self._keep(child)) for child in self._children]
        pids = {child.name: child.process.pid for child in self._children if child.process}
        return RunningUp(os.getpid(), self._temporal_address, self._api_url, pids)

    async def run(self) -> None:
        """Start, work until SIGTERM or SIGINT, stop. A second signal kills the children."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        asked = False

        def ask() -> None:
            nonlocal asked
            if asked:
                self._kill()
            else:
                asked = True
                self._say("Stopping; a second signal kills what still runs.")
                task.cancel()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ask)
        try:
            await self.start()
            await asyncio.gather(*self._keepers)
        except asyncio.CancelledError:
            if not asked:
                raise
        finally:
            await self.stop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def stop(self) -> None:
        """End the API and the worker, then the server they speak to, then free the home."""
        if self._lock is None:
            return
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        *rest, first = reversed(self._children) if self._children else [None]
        await asyncio.gather(*(child.stop() for child in rest if child))
        if first is not None:
            await first.stop()
        # Where a child was killed, or left in haste, its socket is still there.
        leave_socket_dir(self._settings.store_url)
        up_record.remove(self._home)
        os.close(self._lock)
        self._lock = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def _take_home(self) -> None:
        path = up_record.lock_path(self._home)
        self._lock = try_lock(path)
        if self._lock is None:
            holder = path.read_text().strip() or "unknown"
            raise UsageError(
                f"Another everturn works on the home folder {self._home} already (process"
                f" {holder}); use that one, end it, or set EVERTURN_HOME to another folder."
            )
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    async def _end_leftovers(self) -> None:
        """End the children of an `up` that was killed on this home.

        On Linux the kernel has done so already.
        """
        record = up_record.read(self._home)
        for name, child in (record.children if record else {}).items():
            if processes.lives(child):
                self._say(f"Ending the {name} that a killed `up` left (process {child.pid}).")
                await processes.kill_group(child)

    async def _start_temporal(self) -> str:
        if self._settings.temporal_address is not None:
            return self._settings.temporal_address
        binary = await self._binary()
        server = TemporalServer(binary, self._home, self._settings.temporal_namespace)
        await self._launch(server)
        self._say(f"Temporal server ready at {server.address}.")
        return server.address

    async def _start_worker_and_api(self, temporal_address: str) -> str:
        environment = child_environment(self._settings, temporal_address)
        # What a worker promises to its calls, it has the time for.
        seconds = self._settings.drain_seconds + STOP_SECONDS
        worker = Program(
            "worker", self._commands.worker, environment, self._home, stop_seconds=seconds
        )
        api = Program("api", self._commands.api, dict(environment), self._home)
        # Both start at once; each is then waited for.
        await self._launch(worker)
        await self._launch(api)
        await worker.ready()
        self._say("Worker ready.")
        url = await api.ready() or f"http://{self._settings.host}:{self._settings.port}"
        # An API that starts again is found where it was.
        api.environment["EVERTURN_PORT"] = str(urlsplit(url).port or self._settings.port)
        self._say(f"API ready at {url}.")
        return url

    async def _binary(self) -> Path:
        found = await asyncio.to_thread(fetch.find)
        if found is not None:
            return found
        # A process of its own, so that Ctrl-C ends a long build.
        log = processes.Log(self._home / "logs" / "fetch.log")
        with log.open() as output:
            process = await processes.spawn(
                self._commands.fetch, environment=os.environ, log=output
            )
        told = 0
        try:
            while process.returncode is None:
                await asyncio.sleep(0.1)
                lines = log.lines()
                for line in lines[told:]:
                    self._say(line)
                told = len(lines)
        finally:
            processes.kill(process)
            await process.wait()
        found = await asyncio.to_thread(fetch.find)
        if found is None:
            raise RuntimeUnavailable(log.tail(chars=2000))
        return found

    async def _launch(self, child: Child) -> None:
        self._children.append(child)
        await child.launch()
        self._record()

    async def _keep(self, child: Child) -> None:
        await keep(child, self._say, self._record)

    def _kill(self) -> None:
        for child in self._children:
            if child.process is not None:
                processes.kill(child.process)

    def _record(self) -> None:
        """Write who we are and whom we started, for other processes and the next `up`."""
        us = processes.identify(os.getpid())
        assert us is not None
        started = [(c.name, c.process) for c in self._children if c.process is not None]
        children = {name: processes.identify(process.pid) for name, process in started}
        living = {name: child for name, child in children.items() if child is not None}
        record = Record(us, self._temporal_address, self._api_url, living)
        up_record.write(self._home, record)


def child_environment(settings: Settings, temporal_address: str) -> dict[str, str]:
    """Our environment, with what flags and files set as variables.

    Secrets go to children this way and never on a command line, which everyone can read.
    """
    environment = dict(os.environ)
    plain = settings.model_dump(mode="json")
    for name, value in plain.items():
        told = getattr(settings, name)
        if isinstance(told, SecretStr):
            # What a file holds has been read: both would be one too many.
            environment.pop(file_variable(name), None)
            environment[f"EVERTURN_{name.upper()}"] = told.get_secret_value()
        elif value is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            environment[f"EVERTURN_{name.upper()}"] = text
    environment["EVERTURN_TEMPORAL_ADDRESS"] = temporal_address
    return environment


def _check(settings: Settings) -> None:
    """Refuse what a child would refuse only once the others run."""
    # Imported here: nothing else of `up` needs what these load.
    from everturn_workers.doors.guard import demand_key

    demand_key(settings)
    if settings.works != frozenset(ROLES):
        raise UsageError(
            f"The worker of `everturn up` works all of {', '.join(ROLES)}, and EVERTURN_ROLES says"
            f" {settings.roles}; unset it, or start the processes by themselves with 'everturn"
            " worker' and 'everturn api'."
        )
    if settings.database_url is not None:
        from everturn_activities.store.opening import database_url

        database_url(settings.store_url)
