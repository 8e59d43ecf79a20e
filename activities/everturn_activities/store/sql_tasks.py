"""Tasks and webhooks on a SQL database: each method one transaction or one read."""

from collections.abc import Mapping, Sequence

from everturn.tasks import NewTask, TaskState, TaskView
from everturn.webhooks import WebhookState, WebhookView
from everturn_activities import prices
from everturn_activities.store import (
    Delivery,
    SessionSettings,
    TaskCame,
    Wake,
    outbox,
    task_views,
    tasks,
)
from everturn_activities.store.database import Database, Tx
from everturn_activities.store.metering import Count, Meter


class SqlTasks:
    """`count` measures a task's message, once, when it is written."""

    def __init__(self, database: Database, count: Count) -> None:
        self._database = database
        self._meter = Meter(count, prices.cost_usd)

    async def submit(
        self, tenant: str, given: Sequence[tuple[str, NewTask, SessionSettings]]
    ) -> list[TaskCame]:
        """Take all of `given` in, or none; each under its id, once."""

        def change(tx: Tx) -> list[TaskCame]:
            return [
                tasks.submit(tx, tenant, name, task, settings, self._meter)
                for name, task, settings in given
            ]

        return await self._database.write(change)

    async def task(self, tenant: str, name: str) -> TaskView:
        return await self._database.read(lambda found: task_views.one(found, tenant, name))

    async def tasks(
        self, tenant: str, state: TaskState | None, limit: int, before: str | None
    ) -> list[TaskView]:
        return await self._database.read(
            lambda found: task_views.listed(found, tenant, state, limit, before)
        )

    async def cancel(self, tenant: str, name: str) -> Wake | None:
        return await self._database.write(lambda tx: tasks.cancel(tx, tenant, name))

    async def requeue(self, tenant: str, name: str, deadline: float | None = None) -> Wake | None:
        begun: dict[int, Wake | None] = {}
        return await self._database.write(
            lambda tx: tasks.requeue(tx, tenant, name, deadline, self._meter, begun)
        )

    async def come_due(self, limit: int) -> list[Wake]:
        """Begin the attempts and end the tasks whose time has come, and say whom to wake."""
        now = self._database.now()
        if not await self._database.read(lambda found: tasks.any_due(found, now)):
            return []
        late = await self._database.write(lambda tx: tasks.stop_late(tx, limit))
        return late + await self._database.write(lambda tx: tasks.begin_due(tx, limit, self._meter))

    # Webhooks.

    async def take_deliveries(
        self, limit: int, under_way: Mapping[str, int] | None = None
    ) -> list[Delivery]:
        """Begin an attempt at what is due; it is this caller's for a while. `under_way` counts
        the caller's attempts by their URLs."""
        now = self._database.now()
        if not await self._database.read(lambda found: outbox.any_due(found, now)):
            return []
        return await self._database.write(lambda tx: outbox.take_due(tx, limit, under_way or {}))

    async def delivered(self, delivery: Delivery) -> None:
        await self._database.write(lambda tx: outbox.delivered(tx, delivery))

    async def not_delivered(
        self, delivery: Delivery, reason: str, for_good: bool, spread: float
    ) -> None:
        await self._database.write(lambda tx: outbox.failed(tx, delivery, reason, for_good, spread))

    async def webhooks(
        self, tenant: str, state: WebhookState | None, limit: int, before: str | None
    ) -> list[WebhookView]:
        return await self._database.read(
            lambda found: outbox.listed(found, tenant, state, limit, before or "")
        )

    async def send_again(self, tenant: str, name: str) -> WebhookView:
        return await self._database.write(lambda tx: outbox.send_again(tx, tenant, name))
