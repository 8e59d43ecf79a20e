"""A worker that kills itself right before or right after it commits a compaction.

EVERTURN_TEST_COMPACTION is `before` or `after`.
"""

import os
import signal
from typing import Any

from everturn_activities.store.sql import SqlStore
from everturn_workers import serving
from everturn_workers.settings import read_settings

_side = os.environ["EVERTURN_TEST_COMPACTION"]
_complete = SqlStore.complete_compaction


async def killed(*arguments: Any) -> Any:
    if _side == "after":
        await _complete(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)


SqlStore.complete_compaction = killed  # type: ignore[method-assign]
serving.serve(read_settings())
