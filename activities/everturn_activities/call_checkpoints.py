"""Checkpoints around the calls of our own tools that change files; any other passes."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from everturn.agents import ToolSpec
from everturn.errors import ToolFailed
from everturn.session import SessionKey
from everturn_activities.builtin.inside import InsideContext
from everturn_activities.checkpoints import OF_FILES, OF_TREES, Checkpoints
from everturn_activities.file_changes import Record
from everturn_activities.threads import in_thread
from everturn_activities.toolbox import ToolOutcome

CALL_CHARACTERS = 16

log = logging.getLogger(__name__)


class CallCheckpoints:
    """`note` is told of each turn before a call of it is recorded, where there are several homes
    that could have the records."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        note: Callable[[SessionKey, int], Awaitable[None]] | None = None,
    ) -> None:
        self._checkpoints = checkpoints
        self._note = note
        self._closing: set[asyncio.Future[None]] = set()

    async def around(
        self,
        context: InsideContext,
        spec: ToolSpec,
        arguments: dict[str, Any],
        running: Coroutine[Any, Any, ToolOutcome],
    ) -> ToolOutcome:
        """What `running` comes to, with what it changes recorded. A checkpoint that cannot be
        made is no reason not to run a tool."""
        name = spec.runs or spec.name
        path = arguments.get("path") if name in OF_FILES else None
        writes = name in OF_TREES or isinstance(path, str)
        if not writes or spec.source != "builtin" or not context.spec.checkpoints:
            return await running
        key = SessionKey(context.tenant, context.session)
        call = context.idempotency_key[:CALL_CHARACTERS]
        place = (context.turn, context.step)
        record = Record(*place, call, name, str(context.working_dir), time.time())
        try:
            if self._note is not None:
                await self._note(key, context.turn)
            await self._tried(lambda: self._checkpoints.before(key, record, path))
        except BaseException:
            running.close()
            raise
        try:
            ran = await running
        except BaseException:
            # What a person changes from now on is not the call's. Nobody waits for that.
            closing = asyncio.ensure_future(self._after(key, call))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            raise
        await self._after(key, call)
        return ran

    async def _after(self, key: SessionKey, call: str) -> None:
        await self._tried(lambda: self._checkpoints.after(key, call))

    async def _tried(self, note: Any) -> None:
        try:
            await in_thread(note)
        except ToolFailed:
            # The tool itself will say so.
            return
        except (OSError, ValueError) as error:
            log.warning("a file checkpoint could not be made: %s", type(error).__name__)
