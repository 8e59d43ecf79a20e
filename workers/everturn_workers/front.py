"""What accepts work for sessions: commit to the inbox first, then wake the turn."""

import asyncio
import logging
from typing import Protocol

from everturn.budgets import Budget, Scope
from everturn.session import SessionKey
from everturn.views import AcceptedView, BudgetView
from everturn_activities.store import Inbound, Store, Wake

WAKE_SECONDS = 1.0
"""How long a sender waits for the wake-up of what is already committed; it goes on after that."""

log = logging.getLogger(__name__)


class Waker(Protocol):
    """Wakes the workflow that hosts, or will host, a session."""

    async def wake(self, wake: Wake) -> None: ...


class Front:
    """The one way in for messages and cancels, whichever door they came through."""

    def __init__(self, store: Store, waker: Waker) -> None:
        self._store = store
        self._waker = waker
        self._waking: set[asyncio.Task[None]] = set()

    async def accept(self, key: SessionKey, inbound: Inbound) -> AcceptedView:
        """Commit `inbound` and wake its session.

        Returns once it is committed; a wake-up that fails is made up for by the
        reconciler, so it is logged and not raised.
        """
        accepted = await self._store.accept(key, inbound)
        if accepted.wake is not None:
            await self._wake(accepted.wake)
        if inbound.budget is not None and accepted.view.status == "accepted":
            await self.settle_asks(key.tenant)
        return accepted.view

    async def put_budget(
        self, tenant: str, scope: Scope, session: str | None, budget: Budget
    ) -> BudgetView:
        """Set a budget, and wake the turns that wait for it."""
        view = await self._store.put_budget(tenant, scope, session, budget)
        await self.settle_asks(tenant)
        return view

    async def settle_asks(self, tenant: str) -> None:
        for wake in await self._store.settle_asks(tenant):
            await self._wake(wake)

    async def _wake(self, wake: Wake) -> None:
        # Cut off, a wake-up that a busy server is late with would wait for the reconciler.
        waking = asyncio.create_task(self._signal(wake))
        self._waking.add(waking)
        waking.add_done_callback(self._waking.discard)
        await asyncio.wait({waking}, timeout=WAKE_SECONDS)

    async def _signal(self, wake: Wake) -> None:
        try:
            await self._waker.wake(wake)
        except Exception as error:
            name = wake.key.session
            log.warning("session %s was not woken, the reconciler will: %s", name, error)
