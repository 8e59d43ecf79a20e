"""Whether a database's server answers: one at a time asks it, for all who wait for it.

A machine that is gone, or a network that drops what it is given, says nothing: nobody is told that
a connection is lost. So where something takes long the server is asked once more, beside it.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Literal

Said = Literal["answers", "refuses", "nothing"]

SUSPECT_SECONDS = 1.0
"""Nothing of ours is meant to take longer; what does is no outage, but a reason to ask."""
AGAIN_SECONDS = 0.5
REFUSED_SECONDS = 60.0
"""So long it must have refused nothing before the log tells of the same refusal again."""

log = logging.getLogger(__name__)


class Outage:
    """Of the server at `address`. `ask` asks it on a connection of its own, and comes back in a few
    seconds; `drop` ends what is under way with one that says nothing."""

    def __init__(
        self, address: str, ask: Callable[[], Awaitable[Said]], drop: Callable[[], None]
    ) -> None:
        self._address = address
        self._ask = ask
        self._drop = drop
        self._since: float | None = None
        self._refused: dict[str, float] = {}
        self._answering = asyncio.Event()
        self._answering.set()
        self._asking: asyncio.Task[None] | None = None

    @property
    def is_known(self) -> bool:
        """Whether it is away, as far as we know: nobody needs to try."""
        return not self._answering.is_set()

    @contextmanager
    def suspected(self) -> Iterator[None]:
        """Have the server asked for as long as what is done within the block goes on."""
        loop = asyncio.get_running_loop()
        later: asyncio.TimerHandle

        def suspect() -> None:
            nonlocal later
            self._begin()
            later = loop.call_later(SUSPECT_SECONDS, suspect)

        later = loop.call_later(SUSPECT_SECONDS, suspect)
        try:
            yield
        finally:
            later.cancel()

    def note_away(self) -> None:
        """It did not answer; from here on it is asked until it does."""
        if self._since is None:
            self._since = time.monotonic()
            log.warning("the database at %s does not answer", self._address)
        self._answering.clear()
        self._begin()

    def note_back(self) -> None:
        """It has done what it was asked for."""
        if self._since is not None:
            seconds = time.monotonic() - self._since
            self._since = None
            log.warning("the database at %s answers again after %.1f s", self._address, seconds)

    def note_refused(self, what: str, mend: str) -> None:
        """It answers, and does not do what it was asked for: others may have more luck."""
        now = time.monotonic()
        if now - self._refused.get(what, -REFUSED_SECONDS) >= REFUSED_SECONDS:
            log.warning("the database at %s %s; %s", self._address, what, mend)
        self._refused[what] = now

    async def over(self, seconds: float) -> bool:
        """Whether it answers within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._answering.wait()
        except TimeoutError:
            return False
        return True

    def leave(self) -> None:
        """Have nobody wait for it any more."""
        self._answering.set()

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def _begin(self) -> None:
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._until_it_answers())

    async def _until_it_answers(self) -> None:
        try:
            while (said := await self._ask()) != "answers":
                if said == "nothing":
                    self.note_away()
                    self._drop()
                elif not self.is_known:
                    return  # What is under way hears of it by itself.
                await asyncio.sleep(AGAIN_SECONDS)
            self._answering.set()
        finally:
            self._asking = None
