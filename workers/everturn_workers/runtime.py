"""What every process of ours opens: the store, the event log, and the exchange of wake-ups."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from everturn.errors import UnknownSession
from everturn.folders import FolderKind
from everturn.messages import AssistantMessage, ToolMessage, UserMessage
from everturn.session import SessionKey
from everturn_activities import blobs, prices, tokens
from everturn_activities.blobs import Blobs
from everturn_activities.builtin.inside import Services
from everturn_activities.checkpoints import Checkpoints
from everturn_activities.event_log import EventLog
from everturn_activities.event_log.sql import SqlEventLog
from everturn_activities.gateways.choose import Gateways
from everturn_activities.governor import Governor
from everturn_activities.governor.limits import Limits
from everturn_activities.governor.quick import QuickGovernor
from everturn_activities.governor.sql import SqlGovernor
from everturn_activities.knowledge import KnowledgeIndex
from everturn_activities.knowledge.embedding import Embedders
from everturn_activities.knowledge.library import Library
from everturn_activities.knowledge.sqlite import SqliteIndex
from everturn_activities.mcp.servers import Servers
from everturn_activities.own_folders import own_path
from everturn_activities.questions import Questions
from everturn_activities.skills.shelf import Skills
from everturn_activities.store.database import Database
from everturn_activities.store.embeddings import SqlEmbeddings
from everturn_activities.store.knowledge_bases import SqlKnowledgeBases
from everturn_activities.store.opening import database_url, open_database
from everturn_activities.store.sql import SqlStore
from everturn_activities.store.sql_memories import SqlMemories
from everturn_activities.store.sql_renderings import SqlRenderings
from everturn_activities.store.sql_schedules import Bounds, SqlSchedules
from everturn_activities.store.sql_swarms import SqlSwarms
from everturn_activities.store.sql_tasks import SqlTasks
from everturn_activities.store.workers import SqlWorkers
from everturn_activities.threads import in_thread
from everturn_activities.vault import Vault
from everturn_activities.wakeups import Exchange, WakeUps
from everturn_workers.home import demand_no_homes_own, leave_socket_dir, prepare, socket_dir
from everturn_workers.settings import Settings

LOOK_SECONDS = 2.0
"""How long a folder of blobs may take to be looked at."""

if TYPE_CHECKING:
    from everturn_activities.redis_link import RedisLink

LISTENS_MAX = 10

TOKENS_OF = "gpt-5-mini"
"""Whose encoding measures stored messages: one measure for all, whatever models come later."""


@dataclass(frozen=True)
class Runtime:
    store: SqlStore
    memories: SqlMemories
    swarms: SqlSwarms
    tasks: SqlTasks
    library: Library
    skills: Skills
    events: EventLog
    wakeups: Exchange
    governor: QuickGovernor
    vault: Vault
    checkpoints: Checkpoints
    servers: Servers
    schedules: SqlSchedules
    renderings: SqlRenderings
    workers: SqlWorkers
    streams_wait: Callable[[], Coroutine[Any, Any, str | None]] | None
    """For what, as a sentence's end; None where they need no server of their own."""

    @property
    def services(self) -> Services:
        """What built-in tools work with."""
        return Services(
            *(self.memories, self.library, self.skills, self.store, self.vault, self.servers),
            questions=Questions(self.store, self.wakeups),
            schedules=self.schedules,
        )


