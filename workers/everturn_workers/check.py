"""One thing that was looked at: what was found, in a sentence, and what to do."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

REACH_SECONDS = 5.0
"""How long a server may take for all that it is asked."""


@dataclass(frozen=True)
class Check:
    """`mend` says what to do where it is not `ok`; of what is `ok` and has one, it is a warning."""

    name: str
    ok: bool
    sentence: str
    mend: str | None = None


async def in_time(checking: Awaitable[list[Check]], late: Check) -> list[Check]:
    """What `checking` finds, or `late` where that takes too long."""
    try:
        async with asyncio.timeout(REACH_SECONDS):
            return await checking
    except TimeoutError:
        return [late]
