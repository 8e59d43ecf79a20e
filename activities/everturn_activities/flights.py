"""Running calls of this process: one execution a call, and cancelled as soon as its turn is."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Any, TypeVar

from temporalio import activity

from everturn.errors import TurnCancelled
from everturn.session import SessionKey
from everturn_activities.store import Store
from everturn_activities.wakeups import Exchange, cancels, changed

log = logging.getLogger(__name__)

T = TypeVar("T")


class Flights:
    """At most one execution of a call in this process: a second one joins the first.

    Temporal runs a local activity again when a signal meets its workflow task; without
    this the first execution would still be under way.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Future[Any]] = {}

    async def join(self, call: Hashable, run: Callable[[], Awaitable[T]]) -> T:
        while (running := self._running.get(call)) is not None and not running.done():
            # Whatever comes of it is in the journal then, where `run` finds it.
            await asyncio.wait({running})
        task: asyncio.Future[T] = asyncio.ensure_future(run())
        self._running[call] = task
        try:
            while True:
                try:
                    return await asyncio.shield(task)
                except asyncio.CancelledError:
                    if task.done() or not _is_only_dropped():
                        task.cancel()
                        return await task
        finally:
            if self._running.get(call) is task:
                del self._running[call]


def _is_only_dropped() -> bool:
    """Whether an inline call is cancelled because its workflow task was late, on a busy machine.

    It will run again, and finds then what this execution has paid for. That of a cancelled
    turn ends by itself: the store tells it.
    """
    if not activity.in_activity() or not activity.info().is_local or activity.is_worker_shutdown():
        return False
    cancelled = asyncio.current_task()
    if cancelled is not None:
        cancelled.uncancel()
    return True


class CancelWatch:
    """Looks whether a turn is cancelled whenever its session says so, polling as fallback."""

    def __init__(self, store: Store, wakeups: Exchange) -> None:
        self._store = store
        self._wakeups = wakeups

    async def guard(self, key: SessionKey, turn: int, work: Awaitable[T]) -> T:
        """The result of `work`; TurnCancelled, once `work` has ended, if the turn is cancelled.

        `work` is cancelled too when this is. Temporal cancels calls of a cancelled turn as
        well; whichever comes first, the store says why.
        """
        working = asyncio.ensure_future(work)
        watching = asyncio.create_task(self._cancelled(key, turn))
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            watching.result()
            working.cancel()
            with suppress(asyncio.CancelledError):
                return await working
            raise TurnCancelled
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not await self._store.cancelled(key, turn):
                raise
            task.uncancel()
            raise TurnCancelled from None
        finally:
            watching.cancel()
            if not working.done():
                working.cancel()
                with suppress(BaseException):
                    await working

    async def _cancelled(self, key: SessionKey, turn: int) -> None:
        with self._wakeups.waiting(cancels(key)) as event:
            while True:
                await changed(event)
                try:
                    if await self._store.cancelled(key, turn):
                        return
                except Exception as error:
                    # The store is away for a moment: no reason to end a call that runs.
                    log.warning("cancels cannot be seen: %s", type(error).__name__)