@asynccontextmanager
async def open_runtime(settings: Settings, patience_seconds: float = 1.0) -> AsyncIterator[Runtime]:
    """Open the store of `settings`, migrated; raises UsageError for a URL we cannot use.

    What is asked of a database on its own server waits `patience_seconds` while that is away.
    """
    prepare(settings.home)
    database_url(settings.store_url)
    kept_apart = await _blobs(settings)
    shared = AsyncExitStack()
    link = None if settings.redis_url is None else await _linked(settings.redis_url, shared)
    wakeups = await _listening(settings.store_url, link)
    hearers: list[Callable[[set[SessionKey]], None]] = [wakeups.tell]

    def told(keys: set[SessionKey]) -> None:
        for hear in hearers:
            hear(keys)

    try:
        database = await open_database(
            settings.store_url, told, settings.database_connections, patience_seconds
        )
    except BaseException:
        await wakeups.close()
        await shared.aclose()
        leave_socket_dir(settings.store_url)
        raise
    store = SqlStore(database, count_tokens, blobs=kept_apart)
    # The encoding takes half a second to load: beside the start, not in the first message.
    asyncio.get_running_loop().run_in_executor(None, tokens.warm)
    limits = Limits(settings.provider_limits)
    governor = QuickGovernor(_governor(settings, database, limits), limits)
    vault = Vault(os.environ)
    for variable, value in settings.hidden:
        vault.scrubber.learn(variable, value)
    embedders = Embedders(
        vault,
        SqlEmbeddings(database),
        governor,
        Gateways(os.environ, vault),
        count_text,
        prices.cost_usd,
    )
    library = Library(SqlKnowledgeBases(database), _index(settings, database), embedders.of)
    memories = SqlMemories(database, count_text)
    events: EventLog = SqlEventLog(database, wakeups)
    if link is not None:
        events = _log_in_redis(settings, database, wakeups, link, hearers)

    def own(key: SessionKey, kind: FolderKind, source: Path) -> Path | None:
        return own_path(settings.home, key, kind, source)

    swarms = SqlSwarms(database, count_tokens, own)
    bounds = Bounds(settings.schedules_max, settings.schedule_seconds_min)

    async def works(key: SessionKey) -> bool:
        try:
            return (await store.session(key)).status == "running"
        except UnknownSession:
            return False

    servers = Servers(vault, settings.home, works)
    try:
        yield Runtime(
            *(store, memories, swarms, SqlTasks(database, count_tokens), library),
            Skills(settings.home),
            *(events, wakeups, governor),
            vault=vault,
            checkpoints=Checkpoints(settings.home),
            servers=servers,
            schedules=SqlSchedules(database, count_tokens, settings.home, bounds),
            renderings=SqlRenderings(database, count_tokens),
            workers=SqlWorkers(database),
            streams_wait=None if link is None else link.waits,
        )
    finally:
        await servers.close()
        await governor.close()
        await library.close()
        await embedders.close()
        await events.close()
        await store.close()
        await wakeups.close()
        await shared.aclose()
        leave_socket_dir(settings.store_url)


async def _listening(store_url: str, link: "RedisLink | None") -> Exchange:
    if link is not None:
        from everturn_activities.redis_wakeups import RedisWakeUps

        fleet = RedisWakeUps(link)
        await fleet.listen()
        return fleet
    for tried in range(1, LISTENS_MAX + 1):
        try:
            wakeups = WakeUps(socket_dir(store_url))
            await wakeups.listen()
            return wakeups
        except FileNotFoundError:
            # The last process that left has removed the folder just now.
            if tried == LISTENS_MAX:
                raise
    raise AssertionError


def _index(settings: Settings, database: Database) -> KnowledgeIndex:
    """Where the store is shared the index is, too; else it is a file, so that filling it holds
    up no turn."""
    if database_url(settings.store_url).get_backend_name() == "sqlite":
        return SqliteIndex(settings.home / "knowledge.db")
    from everturn_activities.knowledge.postgres import PostgresIndex

    return PostgresIndex(database, asyncio.get_running_loop())


async def _blobs(settings: Settings) -> Blobs | None:
    if settings.blobs_url is None:
        return None
    place = blobs.place_of(settings.blobs_url, settings.blobs_endpoint)
    if isinstance(place, Path):
        # A mount that is away says nothing for ever, and costs no more than its blobs.
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await in_thread(demand_no_homes_own, place)
    return blobs.opened(place)


async def _linked(url: SecretStr, shared: AsyncExitStack) -> "RedisLink":
    # Imported late: the client takes a tenth of a second.
    from everturn_activities.redis_link import RedisLink

    link = RedisLink(url.get_secret_value())
    shared.push_async_callback(link.close)
    return link


def _log_in_redis(
    settings: Settings,
    database: Database,
    wakeups: Exchange,
    link: "RedisLink",
    hearers: list[Callable[[set[SessionKey]], None]],
) -> EventLog:
    from everturn_activities.event_log.redis import RedisEventLog
    from everturn_activities.redis_wakeups import RedisWakeUps

    assert isinstance(wakeups, RedisWakeUps)
    log = RedisEventLog(database, wakeups, link, settings.event_ttl_seconds)
    hearers.append(log.told)
    return log


def _governor(settings: Settings, database: Database, limits: Limits) -> Governor:
    if settings.redis_url is None:
        return SqlGovernor(database, limits)
    # Imported late: the client takes a tenth of a second.
    from everturn_activities.governor.redis import RedisGovernor

    return RedisGovernor(settings.redis_url.get_secret_value(), limits)


def count_text(text: str) -> int:
    return tokens.count_text(text, TOKENS_OF)


def count_tokens(message: UserMessage | AssistantMessage | ToolMessage) -> int:
    return tokens.count_message(message, TOKENS_OF)
