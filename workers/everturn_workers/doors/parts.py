"""What the routes under `/v1` work with, and for whom."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import Path as InPath
from fastapi import Request

from everturn.errors import UnknownSession, UsageError
from everturn.folders import FolderKind
from everturn.inputs import checked_id
from everturn.session import SessionKey
from everturn_activities.event_log import EventLog
from everturn_activities.knowledge.library import Library
from everturn_activities.store import Store
from everturn_activities.store.sql_memories import SqlMemories
from everturn_activities.store.sql_swarms import SqlSwarms
from everturn_activities.store.sql_tasks import SqlTasks
from everturn_activities.store.workers import SqlWorkers
from everturn_workers.doors.streams import Streams
from everturn_workers.front import Front
from everturn_workers.invocations import Invocations
from everturn_workers.kept_schedules import KeptSchedules
from everturn_workers.settings import Settings


@dataclass(frozen=True)
class Checked:
    """The folder that a workspace's tools work in, whether sessions of the agent have one of
    their own, and the names of its secrets."""

    working_dir: Path
    folder: FolderKind | None = None
    secrets: tuple[str, ...] = ()


Check = Callable[[Path, str | None, str | None], Checked]
"""`(workspace, agent, model)` to what holds for a session of theirs.

Raises WorkspaceError, UnknownAgent or UnknownModel where a turn could not be worked so.
"""


@dataclass(frozen=True)
class Parts:
    store: Store
    memories: SqlMemories
    tasks: SqlTasks
    keeper: KeptSchedules
    swarms: SqlSwarms
    library: Library
    workers: SqlWorkers
    events: EventLog
    front: Front
    settings: Settings
    check: Check
    streams: Streams
    invocations: Invocations


Name = Annotated[str, InPath(alias="id")]


def authorize(request: Request) -> str:
    """The tenant that the request speaks for; everything it reaches is this tenant's."""
    return "default"


def key_of(request: Request, session: str) -> SessionKey:
    try:
        return SessionKey(authorize(request), checked_id(session, "session id"))
    except UsageError as error:
        raise UnknownSession(str(error)) from None


def id_of(given: str | None, what: str) -> str:
    """The id that a request names for itself, under which it is done once; a new one without."""
    return secrets.token_hex(16) if given is None else checked_id(given, what)


def folder(field: str, path: Path) -> Path:
    """`path` where it is an existing absolute folder."""
    shown = ascii(str(path)[:200])
    try:
        if path.is_absolute() and path.is_dir():
            return path
    except (OSError, ValueError):
        pass
    raise UsageError(f"Field {field!r} is {shown}; name an existing folder by its absolute path.")


def workspace_of(parts: Parts, named: str | None) -> Path:
    """The workspace that a request names, else the server's own."""
    workspace = named or parts.settings.workspace
    if workspace is None:
        raise UsageError(
            "The request names no workspace and the server has none; send 'workspace', or start"
            " the server with EVERTURN_WORKSPACE."
        )
    return folder("workspace", Path(workspace)).resolve()
