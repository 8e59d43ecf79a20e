"""A process that is told to end: while it starts, at leisure when it works, or at once."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Coroutine

LEAVE_SECONDS = 2.0
"""How long a start that is broken off may take to put away what it has opened."""

log = logging.getLogger(__name__)


class Stopping:
    """Whether the process was told to end. Told a second time, it ends at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    def listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._hear, number)

    def _hear(self, number: int) -> None:
        if self.asked.is_set():
            log.warning("told to end a second time: what is under way is left as after a kill")
            os._exit(128 + number)
        self.asked.set()


async def run(
    working: Coroutine[None, None, None], stopping: Stopping, works: asyncio.Event
) -> None:
    """Do what a process is for, which sets `works` once it waits for nobody any more and sees to
    its end by itself. Told to end before, it breaks off, whatever it waits for."""
    task = asyncio.create_task(working)
    asked = asyncio.create_task(stopping.asked.wait())
    await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if task.done() or works.is_set():
        return await task
    log.info("was told to end while it started")
    task.cancel()
    await asyncio.wait({task}, timeout=LEAVE_SECONDS)
    if not task.done():
        # A server that is away holds it up; nothing was taken that somebody would miss.
        os._exit(0)
    with contextlib.suppress(asyncio.CancelledError):
        await task
