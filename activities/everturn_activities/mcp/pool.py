"""The servers that run for a worker: launched at need, shared where they remember nothing."""

import asyncio
import importlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everturn.errors import SecretMissing, ServerFailed, WorkspaceError
from everturn.hosts import Reach
from everturn.mcp import ServerConfig, header_variable
from everturn.secrets import SecretSource
from everturn.session import SessionKey
from everturn_activities.mcp.process import ServerProcess
from everturn_activities.mcp.sign_ins import Kept
from everturn_activities.threads import in_thread
from everturn_activities.vault import Vault
from everturn_activities.workspace import load

if TYPE_CHECKING:
    from everturn_activities.mcp.sdk import Connection

IDLE_SECONDS = 300.0
"""How long a server that nobody holds is kept: the next session may want it."""

_IDENTITY = {"command", "args", "env", "url", "headers", "oauth"}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """Which server: of which workspace, under which name and settings, and, where it remembers
    what a session did, of which session."""

    workspace: str
    name: str
    config: ServerConfig
    session: SessionKey | None = None

    @property
    def identity(self) -> tuple[str, ...]:
        config = self.config.model_dump_json(include=_IDENTITY)
        session = self.session or ("", "")
        return (self.workspace, self.name, config, *session)


@dataclass
class _Running:
    place: Place
    connection: "Connection"
    holders: int = 0
    idle_since: float = field(default_factory=time.monotonic)


