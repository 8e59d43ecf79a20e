"""A worker's lease, and who else lives: by the lock of those on its home, else by their lease."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from everturn_activities.store.workers import RENEW_SECONDS, Member, SqlWorkers, Work
from everturn_workers import locks
from everturn_workers.burial import Burial
from everturn_workers.home import home_id
from everturn_workers.settings import Settings

log = logging.getLogger(__name__)


def member(settings: Settings, instance: str) -> Member:
    """The worker `instance`, as it stands on the list."""
    build = f"everturn-{version('everturn')}"
    home = home_id(settings.home)
    roles = ",".join(sorted(settings.works))
    return Member(instance, home, socket.gethostname(), roles, build, str(settings.home))


def slots(settings: Settings) -> dict[str, int]:
    """How much the worker takes at a time, by the settings that say so."""
    of_role = {
        "turns": {"turns": settings.turns_max, "inline": settings.inline_max},
        "models": {"models": settings.models_max},
        "tools": {"tools": settings.tools_max},
    }
    return {
        name: count
        for role, counts in of_role.items()
        if role in settings.works
        for name, count in counts.items()
    }


class Leases:
    """`run_dir` is the home's `run` folder; `under_way` is looked at for each renewal."""

    def __init__(
        self,
        workers: SqlWorkers,
        us: Member,
        run_dir: Path,
        slots: Mapping[str, int],
        under_way: Mapping[str, int],
    ) -> None:
        self._workers = workers
        self._us = us
        self._run_dir = run_dir
        self._slots = slots
        self._under_way = under_way
        self._draining = False
        self._told = asyncio.Event()

    async def lives(self, instance: str) -> bool:
        """Whether a worker may still report."""
        if locks.is_known(self._run_dir, instance):
            return locks.is_alive(self._run_dir, instance)
        return await self._workers.lives(instance, self._us.instance)

    async def begin(self) -> None:
        await self._renew()

    def drain(self) -> None:
        """Have the list say, from now on, that we take no new work."""
        self._draining = True
        self._told.set()

    async def run(self, burial: Burial) -> None:
        """Renew our lease, and have those buried that let theirs run out."""
        burying: asyncio.Task[None] | None = None
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._told.wait(), RENEW_SECONDS)
                self._told.clear()
                try:
                    lapsed = await self._renew()
                except Exception as error:
                    # The store comes back, and nobody judges us before we had the time to renew.
                    log.warning("the lease could not be renewed: %s", type(error).__name__)
                    continue
                # One that shares our home and holds its lock is only slow.
                gone = [one for one in lapsed if not locks.is_alive(self._run_dir, one)]
                # Beside: where Temporal is slow to answer, our own lease would run out.
                if gone and (burying is None or burying.done()):
                    burying = asyncio.create_task(_buried(burial, gone))
        finally:
            if burying is not None:
                burying.cancel()
                await asyncio.gather(burying, return_exceptions=True)

    async def _renew(self) -> list[str]:
        under_way = {name: count for name, count in sorted(self._under_way.items()) if count}
        work = Work(self._slots, under_way, self._draining)
        return await self._workers.renew(self._us, work)

    async def leave(self) -> None:
        """Take us off the list: we leave nothing that anybody would have to wait for."""
        try:
            await self._workers.leave([self._us.instance])
        except Exception as error:
            log.warning("could not leave the list of workers: %s", type(error).__name__)


async def _buried(burial: Burial, gone: list[str]) -> None:
    try:
        await burial.bury_lapsed(gone)
    except Exception as error:
        # They stay on the list for the next time.
        log.warning("could not take over from workers that are gone: %s", type(error).__name__)
