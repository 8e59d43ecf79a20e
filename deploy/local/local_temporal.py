"""The Temporal server on PostgreSQL, as clusters run it, where its binaries are in our cache.

Go builds both (`make temporal-cluster`); where they lack, the embedded server stands in.
"""

import asyncio
import json
import os
import shutil
import tempfile
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from everturn.errors import RuntimeUnavailable
from everturn_workers import processes
from everturn_workers.fetch import cache_folder
from everturn_workers.server import DYNAMIC_CONFIG, answers

VERSION = "v1.29.1"
PACKAGES = {
    "temporal-server": f"go.temporal.io/server/cmd/server@{VERSION}",
    "temporal-sql-tool": f"go.temporal.io/server/cmd/tools/sql@{VERSION}",
}
"""What Go builds, by what it is called in our cache."""
START_SECONDS = 60.0
STOP_SECONDS = 15.0
NAMESPACE = "default"
RETENTION_SECONDS = 72 * 3600
SHARDS = 4
"""Of histories; it cannot be changed later. Few, for one machine."""
DATABASES = {
    "temporal": "postgresql/v12/temporal",
    "temporal_visibility": "postgresql/v12/visibility",
}
SERVICES = ("frontend", "history", "matching", "worker")


@dataclass(frozen=True)
class Binaries:
    server: Path
    schema_tool: Path


def binaries() -> Binaries | None:
    """Both from our cache, or None."""
    found = Binaries(*(cache_folder() / name for name in PACKAGES))
    there = all(os.access(path, os.X_OK) for path in (found.server, found.schema_tool))
    return found if there else None


async def build(say: Callable[[str], None]) -> None:
    """Have Go build both into our cache; raises RuntimeUnavailable where it cannot."""
    go = shutil.which("go")
    if go is None:
        raise RuntimeUnavailable(
            "The Temporal server of a cluster is built with Go 1.24+ (go.dev/dl), which is not on"
            " PATH; the embedded server stands in without it."
        )
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=folder) as made:
        for name, package in PACKAGES.items():
            say(f"Building {package} (about 5 minutes on two cores) ...")
            process = await asyncio.create_subprocess_exec(
                *(go, "install", package), env={**os.environ, "GOBIN": made, "CGO_ENABLED": "0"}
            )
            if await process.wait():
                raise RuntimeUnavailable(f"Go could not build {package}; it said why above.")
            built = Path(made) / package.partition("@")[0].rpartition("/")[2]
            built.replace(folder / name)


