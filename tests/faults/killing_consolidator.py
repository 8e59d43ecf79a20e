"""A worker that kills itself right before or right after it commits a consolidation.

EVERTURN_TEST_CONSOLIDATION is `before` or `after`.
"""

import os
import signal
from typing import Any

from everturn_activities.store.sql_memories import SqlMemories
from everturn_workers import serving
from everturn_workers.settings import read_settings

_side = os.environ["EVERTURN_TEST_CONSOLIDATION"]
_complete = SqlMemories.complete


async def killed(*arguments: Any) -> Any:
    if _side == "after":
        await _complete(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)


SqlMemories.complete = killed  # type: ignore[method-assign]
serving.serve(read_settings())
