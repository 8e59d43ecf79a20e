"""SwarmShard: items of a swarm, each a turn of a session of its own, as coroutines of one run."""

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import replace

from temporalio import workflow
from temporalio.exceptions import FailureError

from everturn_workflows import calls, hosting
from everturn_workflows.loop import TurnLoop

with workflow.unsafe.imports_passed_through():
    from everturn import limits
    from everturn.session import BeginTurn
    from everturn.swarms import BeginItem, BegunItem, GiveUpItem, ItemRef, ShardStart, TakeItems

HISTORY_EVENTS_MAX = 1_000
"""A new run begins behind these: whoever takes a shard over replays them within one task."""

QUICK_SECONDS = 2.0
"""A shard that comes back sooner for more items takes some ahead, so that no place is empty
while it asks; where items take long, they are left to shards with a free place."""


@workflow.defn(name="SwarmShard")
class SwarmShard:
    def __init__(self) -> None:
        self._loops: dict[str, TurnLoop] = {}
        self._ready: deque[ItemRef] = deque()
        self._carried: list[ItemRef] = []
        self._idle = 0
        self._ahead = 0
        self._fed = False
        self._leaving = False
        self._stirred = False
        self._retired = False

    @workflow.signal
    def wake(self, session: str) -> None:
        """Something was committed to an item's inbox, or, of no session, the swarm changed."""
        if not session:
            self._stirred = True
        elif (loop := self._loops.get(session)) is not None:
            loop.woken = True

    @workflow.signal
    def retire(self) -> None:
        """Take no more, and end with what is under way: others take this shard's place."""
        self._retired = True

    @workflow.run
    async def run(self, start: ShardStart) -> None:
        self._ready.extend(start.carried)
        places = [asyncio.create_task(self._place(start)) for _ in range(start.width)]
        await self._feed(start)
        await asyncio.gather(*places)
        await workflow.wait_condition(workflow.all_handlers_finished)
        carried = [*self._carried, *self._ready]
        if self._leaving or carried:
            workflow.continue_as_new(replace(start, carried=carried, retired=self._retired))

    async def _feed(self, start: ShardStart) -> None:
        """Take items until there are no more, or the history is too long to take any."""
        self._retired = self._retired or start.retired
        run_id, k, asked_at = workflow.info().run_id, 0, workflow.time()
        while True:
            await workflow.wait_condition(
                lambda: self._retired or len(self._ready) < self._idle + self._ahead
            )
            if self._retired:
                break
            if self._is_too_long(start):
                self._leaving = True
                break
            self._stirred = False
            quick = k > 0 and workflow.time() - asked_at < QUICK_SECONDS
            asked_at = workflow.time()
            self._ahead = start.width if quick else 0
            most = max(1, self._idle + self._ahead - len(self._ready))
            taken = await calls.take_items(TakeItems(start.tenant, start.swarm, run_id, k, most))
            k += 1
            self._ready.extend(taken.items)
            if taken.stopping:
                await calls.tell_parent()
            if taken.then == "end":
                break
            if taken.then == "wait":
                with suppress(TimeoutError):
                    await workflow.wait_condition(
                        lambda: self._stirred or self._retired or self._is_too_long(start),
                        timeout=taken.wait_seconds or None,
                    )
        self._fed = True

    def _is_too_long(self, start: ShardStart) -> bool:
        return hosting.too_long(start.history_events_max or HISTORY_EVENTS_MAX)

    async def _place(self, start: ShardStart) -> None:
        """Work one item after the other."""
        while True:
            self._idle += 1
            await workflow.wait_condition(lambda: bool(self._ready) or self._fed)
            self._idle -= 1
            if self._leaving or not self._ready:
                return
            item = self._ready.popleft()
            if await self._work(start, item):
                self._carried.append(item)

    async def _work(self, start: ShardStart, item: ItemRef) -> bool:
        """Work an item's turns; whether the next run is to go on with it."""
        k = 0
        while True:
            try:
                begun = await self._begin(start, item, k)
                more = begun.more
                if begun.turn is not None:
                    loop = self._loops[item.session] = TurnLoop(begun.turn, begun.step)
                    finished = await hosting.work(loop, lambda: self._is_too_long(start))
                    if finished is None:
                        return True
                    more = finished.more
            except FailureError as error:
                if calls.is_stale(error):
                    # Another run hosts the session now, and ends the item.
                    return False
                raise
            finally:
                self._loops.pop(item.session, None)
            if not more:
                return False
            k += 1

    async def _begin(self, start: ShardStart, item: ItemRef, k: int) -> BegunItem:
        info = workflow.info()
        request = BeginItem(
            tenant=start.tenant,
            swarm=start.swarm,
            item=item,
            workflow_id=info.workflow_id,
            run_id=info.run_id,
            previous_run_id=info.continued_run_id,
            k=k,
        )
        try:
            return await calls.begin_item(request)
        except FailureError as error:
            if not calls.is_fault(error):
                raise
            fault = limits.fault(calls.said(error))
        given_up = GiveUpItem(start.tenant, start.swarm, item, fault.reason or "")
        if k == 0 and await calls.give_up_item(given_up):
            return BegunItem()
        turn = await calls.begin_turn(
            BeginTurn(
                tenant=start.tenant,
                session=item.session,
                workflow_id=request.workflow_id,
                run_id=request.run_id,
                previous_run_id=request.previous_run_id,
                k=k,
            )
        )
        return BegunItem(turn and replace(turn, failure=fault.reason))
