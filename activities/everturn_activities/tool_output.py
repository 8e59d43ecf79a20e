"""What a call says while it runs: shown to watchers, and kept where it is cut off."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from everturn.errors import Fenced
from everturn.scrubbing import Scrubber
from everturn_activities.capped import CappedOutput

SHOWN_SECONDS = 0.25
UNTIL_THEN = "Its output until then:"
SHOWN_CHARACTERS_MAX = 200_000
NOT_SHOWN = "\n[... what the call says from here on is not shown ...]\n"

log = logging.getLogger(__name__)

Tell = Callable[[int, str], Awaitable[None]]
"""Tells watchers the piece of that number."""


class ToolOutput:
    """The output of one attempt at a call. A call that ends at once writes nothing.

    It is told in pieces, beside the call and not waited for. A piece that cannot be written
    is lost: the result, or what a cancel leaves, has it again. Without `tell` it is only kept.
    """

    def __init__(self, tell: Tell | None, scrubber: Scrubber) -> None:
        self._tell = tell
        self._clean = scrubber.stream()
        self._loop = asyncio.get_running_loop()
        self._kept = CappedOutput()
        self._pending: list[str] = []
        self._shown = 0
        self._telling: asyncio.Task[None] | None = None

    def add(self, text: str) -> None:
        """Take a piece of output, from any thread."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._take(text)
        else:
            self._loop.call_soon_threadsafe(self._take, text)

    def text(self) -> str:
        """What was said, cut in its middle where it is long."""
        self._kept.feed(self._clean.rest().encode("utf-8", "replace"))
        return self._kept.text()

    async def stop(self) -> None:
        """Tell nothing more: the call has ended, and its result says what is left."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)

    def _take(self, said: str) -> None:
        if not (text := self._clean.feed(said)):
            return
        self._kept.feed(text.encode("utf-8", "replace"))
        if self._tell is None or self._shown > SHOWN_CHARACTERS_MAX:
            return
        self._shown += len(text)
        self._pending.append(text if self._shown <= SHOWN_CHARACTERS_MAX else NOT_SHOWN)
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell_pieces(self._tell))

    async def _tell_pieces(self, tell: Tell) -> None:
        n = 0
        while True:
            await asyncio.sleep(SHOWN_SECONDS)
            if not self._pending:
                continue
            text = "".join(self._pending)
            self._pending.clear()
            n += 1
            try:
                await tell(n, text)
            except Fenced:
                return
            except Exception as error:
                # The store is away for a moment: no reason to end a call that runs.
                log.warning("output of a tool cannot be shown: %s", type(error).__name__)
