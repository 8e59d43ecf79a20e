"""A queue of one worker: for calls that need what this process has, such as its MCP servers."""

import asyncio
from collections.abc import Awaitable, Callable


async def _closed() -> None:
    raise RuntimeError("a worker's own queue was asked for before the worker took work")


class OwnQueue:
    """Nobody polls the queue before it is first needed: most workers never do."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.open: Callable[[], Awaitable[None]] = _closed
        self._opening: asyncio.Lock = asyncio.Lock()
        self._is_open = False

    async def opened(self) -> str:
        """The queue's name, once work is taken from it."""
        async with self._opening:
            if not self._is_open:
                await self.open()
                self._is_open = True
        return self.name
