"""Workers as others see them: the bodies of `/v1/workers`."""

from typing import Literal

from everturn.messages import Frozen

WorkerState = Literal["works", "drains", "gone"]
"""`gone` is one that was not heard of for so long that others take its calls over."""


class WorkerView(Frozen):
    """A worker's process. `home` is the id of its home, a folder that is at `home_path` on the
    machine `host`.

    `slots` is how much it takes at a time, by the names of the settings without their `_max`.
    `under_way` counts calls by name, as it said at `heard_at`, in seconds since 1970.
    """

    id: str
    state: WorkerState
    home: str
    home_path: str
    host: str
    roles: tuple[str, ...]
    slots: dict[str, int]
    under_way: dict[str, int]
    version: str
    started_at: float
    heard_at: float
    seconds_since: float
    """How long ago that was, on the clock of the store."""


class WorkerPage(Frozen):
    """Answer of `GET /v1/workers`, the oldest first."""

    workers: tuple[WorkerView, ...]
