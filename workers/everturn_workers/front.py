"""What accepts work for sessions: commit to the inbox first, then wake the turn."""

import asyncio
import logging
from typing import Protocol

from everturn.session import SessionKey
from everturn.views import AcceptedView
from everturn_activities.store import Inbound, Store, Wake

WAKE_SECONDS = 1.0
"""How long a sender waits for the wake-up of what is already committed."""

log = logging.getLogger(__name__)


class Waker(Protocol):
    """Wakes the workflow that hosts, or will host, a session."""

    async def wake(self, wake: Wake) -> None: ...


class Front:
    """The one way in for messages and cancels, whichever door they came through."""

    def __init__(self, store: Store, waker: Waker) -> None:
        self._store = store
        self._waker = waker

    async def accept(self, key: SessionKey, inbound: Inbound) -> AcceptedView:
        """Commit `inbound` and wake its session.

        Returns once it is committed; a wake-up that fails is made up for by the
        reconciler, so it is logged and not raised.
        """
        accepted = await self._store.accept(key, inbound)
        if accepted.wake is not None:
            try:
                async with asyncio.timeout(WAKE_SECONDS):
                    await self._waker.wake(accepted.wake)
            except Exception as error:
                log.warning("session %s was not woken, the reconciler will: %s", key.session, error)
        return accepted.view
