"""What accepts work for sessions: commit to the inbox first, then wake the turn."""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, Protocol

from everturn.budgets import Budget, Scope
from everturn.session import SessionKey
from everturn.views import AcceptedView, BudgetView
from everturn_activities.store import Inbound, Store, Wake

WAKE_SECONDS = 1.0
"""How long a sender waits for the wake-up of what is already committed; it goes on after that."""

log = logging.getLogger(__name__)


class Waker(Protocol):
    """Wakes the workflow that hosts, or will host, a session, or that works a swarm."""

    async def wake(self, wake: Wake) -> None: ...
    async def wake_swarm(self, key: SessionKey) -> None: ...


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
            await self.wake(accepted.wake)
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
        await self.wake_all(await self._store.settle_asks(tenant))

    async def wake_all(self, wakes: Iterable[Wake | None]) -> None:
        """Wake sessions side by side; None are those that need no waking."""
        signals = {self._begun(wake) for wake in wakes if wake is not None}
        if signals:
            await asyncio.wait(signals, timeout=WAKE_SECONDS)

    async def wake(self, wake: Wake) -> None:
        """Wake a session whose work is committed, as far as that can be done at once."""
        await asyncio.wait({self._begun(wake)}, timeout=WAKE_SECONDS)

    async def wake_swarm(self, key: SessionKey) -> None:
        """Wake a swarm, in the same way."""
        signal = self._sent(self._waker.wake_swarm(key), f"swarm {key.session}")
        await asyncio.wait({self._kept(signal)}, timeout=WAKE_SECONDS)

    def _begun(self, wake: Wake) -> asyncio.Task[None]:
        return self._kept(self._sent(self._waker.wake(wake), f"session {wake.key.session}"))

    def _kept(self, signal: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # Cut off, a wake-up that a busy server is late with would wait for the reconciler.
        waking = asyncio.create_task(signal)
        self._waking.add(waking)
        waking.add_done_callback(self._waking.discard)
        return waking

    async def _sent(self, signal: Awaitable[None], what: str) -> None:
        try:
            await signal
        except Exception as error:
            log.warning("%s was not woken, the reconciler will: %s", what, error)
