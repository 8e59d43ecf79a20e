"""The topology of a cluster as plain processes of one machine, kept alive together."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import local_temporal
from local_postgres import Postgres
from local_redis import Redis
from local_state import State, made_folder
from local_temporal import ClusterTemporal

from everturn.errors import UsageError
from everturn_workers import fetch, processes, up_record
from everturn_workers.children import Child, Program, TemporalServer, keep
from everturn_workers.home import leave_socket_dir, prepare
from everturn_workers.listening import listening
from everturn_workers.locks import try_lock
from everturn_workers.up_record import Record

PORTS = (7431, 7432)
ROLES = ("turns,models", "turns,models", "tools", "tools")
EVERTURN = (sys.executable, "-P", "-m", "everturn_workers.cli")
MODEL = (sys.executable, "-P", "-m", "everturn_workers.scripted_model")


@dataclass(frozen=True)
class Topology:
    """What a cluster is made of: an API a port, of which 0 is a free one, and a worker for each of
    `roles`, which have `homes` homes in turn. `script` has a model endpoint answer from it, with
    `model_flags`. `variables` are set for APIs and workers. With `restarts`, what dies is started
    again. `program` makes a child of a name, a command, an environment, a folder and the word that
    says it is ready."""

    folder: Path
    ports: tuple[int, ...] = PORTS
    roles: tuple[str, ...] = ROLES
    homes: int = 1
    store: Literal["postgres", "sqlite"] = "postgres"
    redis: bool = True
    temporal: Literal["auto", "embedded"] = "auto"
    script: Path | None = None
    model_flags: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    restarts: bool = True
    program: Callable[[str, Sequence[str], dict[str, str], Path, str], Child] = Program

    def but(self, **changed: Any) -> "Topology":
        return replace(self, **changed)


@dataclass(frozen=True)
class Addresses:
    """Where a cluster's parts listen. `temporal_kind` says what its server is."""

    apis: tuple[str, ...]
    temporal: str
    temporal_kind: str
    store_url: str
    redis_url: str | None
    model: str | None
    home: Path


