"""Memories on a SQL database: each method one transaction or one read."""

from collections.abc import Callable, Sequence

from everturn.context.consolidation import Merged
from everturn.memory import FactSource, MemoryPlace
from everturn.views import FactView
from everturn_activities import prices
from everturn_activities.gateways import Usage
from everturn_activities.store import Caller, consolidations, memories, side_journal
from everturn_activities.store.consolidations import ConsolidationStarted, Due
from everturn_activities.store.database import Database
from everturn_activities.store.memories import DueMemory
from everturn_activities.store.metering import Meter, Price

BEGUN_SECONDS = 30.0
"""A consolidation that was begun is begun again after this long where it is still due."""


class SqlMemories:
    """`count` gives the tokens of a text, `price` what budgets reserve for a consolidation."""

    def __init__(
        self, database: Database, count: Callable[[str], int], price: Price = prices.cost_usd
    ) -> None:
        self._database = database
        self._count = count
        self._meter = Meter(lambda message: count(str(message)), price)

    async def save(
        self, at: MemoryPlace, text: str, key: str, source: FactSource | None
    ) -> FactView:
        """Keep a fact once; UsageError where the memory is full."""
        tokens = self._count(text)
        return await self._database.write(
            lambda tx: memories.save(tx, at, text, tokens, key, source)
        )

    async def facts(self, places: Sequence[MemoryPlace]) -> list[FactView]:
        """The facts in force, place by place, the oldest first."""
        return await self._database.read(lambda connection: memories.read(connection, places))

    async def all_facts(self, places: Sequence[MemoryPlace]) -> list[FactView]:
        """The same with those that a consolidation has replaced."""
        return await self._database.read(lambda connection: memories.read_all(connection, places))

    async def forget(self, at: MemoryPlace, n: int) -> None:
        """Take a fact's text away for good; UsageError where there is none of that number."""
        await self._database.write(lambda tx: memories.forget(tx, at, n))

    # Consolidations.

    async def due(self, limit: int) -> list[DueMemory]:
        """Memories to be consolidated; whoever begins one says so by `begun`."""
        now = self._database.now()
        return await self._database.read(lambda connection: memories.due(connection, now, limit))

    async def begun(self, memory: int) -> None:
        await self._database.write(lambda tx: memories.put_off(tx, memory, tx.now + BEGUN_SECONDS))

    async def due_for(self, memory: int) -> Due | None:
        return await self._database.read(
            lambda connection: consolidations.due_for(connection, memory)
        )

    async def begin(
        self, due: Due, tokens_max: int, model: str, caller: Caller
    ) -> ConsolidationStarted | None:
        return await self._database.write(
            lambda tx: consolidations.begin(tx, due, tokens_max, model, caller, self._meter)
        )

    async def known_reply(self, tenant: str, content: str) -> str | None:
        """What a request of this content was answered that the tenant has paid for, if any."""
        return await self._database.read(
            lambda connection: side_journal.known_reply(connection, tenant, content)
        )

    async def complete(
        self,
        due: Due,
        attempt: int,
        changes: Sequence[Merged],
        content: str,
        usage: Usage,
        cost_usd: float | None,
    ) -> int:
        return await self._database.write(
            lambda tx: consolidations.complete(
                tx, due, attempt, changes, content, usage, cost_usd, self._count
            )
        )

    async def fail(
        self,
        due: Due,
        attempt: int,
        reason: str,
        attempts_max: int,
        usage: Usage,
        cost_usd: float | None,
    ) -> bool:
        return await self._database.write(
            lambda tx: consolidations.fail(tx, due, attempt, reason, attempts_max, usage, cost_usd)
        )
