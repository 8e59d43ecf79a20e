"""Signs of life of a queued activity, without which its cancel and its death go unseen."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio import activity

HEARTBEAT_SECONDS = 0.5


@asynccontextmanager
async def heartbeating() -> AsyncIterator[None]:
    """Heartbeat while the body runs; a local activity has no need to."""
    if activity.info().is_local:
        yield
        return
    beating = asyncio.create_task(_beat())
    try:
        yield
    finally:
        beating.cancel()


async def _beat() -> None:
    while True:
        # None at once: of many quick calls each would cost the server another request.
        await asyncio.sleep(HEARTBEAT_SECONDS)
        activity.heartbeat()
