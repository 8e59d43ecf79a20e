"""How long a provider may say nothing."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class Silence:
    """What is left of a stream's `stall_seconds`. Only waiting counts, not what we do between."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._spent = 0.0

    def progressed(self) -> None:
        self._spent = 0.0

    async def wait(self, awaited: Awaitable[T]) -> T:
        """What `awaited` gives. Raises TimeoutError where the silence grew too long."""
        began = time.monotonic()
        async with asyncio.timeout(max(self._seconds - self._spent, 0.001)):
            value = await awaited
        self._spent += time.monotonic() - began
        return value