class Pool:
    """`vault` has the values that servers are given by name; `hidden` is the folder of our own
    data, which they do not see."""

    def __init__(self, vault: Vault, hidden: Path | None = None) -> None:
        self._vault = vault
        self._hidden = hidden
        self._running: dict[tuple[str, ...], _Running] = {}
        self._launching: dict[tuple[str, ...], asyncio.Task[Connection]] = {}
        self._tending: asyncio.Task[None] | None = None

    def is_running(self, place: Place) -> bool:
        found = self._running.get(place.identity)
        return found is not None and found.connection.running

    async def connection(self, place: Place) -> "Connection":
        """A connection to the server, launched where it does not run.

        Raises ServerFailed, with the end of a sentence.
        """
        at = place.identity
        found = self._running.get(at)
        if found is not None and found.connection.running:
            return found.connection
        launching = self._launching.get(at)
        if launching is None:
            # A task of its own: who waits may be cancelled, and others wait too.
            launching = self._launching[at] = asyncio.create_task(self._launch(place))
            launching.add_done_callback(lambda _: self._launching.pop(at, None))
        return await asyncio.shield(launching)

    def hold(self, place: Place) -> None:
        if (found := self._running.get(place.identity)) is not None:
            found.holders += 1

    async def release(self, place: Place) -> None:
        """Let go of a server; one that is a session's own ends."""
        found = self._running.get(place.identity)
        if found is None:
            return
        found.holders -= 1
        found.idle_since = time.monotonic()
        if place.session is not None and found.holders <= 0:
            await self._end(found)

    async def close(self) -> None:
        """End all servers, side by side."""
        if self._tending is not None:
            self._tending.cancel()
            self._tending = None
        for launching in list(self._launching.values()):
            launching.cancel()
        await asyncio.gather(*self._launching.values(), return_exceptions=True)
        await asyncio.gather(*(self._end(one) for one in list(self._running.values())))

    async def _launch(self, place: Place) -> "Connection":
        before = self._running.get(place.identity)
        if before is not None:
            await before.connection.close()
        try:
            async with asyncio.timeout(place.config.launch_seconds):
                connection = await self._opened(place)
        except TimeoutError:
            raise ServerFailed(
                f"it was not ready within {place.config.launch_seconds:g} s"
            ) from None
        holders = before.holders if before is not None else 0
        self._running[place.identity] = _Running(place, connection, holders)
        if self._tending is None:
            self._tending = asyncio.create_task(self._tend())
        log.info("MCP server %s runs", place.name)
        return connection

    async def _opened(self, place: Place) -> "Connection":
        # Imported late: the SDK takes a second, and most workers have no servers. Beside the
        # event loop: on a busy machine that second is many, and heartbeats must go on.
        sdk = await asyncio.to_thread(importlib.import_module, "everturn_activities.mcp.sdk")
        config = place.config
        if config.url is not None:
            return await self._reached(sdk, place)
        values = {name: await self.value(place, one) for name, one in config.env.items()}
        process = await ServerProcess.start(
            config.identity, Path(place.workspace), values, self._hidden
        )
        connection: Connection = sdk.over_process(process, config.identity)
        try:
            await connection.open()
        except BaseException as error:
            await connection.close()
            words = process.last_words()
            if isinstance(error, ServerFailed) and words:
                raise ServerFailed(f"{error}; its last words were: {words}") from None
            raise
        return connection

    async def _reached(self, sdk: Any, place: Place) -> "Connection":
        config = place.config
        assert config.url is not None
        headers, values = {}, list[str]()
        for name, value in config.headers.items():
            before, variable = header_variable(value)
            values.append(await self.value(place, variable))
            headers[name] = before + values[-1]
        auth, also = (None, no_other) if _identifies(headers) else await self._signed_in(place)
        mend = f"it wants somebody to sign in, by: everturn mcp login {place.name}"
        connection: Connection = sdk.over_address(
            *(config.url, headers, config.reach, auth, also, mend)
        )
        try:
            await connection.open()
        except BaseException as error:
            await connection.close()
            if isinstance(error, ServerFailed):
                raise ServerFailed(_without(values, str(error))) from None
            raise
        return connection

    async def _signed_in(self, place: Place) -> tuple[Any, Callable[[], Reach]]:
        """What sends the tokens of whoever has signed in, and where it renews them."""
        config = place.config
        if self._hidden is None or config.url is None:
            return None, no_other
        oauth = await asyncio.to_thread(importlib.import_module, "everturn_activities.mcp.oauth")
        kept = Kept(self._hidden, place.workspace, place.name, config.url)
        secret = config.oauth.client_secret if config.oauth is not None else None
        auth = oauth.SignedIn(
            config.url,
            kept,
            lambda value: self._vault.scrubber.learn(f"of server {place.name}", value),
            await self.value(place, secret) if secret is not None else None,
        )

        def also() -> Reach:
            found = kept.read()
            return Reach.of(found.hosts) if found is not None else no_other()

        return auth, also

    async def value(self, place: Place, name: str) -> str:
        """The workspace's secret of that name, else the worker's variable: kept out of all that
        is said from now on."""
        try:
            # A keyring may take its time.
            return await in_thread(lambda: self._found(Path(place.workspace), name))
        except SecretMissing as error:
            said = str(error).rstrip(".")
            raise ServerFailed(f"{said[0].lower()}{said[1:]}") from None

    def _found(self, workspace: Path, name: str) -> str:
        secrets: Mapping[str, SecretSource] = {}
        with suppress(WorkspaceError):
            secrets = load(workspace).settings.secrets
        if name in secrets:
            return self._vault.value(workspace, secrets, name)
        value = self._vault.variable(name)
        if value is None:
            raise SecretMissing(
                f"The variable {name} is not set where the worker runs, and [secrets] has none."
            )
        return value

    async def _end(self, one: _Running) -> None:
        self._running.pop(one.place.identity, None)
        await one.connection.close()

    async def _tend(self) -> None:
        """End what nobody has held for long."""
        while True:
            await asyncio.sleep(IDLE_SECONDS / 4)
            before = time.monotonic() - IDLE_SECONDS
            for one in list(self._running.values()):
                if one.holders <= 0 and one.idle_since < before:
                    await self._end(one)


def no_other() -> Reach:
    return Reach(())


def _identifies(headers: Iterable[str]) -> bool:
    return any(name.lower() == "authorization" for name in headers)


def _without(secrets: Iterable[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, "[...]")
    return text
