"""What every process of ours opens: the store, the event log, and the exchange of wake-ups."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from everturn.errors import UsageError
from everturn.messages import AssistantMessage, ToolMessage, UserMessage
from everturn_activities import prices, tokens
from everturn_activities.builtin.inside import Services
from everturn_activities.checkpoints import Checkpoints
from everturn_activities.event_log.sql import SqlEventLog
from everturn_activities.gateways.choose import Gateways
from everturn_activities.governor import Governor
from everturn_activities.governor.limits import Limits
from everturn_activities.governor.quick import QuickGovernor
from everturn_activities.governor.sql import SqlGovernor
from everturn_activities.knowledge.embedding import Embedders
from everturn_activities.knowledge.library import Library
from everturn_activities.knowledge.sqlite import SqliteIndex
from everturn_activities.mcp.servers import Servers
from everturn_activities.questions import Questions
from everturn_activities.skills.shelf import Skills
from everturn_activities.store.database import SqliteDatabase
from everturn_activities.store.embeddings import SqlEmbeddings
from everturn_activities.store.knowledge_bases import SqlKnowledgeBases
from everturn_activities.store.sql import SqlStore
from everturn_activities.store.sql_memories import SqlMemories
from everturn_activities.vault import Vault
from everturn_activities.wakeups import WakeUps
from everturn_workers.home import leave_socket_dir, prepare, socket_dir
from everturn_workers.settings import Settings

LISTENS_MAX = 10

TOKENS_OF = "gpt-5-mini"
"""Whose encoding measures stored messages: one measure for all, whatever models come later."""


@dataclass(frozen=True)
class Runtime:
    store: SqlStore
    memories: SqlMemories
    library: Library
    skills: Skills
    events: SqlEventLog
    wakeups: WakeUps
    governor: QuickGovernor
    vault: Vault
    checkpoints: Checkpoints
    servers: Servers

    @property
    def services(self) -> Services:
        """What built-in tools work with."""
        return Services(
            *(self.memories, self.library, self.skills, self.store, self.vault, self.servers),
            questions=Questions(self.store, self.wakeups),
        )


@asynccontextmanager
async def open_runtime(settings: Settings) -> AsyncIterator[Runtime]:
    """Open the store of `settings`, migrated; raises UsageError for a URL we cannot use."""
    prepare(settings.home)
    path = sqlite_path(settings.store_url)
    wakeups = await _listening(settings.store_url)
    database = SqliteDatabase(path, wakeups.tell)
    store = SqlStore(database, count_tokens)
    # The encoding takes half a second to load: beside the start, not in the first message.
    asyncio.get_running_loop().run_in_executor(None, tokens.warm)
    limits = Limits(settings.provider_limits)
    governor = QuickGovernor(_governor(settings, database, limits), limits)
    vault = Vault(os.environ)
    embedders = Embedders(
        vault,
        SqlEmbeddings(database),
        governor,
        Gateways(os.environ, vault),
        count_text,
        prices.cost_usd,
    )
    library = Library(
        SqlKnowledgeBases(database), SqliteIndex(settings.home / "knowledge.db"), embedders.of
    )
    memories = SqlMemories(database, count_text)
    events = SqlEventLog(database, wakeups)
    servers = Servers(vault, settings.home)
    try:
        yield Runtime(
            *(store, memories, library, Skills(settings.home), events, wakeups, governor),
            vault=vault,
            checkpoints=Checkpoints(settings.home),
            servers=servers,
        )
    finally:
        await servers.close()
        await governor.close()
        await library.close()
        await embedders.close()
        await store.close()
        await wakeups.close()
        leave_socket_dir(settings.store_url)


async def _listening(store_url: str) -> WakeUps:
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


def _governor(settings: Settings, database: SqliteDatabase, limits: Limits) -> Governor:
    if settings.redis_url is None:
        return SqlGovernor(database, limits)
    # Imported late: the client takes a tenth of a second.
    from everturn_activities.governor.redis import RedisGovernor

    return RedisGovernor(settings.redis_url.get_secret_value(), limits)


def count_text(text: str) -> int:
    return tokens.count_text(text, TOKENS_OF)


def count_tokens(message: UserMessage | AssistantMessage | ToolMessage) -> int:
    return tokens.count_message(message, TOKENS_OF)


def sqlite_path(url: str) -> Path:
    """The file that `url` names; UsageError where it names none."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise UsageError(
            "EVERTURN_DATABASE_URL is not a database URL; write sqlite:///PATH."
        ) from None
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        raise UsageError(
            f"EVERTURN_DATABASE_URL names {parsed.get_backend_name()}; this version keeps its"
            " store in SQLite: write sqlite:///PATH."
        )
    return Path(parsed.database)
