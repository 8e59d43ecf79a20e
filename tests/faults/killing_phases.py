"""A worker that kills itself once N tool calls stand where no tool can tell.

EVERTURN_TEST_PHASE is `before the intent:N` or `after the result:N`. The calls that came there
first are held, so that nothing of them is recorded, or told to Temporal, before the end.
"""

import asyncio
import os
import signal
from typing import Any

from everturn_activities.store.sql import SqlStore
from everturn_workers import serving
from everturn_workers.settings import read_settings

_phase, _, _number = os.environ["EVERTURN_TEST_PHASE"].partition(":")
_begin, _complete = SqlStore.begin_tool, SqlStore.complete_tools
_came = 0


async def _came_to(phase: str, calls: int) -> None:
    global _came
    if _phase != phase:
        return
    _came += calls
    if _came >= int(_number):
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.Event().wait()


async def begin_tool(self: SqlStore, *args: Any) -> Any:
    await _came_to("before the intent", 1)
    return await _begin(self, *args)


async def complete_tools(self: SqlStore, *args: Any) -> None:
    await _complete(self, *args)
    await _came_to("after the result", len(args[-1]))


SqlStore.begin_tool = begin_tool  # type: ignore[method-assign]
SqlStore.complete_tools = complete_tools  # type: ignore[method-assign]
serving.serve(read_settings())
