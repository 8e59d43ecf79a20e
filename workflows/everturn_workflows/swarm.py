"""Swarm: shards that work items side by side, until all are settled and reduced to one."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from temporalio import workflow
from temporalio.exceptions import FailureError
from temporalio.workflow import ChildWorkflowHandle

from everturn_workflows import calls

with workflow.unsafe.imports_passed_through():
    from everturn.swarms import ShardStart, SwarmHead, SwarmStart

Shard = ChildWorkflowHandle[Any, Any]

LOOK_SECONDS = 1.0
LOOK_SECONDS_MAX = 30.0
"""How soon, and how seldom, items are looked after that no shard of ours works."""


@workflow.defn(name="Swarm")
class Swarm:
    def __init__(self) -> None:
        self._woken = False
        self._launched = 0

    @workflow.signal
    def wake(self) -> None:
        """The swarm was changed, or a shard has seen that it stops. Carries nothing."""
        self._woken = True

    @workflow.run
    async def run(self, start: SwarmStart) -> None:
        head, pause = await calls.begin_swarm(start), LOOK_SECONDS
        while head.state != "done":
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(start)
            if head.state == "running" and head.waits:
                pause = LOOK_SECONDS
                await self._work(start, head)
                # None of our shards is left: what a lost one had taken and not begun waits again.
                head = await calls.begin_swarm(start)
                continue
            if head.state == "stopping":
                await calls.stop_items(start)
            # Items whose sessions went on in workflows of their own tell nobody here.
            await self._rest(head, pause if head.works else None)
            pause = min(2 * pause, LOOK_SECONDS_MAX)
            head = await calls.check_swarm(start)

    async def _work(self, start: SwarmStart, head: SwarmHead) -> None:
        """Have shards work what waits, until all of them have ended."""
        shards: dict[Shard, int] = {}
        retired = False
        while True:
            working = [shard for shard in shards if not shard.done()]
            if head.state == "running" and head.waits and not retired:
                # Also later: items may come, or come back, when some shards have ended.
                free = Counter(head.shards) - Counter(shards[shard] for shard in working)
                for width in list(free.elements())[: head.waits]:
                    shard = await self._launch(start, width)
                    shards[shard] = width
                    working.append(shard)
            if not working:
                break
            pause = LOOK_SECONDS if head.state == "stopping" else None
            changed = await self._rest(head, pause, working)
            if all(shard.done() for shard in working):
                break
            told, head = head.state, await calls.check_swarm(start)
            if head.state == "stopping":
                await calls.stop_items(start)
            if changed or head.state != told or head.waits:
                # Also where all looks as before: a shard that asked meanwhile, in a swarm that
                # was paused or open then, waits to be told before it ends.
                await asyncio.gather(*(_told(shard, "wake", "") for shard in working))
            if workflow.info().is_continue_as_new_suggested() and not retired:
                # The next run has shards of its own: these end with what they have.
                retired = True
                await asyncio.gather(*(_told(shard, "retire") for shard in working))
        await asyncio.gather(*shards, return_exceptions=True)

    async def _launch(self, start: SwarmStart, width: int) -> Shard:
        self._launched += 1
        info = workflow.info()
        return await calls.start_shard(
            ShardStart(start.tenant, start.swarm, width, [], start.history_events_max),
            f"{info.workflow_id}/{info.run_id[:8]}.{self._launched}",
        )

    async def _rest(
        self, head: SwarmHead, seconds: float | None, working: Sequence[Shard] = ()
    ) -> bool:
        """Wait until somebody wakes us, a shard ends, the deadline comes, or `seconds` are over;
        whether somebody woke us."""
        left = head.left_seconds if head.state in ("running", "paused") else None
        known = [max(wait, 0.01) for wait in (seconds, left) if wait is not None]
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: self._woken or any(shard.done() for shard in working),
                timeout=min(known) if known else None,
            )
        woken, self._woken = self._woken, False
        return woken


async def _told(shard: Shard, signal: str, *said: str) -> None:
    """Signal a shard; one that has ended meanwhile needs to be told nothing."""
    if not shard.done():
        with suppress(FailureError):
            await shard.signal(signal, args=said)
