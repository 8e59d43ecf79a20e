"""The log of requests: all that a model is sent, where an operator asks for it."""

import asyncio
import logging
import os
from pathlib import Path

import orjson

from everturn.context.compose import Context
from everturn.scrubbing import Scrubber
from everturn.session import ContextHead

log = logging.getLogger(__name__)


class RequestLog:
    """One JSON object a line, appended before each call. Who may read the log may read
    every conversation: it is its owner's only, and holds nothing that `scrubber` knows."""

    def __init__(self, path: Path, scrubber: Scrubber) -> None:
        self._path = path
        self._scrubber = scrubber

    async def write(self, context: ContextHead, request: Context) -> None:
        try:
            await asyncio.to_thread(self._append, context, request)
        except OSError as error:
            # A call is worth more than its log.
            log.warning("The log of requests cannot be written: %s", error)

    def _append(self, context: ContextHead, request: Context) -> None:
        parts = {"model", "system", "messages", "tools"}
        made = request.model_dump(mode="json")
        line = orjson.dumps(
            {
                "session": context.session,
                "turn": context.turn,
                "step": context.step,
                **{name: made[name] for name in ("model", "system", "messages", "tools")},
                "parameters": {name: made[name] for name in made if name not in parts},
            }
        )
        line = self._scrubber.scrubbed(line.decode()).encode()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        with os.fdopen(os.open(self._path, flags, 0o600), "ab") as file:
            file.write(line + b"\n")
