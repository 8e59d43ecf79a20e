"""prepare_folder: before a turn's first step its session's own folder is made, and what turns that
were rolled back did to files is undone."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from temporalio import activity

from everturn.agents import AgentSpec
from everturn.errors import EverturnError, OwnerAlive, TurnCancelled
from everturn.forks import place_text
from everturn.session import AwaitHome, PreparedFolder, PrepareFolder, SessionKey
from everturn_activities import own_folders
from everturn_activities.checkpoints import EVERY, Checkpoints
from everturn_activities.file_changes import Restored, Work
from everturn_activities.flights import CancelWatch, Flights
from everturn_activities.heartbeat import heartbeating
from everturn_activities.session_homes import SessionHomes
from everturn_activities.store import SessionFolder, Store
from everturn_activities.threads import in_thread

ROLLED_BACK = "Turn {turn} was rolled back."
TAKEN_BACK = "What was done from step {turn}.{step} on was taken back."
EXECUTORS_TRIES = 30
"""How often, about once a second, executors of a rolled-back turn are waited for."""
AWAY = (
    "What the session works in is at the home with the id {home}, and no worker of that home takes"
    " work; this waits until one does. Start 'everturn worker' on that home folder; or cancel the"
    " turn, and give up what is there by 'everturn folders remove {session} --force'."
)
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
        homes: SessionHomes,
    ) -> None:
        self._store = store
        self._home = home
        self._watch = watch
        self._ignored = ignored
        self._protected = protected
        self._checkpoints = checkpoints
        self._homes = homes
        self._flights = Flights()

    @activity.defn
    async def prepare_folder(self, request: PrepareFolder) -> PreparedFolder:
        """Make the session's own folder, and put files back, as far as that is due."""
        async with heartbeating():
            call = (request.tenant, request.session)
            return await self._flights.join(call, lambda: self._prepare(request))

    @activity.defn
    async def tell_away(self, request: AwaitHome) -> bool:
        """Tell that nobody takes work where the session's files are, if that is so."""
        if not await self._homes.is_away(request.home):
            return False
        said = AWAY.format(home=request.home, session=request.session)
        await self._store.home_away(request, said)
        return True

    async def _prepare(self, request: PrepareFolder) -> PreparedFolder:
        key = SessionKey(request.tenant, request.session)
        known = await self._homes.settled(key, await self._store.folder(key))
        home = known.home or ""
        if self._homes.is_elsewhere(home):
            return PreparedFolder(True, home)
        if known.restore_turn:
            await self._restore(request, known.restore_turn, known.restore_step)
        if not known.due or known.own_dir is None:
            return PreparedFolder(True, home)
        try:
            await self._watch.guard(key, request.turn, self._make(key, known, known.own_dir))
        except TurnCancelled:
            return PreparedFolder(True, home)
        except OwnerAlive:
            raise
        except EverturnError as error:
            reason = str(error).rstrip(".")
            said = PROBLEM.format(kind=known.kind, source=known.working_dir, reason=reason)
            await self._store.folder_failed(key, request.turn, request.epoch, said)
            return PreparedFolder(False)
        told = await self._carry(key, known, known.own_dir)
        await self._store.folder_made(key, request.turn, request.epoch, told)
        return PreparedFolder(True, home)

    async def _carry(self, key: SessionKey, known: SessionFolder, path: str) -> str | None:
        """Give a fork's folder what the files of its origin's held at the step; what came of it.
        No step of the fork has begun, so who is cut off here may do it again."""
        came = await self._store.forks.origin(key)
        if came is None:
            return None
        below = await self._works(came.key, (0, 0))
        step = EVERY if came.step is None else came.step
        source, target = Path(known.working_dir), Path(path)
        carried = await in_thread(
            lambda: self._checkpoints.carry(
                came.key, (came.turn, step), below, source.resolve(), target
            )
        )
        notes = await self._homes.left(came.key, 0, below)
        carried = replace(carried, notes=(*carried.notes, *notes))
        if not (carried.files or carried.kept or notes):
            return None
        place = place_text(came.turn, came.step)
        return f"Files are as at {place} of session {came.key.session}. {carried}"

    async def _works(self, key: SessionKey, since: tuple[int, int]) -> list[Work]:
        found = await self._store.forks.executor_turns(key, since)
        return [Work(one.key, one.turn, one.place) for one in found]

    async def _restore(self, request: PrepareFolder, turn: int, step: int) -> None:
        key, since = SessionKey(request.tenant, request.session), (turn, step)
        spec = await self._store.spec(key, request.turn)
        executors = await self._store.forks.executor_turns(key, since)
        working = [one.key.session for one in executors if one.works]
        if working and activity.info().attempt < EXECUTORS_TRIES:
            # They were cancelled with their turn, and what they end with goes back, too.
            raise OwnerAlive(f"Executor {working[0]} of turn {turn} is still ending.")
        below = [Work(one.key, one.turn, one.place) for one in executors]
        name = f"rollback-{turn}.{step}"
        restored = await in_thread(
            lambda: self._checkpoints.restore(
                *(key, since, (request.turn, 0), self._protected(spec), name, below)
            )
        )
        notes = (*restored.notes, *await self._homes.left(key, turn, below))
        restored, told = replace(restored, notes=notes), None
        if restored != Restored():
            said = TAKEN_BACK if step else ROLLED_BACK
            told = f"{said.format(turn=turn, step=step)} {restored}"
        await self._store.files_restored(key, request.turn, request.epoch, since, told)

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
