"""The embedded Temporal server: one process on one SQLite file, tuned and closed to the web."""

import asyncio
import os
import socket
from asyncio.subprocess import Process
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from everturn.errors import RuntimeUnavailable
from everturn_workers import processes
from everturn_workers.locks import try_lock

START_SECONDS = 30.0
STOP_SECONDS = 5.0
# It looks for free ports itself, panics where another takes one of them before it does, and is
# well at its next start.
TRIES = 3

PRAGMAS = (
    # Twice the throughput of the defaults, and nothing lost in 70 kills.
    "journal_mode=WAL",
    "synchronous=FULL",
)
DYNAMIC_CONFIG = (
    # The default of 20 a second makes every dispatch wait 40 ms.
    "history.transferProcessorMaxPollRPS=1000",
    "history.timerProcessorMaxPollRPS=1000",
    "history.visibilityProcessorMaxPollRPS=1000",
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
    "system.enableActivityEagerExecution=true",
    # A run that goes on with a queued message would otherwise start a second after its
    # predecessor did.
    'history.workflowIdReuseMinimalInterval="1ms"',
    # Without these no tenant has a fair share of a queue.
    "matching.useNewMatcher=true",
    "matching.enableFairness=true",
    # A worker that was stopped still holds its polls open, and each of them takes a retry of
    # its calls and lets it time out. It loses them before its first heartbeat is missed.
    'frontend.keepAliveTime="1s"',
    'frontend.keepAliveTimeout="3s"',
    # The server's HTTP API would otherwise let any web page start and end workflows.
    'frontend.httpAllowedHosts=["disabled.invalid"]',
)
# What the server needs of our environment: no key of a model provider is among it.
ENVIRONMENT = ("HOME", "PATH", "TMPDIR", "TZ", "LANG")


class _Ended(RuntimeUnavailable):
    """The server ended as it started."""


@dataclass(frozen=True)
class EmbeddedServer:
    """A server that answers at `address` as long as `process` lives."""

    process: Process
    address: str

    async def stop(self) -> None:
        await processes.end(self.process, STOP_SECONDS)


def database(home: Path) -> Path:
    return home / "temporal.db"


def lock_path(home: Path) -> Path:
    return home / "run" / "temporal.lock"


async def start_server(
    binary: Path, home: Path, namespace: str = "default", *, seconds: float = START_SECONDS
) -> EmbeddedServer:
    """Start the server of `home`, which `prepare` has made, and wait until it answers.

    It listens where it did before, so that workers find it again. The lock on its file is
    held by the server process itself: it is free exactly when the server is gone.
    Raises RuntimeUnavailable where another server works on the file, or this one does not
    answer within `seconds`.
    """
    lock = try_lock(lock_path(home))
    if lock is None:
        raise RuntimeUnavailable(
            f"Another Temporal server works on {database(home)}; end it, or set EVERTURN_HOME"
            " to another folder."
        )
    try:
        for _ in range(TRIES - 1):
            with suppress(_Ended):
                return await _started(binary, home, namespace, seconds, lock)
        return await _started(binary, home, namespace, seconds, lock)
    finally:
        os.close(lock)


async def _started(
    binary: Path, home: Path, namespace: str, seconds: float, lock: int
) -> EmbeddedServer:
    log = processes.Log(home / "logs" / "temporal.log")
    port = _port(home / "run" / "temporal.port")
    try:
        with log.open() as output:
            process = await processes.spawn(
                _command(binary, home, namespace, port),
                environment={k: os.environ[k] for k in ENVIRONMENT if k in os.environ},
                log=output,
                inherited=[lock],
            )
    except OSError as error:
        raise RuntimeUnavailable(
            f"The Temporal server {binary} cannot be started: {error.strerror}; remove it or set"
            " EVERTURN_TEMPORAL_BINARY to one that runs here."
        ) from None
    server = EmbeddedServer(process, f"127.0.0.1:{port}")
    try:
        await _wait_until_it_answers(server, namespace, seconds, log)
    except BaseException:
        processes.kill(process)
        await process.wait()
        raise
    return server


async def answers(address: str, namespace: str, seconds: float) -> bool:
    """Whether a Temporal server at `address` answers for `namespace` within `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            client = await Client.connect(address)
            await client.workflow_service.describe_namespace(
                DescribeNamespaceRequest(namespace=namespace)
            )
    except (TimeoutError, RuntimeError, RPCError):
        return False
    return True


async def _wait_until_it_answers(
    server: EmbeddedServer, namespace: str, seconds: float, log: processes.Log
) -> None:
    try:
        async with asyncio.timeout(seconds):
            while server.process.returncode is None:
                if await answers(server.address, namespace, seconds=2):
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        failure, came = RuntimeUnavailable, f"did not answer within {seconds:g} s"
    else:
        failure, came = _Ended, f"ended with code {server.process.returncode}"
    raise failure(f"The Temporal server {came}; {log.path} ends with: {log.tail()}")


def _command(binary: Path, home: Path, namespace: str, port: int) -> list[str]:
    command = [str(binary), "server", "start-dev", "--headless", "--color", "never"]
    command += ["--disable-config-file", "--disable-config-env"]
    command += ["--ip", "127.0.0.1", "--port", str(port), "--namespace", namespace]
    command += ["--db-filename", str(database(home))]
    for pragma in PRAGMAS:
        command += ["--sqlite-pragma", pragma]
    for value in DYNAMIC_CONFIG:
        command += ["--dynamic-config-value", value]
    return command


def _port(record: Path) -> int:
    """The port of the last start where it is still free, else a free one, recorded."""
    try:
        port = int(record.read_text())
        _bind(port)
    except (OSError, ValueError, OverflowError):
        port = _bind(0)
        record.write_text(f"{port}\n")
    return port


def _bind(port: int) -> int:
    with socket.socket() as listener:
        # As the server does: connections of the last one that linger do not block the port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        return int(listener.getsockname()[1])
