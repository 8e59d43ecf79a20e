"""A worker's end: what it promises to the calls under way, and what it leaves to other workers."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable

from everturn_workers.worker import Running

LEAVE_SECONDS = 2.0
"""How long calls that were told to end may take for it. Those inside of workflow tasks are told
nothing, and could run for ever."""
HAND_OVER_SECONDS = 1.0

log = logging.getLogger(__name__)


async def drain(running: Running, seconds: float, close: Callable[[], Awaitable[None]]) -> None:
    """Tell what a worker waits for that takes no new work, for `seconds`, and what is left then.

    Ends the process where anything of it is still there soon after; `close` ends its children.
    """
    under_way = str(running.under_way)
    log.info(
        "takes no new work, and %s",
        f"waits up to {seconds:g} s for {under_way}" if under_way else "has nothing under way",
    )
    await asyncio.sleep(seconds)
    if left := str(running.under_way):
        log.warning("did not end within %g s, and is left to other workers: %s", seconds, left)
    await asyncio.sleep(LEAVE_SECONDS)
    given = await _tried(running.hand_over)
    await _tried(close)
    # Who is on the list and does not renew is found dead, and its calls are given away then.
    if given:
        await _tried(running.leave)
    os._exit(0)


async def _tried(part: Callable[[], Awaitable[None]]) -> bool:
    try:
        await asyncio.wait_for(part(), HAND_OVER_SECONDS)
    except Exception as error:
        log.warning("could not give away what is under way: %s", type(error).__name__)
        return False
    return True
