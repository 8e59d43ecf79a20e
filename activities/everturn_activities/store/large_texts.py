"""Texts that are too large for rows, kept as blobs: the blob first, then the row that names it.

A place that is away keeps nobody from recording a result: the text goes into a row then, as
without such a place. So no tool runs twice because a server of blobs was down.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

from everturn.errors import RuntimeUnavailable
from everturn_activities.blobs import Blobs
from everturn_activities.store import CompletedTool
from everturn_activities.threads import in_thread

CHARACTERS_MIN = 32 * 1024
PUT_SECONDS = 5.0
GET_SECONDS = 20.0
AWAY_SECONDS = 10.0
"""How long nothing is put to a place that did not take the last text."""

log = logging.getLogger(__name__)


class LargeTexts:
    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._away_until = 0.0

    async def kept(self, done: Sequence[CompletedTool]) -> Sequence[CompletedTool]:
        """The same, with large whole texts kept as blobs where that can be."""
        large = [one.whole for one in done if _is_large(one.whole)]
        if not large or time.monotonic() < self._away_until:
            return done
        try:
            async with asyncio.timeout(PUT_SECONDS):
                blobs = dict(zip(large, await asyncio.gather(*map(self._put, large)), strict=True))
        except (RuntimeUnavailable, TimeoutError) as error:
            self._away_until = time.monotonic() + AWAY_SECONDS
            why = str(error) or f"The blobs took no text within {PUT_SECONDS:g} s."
            log.warning("%s Large texts stay in the store meanwhile.", why)
            return done
        return [
            replace(one, whole=None, blob=blobs[one.whole]) if one.whole in blobs else one
            for one in done
        ]

    async def _put(self, text: str) -> str:
        return await in_thread(self._blobs.put, text.encode())

    async def text(self, digest: str) -> str | None:
        """Raises RuntimeUnavailable."""
        try:
            async with asyncio.timeout(GET_SECONDS):
                content = await in_thread(self._blobs.get, digest)
        except TimeoutError:
            raise RuntimeUnavailable(
                f"The blobs gave no text within {GET_SECONDS:g} s; ask again later."
            ) from None
        return None if content is None else content.decode()


def _is_large(text: str | None) -> TypeGuard[str]:
    return text is not None and len(text) >= CHARACTERS_MIN


async def text_of(large: LargeTexts | None, digest: str) -> str:
    """A text that the store names and does not have. Raises RuntimeUnavailable."""
    text = None if large is None else await large.text(digest)
    if text is None:
        where = "EVERTURN_BLOBS_URL names none" if large is None else "it is not in the blobs"
        raise RuntimeUnavailable(
            f"The text {digest[:16]} is kept outside of the store, and cannot be read: {where}."
        )
    return text
