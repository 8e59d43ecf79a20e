"""Where a call runs: inline in the workflow task, or queued as an activity of its own.

Inline costs a seventh of the CPU, but holds the workflow task, so it is for calls that
are expected to end well under the task's time-out.
"""

from collections import deque
from typing import Literal

from everturn.agents import ToolSpec
from everturn.mcp_tools import is_served
from everturn.session import Placement
from everturn_activities.store import Store

INLINE_SECONDS = 1.0
"""Half of a workflow task's time-out (`temporal.TASK_TIMEOUT`): on a busy worker a quick call takes
several times what it takes on an idle one, and is cheapest inline just then."""
SAMPLES = 20
SAMPLES_MIN = 3


class Placements:
    """Decides by what is known of earlier calls; `forced` overrides that.

    A `once` tool is never inline: its intent must outlive the workflow task.
    """

    def __init__(self, store: Store, forced: Literal["auto", "inline", "queued"] = "auto") -> None:
        self._store = store
        self._forced = forced
        self._seconds: dict[tuple[str, str], deque[float]] = {}

    async def of_model(self, model: str) -> Placement:
        if self._forced != "auto":
            return self._forced
        return "inline" if await self._is_fast("model", model) else "queued"

    async def of_tool(self, tool: ToolSpec | None) -> Placement:
        """`tool` is None for one that does not exist: answering so takes no time."""
        if tool is None:
            return "inline"
        if tool.effect == "once" or is_served(tool):
            # A server may be launched for the call, or fall silent in it.
            return "queued"
        if self._forced != "auto":
            return self._forced
        return "inline" if tool.quick or await self._is_fast("tool", tool.name) else "queued"

    def record(self, kind: Literal["model", "tool"], name: str, seconds: float) -> None:
        known = self._seconds.get((kind, name))
        if known is not None:
            known.append(seconds)

    async def _is_fast(self, kind: Literal["model", "tool"], name: str) -> bool:
        known = self._seconds.get((kind, name))
        if known is None:
            known = deque(reversed(await self._store.durations(kind, name, SAMPLES)), SAMPLES)
            self._seconds[(kind, name)] = known
        if len(known) < SAMPLES_MIN:
            return False
        return sorted(known)[int(0.95 * (len(known) - 1) + 0.5)] < INLINE_SECONDS
