"""An API that kills itself where it has committed a message and would wake its turn."""

import os
import signal

from everturn_activities.store import Wake
from everturn_workers import api
from everturn_workers.settings import read_settings
from everturn_workers.temporal import TemporalWaker


async def killed(self: TemporalWaker, wake: Wake) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


TemporalWaker.wake = killed  # type: ignore[method-assign]
api.serve(read_settings())
