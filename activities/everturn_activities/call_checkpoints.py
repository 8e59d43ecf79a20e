"""Checkpoints around the calls of our own tools that change files; any other passes."""

import logging
import time
from collections.abc import Coroutine
from typing import Any

from everturn.agents import ToolSpec
from everturn.errors import ToolFailed
from everturn.session import SessionKey
from everturn_activities.builtin.inside import InsideContext
from everturn_activities.checkpoints import OF_FILES, OF_TREES, Checkpoints, Record
from everturn_activities.threads import in_thread
from everturn_activities.toolbox import ToolOutcome

CALL_CHARACTERS = 16

log = logging.getLogger(__name__)


class CallCheckpoints:
    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints

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
            await self._tried(lambda: self._checkpoints.before(key, record, path))
        except BaseException:
            running.close()
            raise
        # What is cancelled here is closed by the next call, or by who puts it back.
        ran = await running
        await self._tried(lambda: self._checkpoints.after(key, call))
        return ran

    async def _tried(self, note: Any) -> None:
        try:
            await in_thread(note)
        except ToolFailed:
            # The tool itself will say so.
            return
        except (OSError, ValueError) as error:
            log.warning("a file checkpoint could not be made: %s", type(error).__name__)
