"""prepare_folder: before a turn's first step its session's own folder is made, and what turns that
were rolled back did to files is undone."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from temporalio import activity

from everturn.agents import AgentSpec
from everturn.errors import EverturnError, OwnerAlive, TurnCancelled
from everturn.session import PreparedFolder, PrepareFolder, SessionKey
from everturn_activities import own_folders
from everturn_activities.checkpoints import Checkpoints
from everturn_activities.flights import CancelWatch, Flights
from everturn_activities.heartbeat import heartbeating
from everturn_activities.store import SessionFolder, Store
from everturn_activities.threads import in_thread

ROLLED_BACK = "Turn {turn} was rolled back."
PROBLEM = "The session's own folder ({kind} of {source}) cannot be made: {reason}."


class FolderActivities:
    """Makes folders below `home`. `ignored` tells what a workspace leaves out of copies, and
    `protected` what no tool may change."""

    def __init__(
        self,
        store: Store,
        home: Path,
        watch: CancelWatch,
        ignored: Callable[[str], Sequence[str]],
        protected: Callable[[AgentSpec], Sequence[Path]],
        checkpoints: Checkpoints,
    ) -> None:
        self._store = store
        self._home = home
        self._watch = watch
        self._ignored = ignored
        self._protected = protected
        self._checkpoints = checkpoints
        self._flights = Flights()

    @activity.defn
    async def prepare_folder(self, request: PrepareFolder) -> PreparedFolder:
        """Make the session's own folder, and put files back, as far as that is due."""
        async with heartbeating():
            call = (request.tenant, request.session)
            return await self._flights.join(call, lambda: self._prepare(request))

    async def _prepare(self, request: PrepareFolder) -> PreparedFolder:
        key = SessionKey(request.tenant, request.session)
        known = await self._store.folder(key)
        if known.restore_turn:
            await self._restore(request, known.restore_turn)
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

    async def _restore(self, request: PrepareFolder, since: int) -> None:
        key = SessionKey(request.tenant, request.session)
        spec = await self._store.spec(key, request.turn)
        restored = await in_thread(
            lambda: self._checkpoints.restore(
                *(key, (since, 0), (request.turn, 0), self._protected(spec), f"rollback-{since}")
            )
        )
        told = None
        if restored.files or restored.kept:
            told = f"{ROLLED_BACK.format(turn=since)} {restored}"
        await self._store.files_restored(key, request.turn, request.epoch, told)

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
