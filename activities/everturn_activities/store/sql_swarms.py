"""Swarms on a SQL database: each method one transaction or one read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from everturn.agents import AgentSpec
from everturn.session import SessionKey
from everturn.swarm_views import ItemView, SwarmView
from everturn.swarms import (
    BeginItem,
    GiveUpItem,
    StopReason,
    SwarmHead,
    SwarmSpec,
    TakeItems,
    Taken,
)
from everturn_activities import prices
from everturn_activities.store import SessionSettings, swarm_items, swarm_reads, swarms
from everturn_activities.store.database import Database
from everturn_activities.store.metering import Count, Meter, Price
from everturn_activities.store.specs import spec_by
from everturn_activities.store.swarm_items import Opened, OwnPath


class SqlSwarms:
    """`count_tokens` measures the prompts of items, `own` says where their own folders are."""

    def __init__(
        self,
        database: Database,
        count_tokens: Count,
        own: OwnPath = lambda key, kind, source: None,
        price: Price = prices.cost_usd,
    ) -> None:
        self._database = database
        self._meter = Meter(count_tokens, price)
        self._own = own

    # What people and programs ask for.

    async def create(
        self,
        key: SessionKey,
        spec: SwarmSpec,
        settings: SessionSettings,
        items: Sequence[Mapping[str, Any]],
        last: bool,
    ) -> SwarmView:
        """Begin a swarm with these items; one that exists must be the same. Raises
        IdempotencyConflict, or UsageError with the item that cannot be worked."""

        def change(tx: Any) -> SwarmView:
            swarms.create(tx, key, spec, settings)
            swarms.add(tx, key, 1, items, last)
            return swarm_reads.view(tx.connection, key, tx.now)

        return await self._database.write(change)

    async def add(
        self, key: SessionKey, first: int, items: Sequence[Mapping[str, Any]], last: bool
    ) -> SwarmView:
        """Append items from number `first` on, as often as one likes."""

        def change(tx: Any) -> SwarmView:
            swarms.add(tx, key, first, items, last)
            return swarm_reads.view(tx.connection, key, tx.now)

        return await self._database.write(change)

    async def pause(self, key: SessionKey) -> SwarmView:
        return await self._changed(key, lambda tx: swarms.pause(tx, key))

    async def resume(self, key: SessionKey, retry_failed: bool) -> SwarmView:
        return await self._changed(key, lambda tx: swarms.resume(tx, key, retry_failed))

    async def cancel(self, key: SessionKey) -> SwarmView:
        return await self._changed(key, lambda tx: swarms.cancel(tx, key))

    async def _changed(self, key: SessionKey, change: Callable[[Any], None]) -> SwarmView:
        def both(tx: Any) -> SwarmView:
            change(tx)
            return swarm_reads.view(tx.connection, key, tx.now)

        return await self._database.write(both)

    async def swarm(self, key: SessionKey) -> SwarmView:
        now = self._database.now()
        return await self._database.read(lambda found: swarm_reads.view(found, key, now))

    async def every(self, tenant: str, limit: int, before: str | None) -> list[SwarmView]:
        """The tenant's swarms, newest first; `before` is the id of the last one seen."""
        now = self._database.now()
        return await self._database.read(
            lambda found: swarm_reads.every(found, tenant, limit, before, now)
        )

    async def items(
        self, key: SessionKey, after: int, limit: int, state: str | None
    ) -> list[ItemView]:
        """Items by their numbers, from the one behind `after` on."""
        return await self._database.read(
            lambda found: swarm_reads.items(found, key, after, limit, state)
        )

    async def results(self, key: SessionKey, after: int, limit: int) -> list[ItemView]:
        """Items that have ended, in the order of their ends, from the one behind `after` on."""
        return await self._database.read(
            lambda found: swarm_reads.results(found, key, after, limit)
        )

    async def results_in_order(self, key: SessionKey, after: int, limit: int) -> list[ItemView]:
        """Items by their numbers, from the one behind `after` on, as far as all have ended."""
        return await self._database.read(
            lambda found: swarm_reads.results_in_order(found, key, after, limit)
        )

    # What works it.

    async def begin(self, key: SessionKey) -> SwarmHead:
        return await self._database.write(lambda tx: swarms.begin(tx, key))

    async def check(self, key: SessionKey) -> SwarmHead:
        return await self._database.write(lambda tx: swarms.check(tx, key))

    async def stop(self, key: SessionKey, reason: StopReason) -> None:
        await self._database.write(lambda tx: swarms.cancel(tx, key, reason))

    async def take(self, request: TakeItems) -> Taken:
        return await self._database.write(lambda tx: swarm_items.take(tx, request))

    async def open_item(self, request: BeginItem) -> Opened:
        return await self._database.write(
            lambda tx: swarm_items.open_item(
                *(tx, request.tenant, request.swarm, request.item, self._meter, self._own)
            )
        )

    async def give_up(self, request: GiveUpItem) -> bool:
        return await self._database.write(lambda tx: swarm_items.give_up(tx, request))

    async def pin(self, key: SessionKey, reducing: bool, spec: AgentSpec) -> str:
        return await self._database.write(lambda tx: swarm_items.pin(tx, key, reducing, spec))

    async def pinned(self, digest: str) -> AgentSpec:
        """The spec of that hash."""
        return await self._database.read(lambda found: spec_by(found, digest))

    async def working(self, key: SessionKey) -> list[tuple[SessionKey, int]]:
        return await self._database.read(lambda found: swarms.working(found, key))

    async def asleep(self, older_than_seconds: float, limit: int) -> list[SessionKey]:
        before = self._database.now() - older_than_seconds
        return await self._database.read(lambda found: swarms.asleep(found, before, limit))

    async def unended(self, after: int, limit: int) -> list[tuple[int, SessionKey]]:
        return await self._database.read(lambda found: swarms.unended(found, after, limit))
