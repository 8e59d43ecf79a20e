"""prepare_folder: a session's own working folder, made before its first step."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from temporalio import activity

from everturn.errors import EverturnError, OwnerAlive, TurnCancelled
from everturn.session import PreparedFolder, PrepareFolder, SessionKey
from everturn_activities import own_folders
from everturn_activities.flights import CancelWatch, Flights
from everturn_activities.heartbeat import heartbeating
from everturn_activities.store import SessionFolder, Store
from everturn_activities.threads import in_thread

PROBLEM = "The session's own folder ({kind} of {source}) cannot be made: {reason}."


class FolderActivities:
    """Makes folders below `home`; `ignored` tells what a workspace leaves out of copies."""

    def __init__(
        self,
        store: Store,
        home: Path,
        watch: CancelWatch,
        ignored: Callable[[str], Sequence[str]],
    ) -> None:
        self._store = store
        self._home = home
        self._watch = watch
        self._ignored = ignored
        self._flights = Flights()

    @activity.defn
    async def prepare_folder(self, request: PrepareFolder) -> PreparedFolder:
        """Make the session's own folder unless it is made."""
        async with heartbeating():
            call = (request.tenant, request.session)
            return await self._flights.join(call, lambda: self._prepare(request))

    async def _prepare(self, request: PrepareFolder) -> PreparedFolder:
        key = SessionKey(request.tenant, request.session)
        known = await self._store.folder(key)
        if not known.due or known.own_dir is None:
            return PreparedFolder(True)
        try:
            await self._watch.guard(key, request.turn, self._make(key, known, known.own_dir))
        except TurnCancelled:
            return PreparedFolder(True)
        except OwnerAlive:
            raise
        except EverturnError as error:
            reason = str(error).rstrip(".")
            said = PROBLEM.format(kind=known.kind, source=known.working_dir, reason=reason)
            await self._store.folder_failed(key, request.turn, request.epoch, said)
            return PreparedFolder(False)
        await self._store.folder_made(key, request.turn, request.epoch)
        return PreparedFolder(True)

    async def _make(self, key: SessionKey, known: SessionFolder, path: str) -> None:
        stop = threading.Event()

        def make() -> None:
            folder = own_folders.found(self._home, key, known.kind, known.working_dir, path)
            own_folders.make(folder, key, self._ignored(known.workspace), stop)

        try:
            await in_thread(make)
        except asyncio.CancelledError:
            # The thread goes on until it looks; then it takes back what it has made.
            stop.set()
            raise
