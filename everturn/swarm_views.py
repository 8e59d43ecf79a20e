"""The bodies of HTTP that are about swarms."""

from typing import Any

from pydantic import Field

from everturn.folders import FolderKind
from everturn.messages import Frozen
from everturn.swarms import ITEMS_MAX, ItemState, StopReason, SwarmSpec, SwarmState


class SwarmCounts(Frozen):
    """How many of a swarm's items stand where."""

    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    skipped: int = 0


class SwarmView(Frozen):
    """A swarm. `reason` is why it stopped before all items were worked. `open`: more items may
    come. `reducing` is the level of the tree that is worked, 0 for the items; `text` is the one
    result of all, where the swarm reduces. `asking` are the items' sessions that wait for a
    person. `items_per_second` is how fast items end, of late or, once done, in all; `left_seconds`
    what the rest will take at that. Times in seconds since 1970."""

    id: str
    state: SwarmState
    reason: StopReason | None = None
    spec: SwarmSpec
    workspace: str
    items: int = 0
    open: bool = False
    counts: SwarmCounts = SwarmCounts()
    reducing: int = 0
    text: str | None = None
    cost_usd: float = 0.0
    created_at: float
    begun_at: float | None = None
    ended_at: float | None = None
    deadline_at: float | None = None
    asking: tuple[str, ...] = ()
    items_per_second: float | None = None
    left_seconds: float | None = None
    seen: str = ""
    """Names where it stands, for who waits until it stands otherwise."""

    @property
    def ended(self) -> int:
        """How many items are worked no more."""
        counts = self.counts
        return counts.done + counts.failed + counts.cancelled + counts.skipped


class SwarmPage(Frozen):
    """`before` is what to ask the next, older page with; None on the last."""

    swarms: tuple[SwarmView, ...]
    before: str | None = None


class ItemView(Frozen):
    """An item with what became of it: `text` is the answer, `result` the same as JSON where it
    is an object of its agent's output schema. `settled` numbers items by their ends."""

    id: str
    n: int
    state: ItemState
    session: str | None = None
    outcome: str | None = None
    reason: str | None = None
    text: str | None = None
    result: Any = None
    attempts: int = 0
    steps: int = 0
    cost_usd: float = 0.0
    seconds: float | None = None
    settled: int | None = None


class ItemPage(Frozen):
    """`after` is what to ask the next page with; None where there are no more, and, of results,
    where none can come."""

    items: tuple[ItemView, ...]
    after: int | None = None


class NewSwarm(Frozen):
    """Body of `POST /v1/swarms`: a swarm to begin. More items may follow by
    `POST /v1/swarms/{id}/items` where `open`. The same `id` again changes nothing."""

    id: str | None = None
    workspace: str | None = None
    working_dir: str | None = None
    user: str | None = None
    folder: FolderKind | None = None
    spec: SwarmSpec = SwarmSpec()
    items: tuple[dict[str, Any], ...] = ()
    open: bool = False


class NewItems(Frozen):
    """Body of `POST /v1/swarms/{id}/items`: items from number `first` on, of which the swarm may
    have some already; `last`: no more will come."""

    first: int = Field(ge=1, le=ITEMS_MAX + 1)
    items: tuple[dict[str, Any], ...] = ()
    last: bool = False


class ResumeSwarm(Frozen):
    """`retry_failed`: items that failed, were cancelled or skipped are worked again."""

    retry_failed: bool = False