class Cluster:
    """One cluster: `start` returns when all of it is ready, `stop` ends it in order.

    `say` hears one line for each change. Must run on the process's main thread.
    """

    def __init__(self, topology: Topology, say: Callable[[str], None]) -> None:
        self.topology = topology
        self._say = say
        self._folder = made_folder(topology.folder)
        self.home = prepare(self._folder / "home")
        self._state = State(self._folder)
        self._lock: int | None = None
        self._keepers: list[asyncio.Task[None]] = []
        self._waves: list[list[Child]] = []
        """In the order in which they start: each needs those before it."""
        self.addresses: Addresses | None = None

    @property
    def children(self) -> dict[str, Child]:
        """By name, all that were started."""
        return {child.name: child for wave in self._waves for child in wave}

    async def start(self) -> Addresses:
        """Raises UsageError where the folder is in use, RuntimeUnavailable where a part does not
        come up; then nothing is left running."""
        self._take_folder()
        try:
            self.addresses = await self._start()
        except BaseException:
            await self.stop()
            raise
        self._record()
        if self.topology.restarts:
            self._keepers = [
                asyncio.create_task(keep(child, self._say, self._record))
                for child in self.children.values()
            ]
        return self.addresses

    async def run(self, started: Callable[[Addresses], None]) -> None:
        """Start, tell `started`, work until SIGTERM or SIGINT, stop. A second signal kills."""
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()

        def ask() -> None:
            if stopping.is_set():
                self.kill()
            stopping.set()
            starting.cancel()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ask)
        starting = asyncio.create_task(self.start())
        try:
            try:
                started(await starting)
            except asyncio.CancelledError:
                if not stopping.is_set():
                    raise
            await stopping.wait()
            self._say("Stopping; a second signal kills what still runs.")
        finally:
            await self.stop()

    async def stop(self) -> None:
        """End APIs and workers, then the servers that they speak to, then free the folder."""
        if self._lock is None:
            return
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for wave in reversed(self._waves):
            await asyncio.gather(*(child.stop() for child in wave))
        if self.addresses is not None:
            leave_socket_dir(self.addresses.store_url)
        up_record.remove(self.home)
        os.close(self._lock)
        self._lock = None

    def kill(self) -> None:
        """Kill all children at once."""
        for child in self.children.values():
            if child.process is not None:
                processes.kill(child.process)

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

    def _take_folder(self) -> None:
        # The lock of an `up`: commands on this home then speak to our first API.
        self._lock = try_lock(up_record.lock_path(self.home))
        if self._lock is None:
            raise UsageError(
                f"Another cluster works in {self._folder} already; use that one, end it, or name"
                " another folder with --folder."
            )

    async def _start(self) -> Addresses:
        for port in self.topology.ports:
            if port:
                listening("127.0.0.1", port).close()
        postgres, redis, model = self._postgres(), self._redis(), self._model()
        await self._launch(*(child for child in (postgres, redis, model) if child))
        temporal, kind = await self._temporal(postgres)
        await self._launch(temporal)
        store = f"sqlite:///{self.home / 'everturn.db'}"
        if postgres and self.topology.store == "postgres":
            store = postgres.url("everturn")
        variables = {
            "EVERTURN_HOME": str(self.home),
            "EVERTURN_TEMPORAL_ADDRESS": await temporal.ready(),
            "EVERTURN_DATABASE_URL": store,
            **({"EVERTURN_REDIS_URL": redis.url} if redis else {}),
            **await _of_model(model),
            **self.topology.variables,
        }
        programs = [self._worker(number, variables) for number, _ in enumerate(self.topology.roles)]
        apis = [self._api(number, variables) for number, _ in enumerate(self.topology.ports)]
        await self._launch(*programs, *apis)
        return Addresses(
            apis=tuple([await api.ready() for api in apis]),
            temporal=variables["EVERTURN_TEMPORAL_ADDRESS"],
            temporal_kind=kind,
            store_url=store,
            redis_url=redis.url if redis else None,
            model=variables.get("OPENAI_BASE_URL") if model else None,
            home=self.home,
        )

    def _postgres(self) -> Postgres | None:
        needed = self.topology.store == "postgres"
        if not needed:
            return None
        databases = ["everturn", *local_temporal.DATABASES]
        password = self._state.password("postgres")
        return Postgres(self._folder, self._state.port("postgres"), password, databases)

    def _redis(self) -> Redis | None:
        if not self.topology.redis:
            return None
        password = self._state.password("redis")
        return Redis(self._folder, self._state.port("redis"), password)

    def _model(self) -> Child | None:
        script = self.topology.script
        if script is None:
            return None
        port = str(self._state.port("model"))
        command = [*MODEL, "--script", str(script), "--port", port, *self.topology.model_flags]
        return self._program("model", command, dict(os.environ), "listening")

    async def _temporal(self, postgres: Postgres | None) -> tuple[Child, str]:
        made = local_temporal.binaries() if self.topology.temporal == "auto" else None
        if made is not None and postgres is not None:
            names = [
                *local_temporal.SERVICES,
                *(f"{n} membership" for n in local_temporal.SERVICES),
            ]
            ports = {name: self._state.port(f"temporal {name}") for name in names}
            server = ClusterTemporal(self._folder, made, postgres.url("temporal"), ports)
            return server, f"the server {local_temporal.VERSION} on PostgreSQL"
        binary = await asyncio.to_thread(fetch.fetch, self._say)
        (self.home / "run" / "temporal.port").write_text(f"{self._state.port('temporal')}\n")
        embedded = TemporalServer(binary, self.home, local_temporal.NAMESPACE)
        return embedded, "the embedded server on SQLite"

    def _worker(self, number: int, variables: dict[str, str]) -> Child:
        of_its_own = {
            "EVERTURN_ROLES": self.topology.roles[number],
            "EVERTURN_HOME": str(self._home_of(number)),
        }
        environment = {**os.environ, **variables, **of_its_own}
        return self._program(f"worker-{number + 1}", (*EVERTURN, "worker"), environment)

    def _home_of(self, number: int) -> Path:
        """As on machines of their own, but for the first home, which is the APIs' too."""
        home = number % self.topology.homes
        return prepare(self._folder / f"home-{home + 1}") if home else self.home

    def _api(self, number: int, variables: dict[str, str]) -> Child:
        name = f"api-{number + 1}"
        port = self.topology.ports[number] or self._state.port(name)
        environment = {**os.environ, **variables, "EVERTURN_PORT": str(port)}
        return self._program(name, (*EVERTURN, "api"), environment)

    def _program(
        self, name: str, command: Sequence[str], environment: dict[str, str], word: str = "ready"
    ) -> Child:
        return self.topology.program(name, command, environment, self._folder, word)

    async def _launch(self, *wave: Child) -> None:
        """Start children side by side and wait until all are ready."""
        self._waves.append(list(wave))
        # One after the other: each comes up while the next is started.
        for child in wave:
            await child.launch()
            self._record()
        for child in wave:
            self._say(f"The {child.name} is ready{await _where(child)}.")

    def _record(self) -> None:
        """Write who we are and whom we started, for commands on this home."""
        us = processes.identify(os.getpid())
        assert us is not None
        started = [(c.name, c.process) for c in self.children.values() if c.process is not None]
        children = {name: processes.identify(process.pid) for name, process in started}
        living = {name: child for name, child in children.items() if child is not None}
        temporal = self.addresses.temporal if self.addresses else None
        record = Record(us, temporal, self.addresses.apis[0] if self.addresses else None, living)
        up_record.write(self.home, record)


async def _of_model(model: Child | None) -> dict[str, str]:
    """What leads workers to the scripted endpoint, if there is one."""
    if model is None:
        return {}
    return {"OPENAI_BASE_URL": await model.ready(), "OPENAI_API_KEY": "none"}


async def _where(child: Child) -> str:
    told = await child.ready()
    return f" at {told.removeprefix('http://')}" if ":" in told else ""