class ClusterTemporal:
    """The server with its four services in one process; launching waits until it answers.

    `ports` are those of its services, then those of their membership, in the order of SERVICES.
    """

    name = "temporal"

    def __init__(self, folder: Path, made: Binaries, store_url: str, ports: dict[str, int]) -> None:
        self.process: Process | None = None
        self.address = f"127.0.0.1:{ports['frontend']}"
        self._folder = folder / "temporal"
        self._binaries = made
        self._store = urlsplit(store_url)
        self._ports = ports
        self._log = processes.Log(folder / "logs" / "temporal.log")

    async def launch(self) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        done = self._folder / "schema"
        if not done.exists():
            for database, schema in DATABASES.items():
                await self._run_tool(database, "setup-schema", "-v", "0.0")
                await self._run_tool(database, "update-schema", "--schema-name", schema)
            done.touch()
        self._configure()
        with self._log.open() as output:
            self.process = await processes.spawn(
                [
                    str(self._binaries.server),
                    "--root",
                    str(self._folder),
                    "--config",
                    ".",
                    "--env",
                    "local",
                    "start",
                ],
                environment={k: os.environ[k] for k in ("HOME", "PATH", "TZ") if k in os.environ},
                log=output,
            )
        await self._wait_until_it_answers()

    async def ready(self) -> str:
        return self.address

    async def stop(self) -> None:
        if self.process is not None:
            await processes.end(self.process, STOP_SECONDS)

    async def _run_tool(self, database: str, *arguments: str) -> None:
        command = [str(self._binaries.schema_tool), "--plugin", "postgres12"]
        command += ["--endpoint", "127.0.0.1", "--port", str(self._store.port)]
        command += ["--user", str(self._store.username), "--database", database, *arguments]
        environment = {**os.environ, "SQL_PASSWORD": self._store.password or ""}
        with self._log.open() as output:
            process = await processes.spawn(command, environment=environment, log=output)
        if await process.wait():
            raise RuntimeUnavailable(
                f"Temporal's schema cannot be made; {self._log.path} ends with: {self._log.tail()}"
            )

    def _configure(self) -> None:
        """Its two files; JSON is YAML, too."""
        dynamic: dict[str, Any] = {}
        for line in DYNAMIC_CONFIG:
            name, _, value = line.partition("=")
            dynamic[name] = [{"value": json.loads(value)}]
        kept = self._folder / "dynamic.yaml"
        for path, content in ((kept, dynamic), (self._folder / "local.yaml", self._config(kept))):
            path.touch(mode=0o600)
            path.write_text(json.dumps(content, indent=1))

    def _config(self, dynamic: Path) -> dict[str, Any]:
        services = {
            name: {
                "rpc": {
                    "grpcPort": self._ports[name],
                    "membershipPort": self._ports[f"{name} membership"],
                    "bindOnLocalHost": True,
                }
            }
            for name in SERVICES
        }
        cluster = {"enabled": True, "initialFailoverVersion": 1, "rpcName": "frontend"}
        return {
            "log": {"stdout": True, "level": "warn"},
            "persistence": {
                "defaultStore": "temporal",
                "visibilityStore": "temporal_visibility",
                "numHistoryShards": SHARDS,
                "datastores": {name: {"sql": self._database(name)} for name in DATABASES},
            },
            "global": {"membership": {"maxJoinDuration": "30s", "broadcastAddress": "127.0.0.1"}},
            "services": services,
            "clusterMetadata": {
                "enableGlobalNamespace": False,
                "failoverVersionIncrement": 10,
                "masterClusterName": "active",
                "currentClusterName": "active",
                "clusterInformation": {"active": {**cluster, "rpcAddress": self.address}},
            },
            "dcRedirectionPolicy": {"policy": "noop"},
            "dynamicConfigClient": {"filepath": str(dynamic), "pollInterval": "60s"},
        }

    def _database(self, name: str) -> dict[str, Any]:
        return {
            "pluginName": "postgres12",
            "databaseName": name,
            "connectAddr": f"127.0.0.1:{self._store.port}",
            "connectProtocol": "tcp",
            "user": self._store.username,
            "password": self._store.password,
            "maxConns": 20 if name == "temporal" else 5,
            "maxIdleConns": 20 if name == "temporal" else 5,
            "maxConnLifetime": "1h",
        }

    async def _wait_until_it_answers(self) -> None:
        assert self.process is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                while self.process.returncode is None:
                    if await self._has_namespace():
                        return
                    await asyncio.sleep(0.1)
        except TimeoutError:
            came = f"did not answer within {START_SECONDS:g} s"
            processes.kill(self.process)
            await self.process.wait()
        else:
            came = f"ended with code {self.process.returncode}"
        raise RuntimeUnavailable(
            f"The Temporal server {came}; {self._log.path} ends with: {self._log.tail()}"
        )

    async def _has_namespace(self) -> bool:
        """Whether it answers for our namespace. A new server is told of that first, and knows it
        a moment later."""
        if await answers(self.address, NAMESPACE, seconds=2):
            return True
        request = RegisterNamespaceRequest(namespace=NAMESPACE)
        request.workflow_execution_retention_period.FromSeconds(RETENTION_SECONDS)
        with suppress(TimeoutError, RuntimeError, RPCError):
            async with asyncio.timeout(5):
                client = await Client.connect(self.address)
                await client.workflow_service.register_namespace(request)
        return False
