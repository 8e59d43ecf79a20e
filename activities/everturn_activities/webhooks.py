"""Courier: tells those outside what the outbox has for them, signed, until they have it."""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable

from everturn.errors import ToolFailed, UsageError
from everturn.hosts import Reach
from everturn.webhooks import GONE, refusal, signed_headers
from everturn_activities.store import Delivery
from everturn_activities.store.sql_tasks import SqlTasks

LOOK_SECONDS = 0.5
AT_ONCE = 50
SEND_SECONDS = 15.0
"""A receiver takes note, and does its work afterwards."""

SecretOf = Callable[[str, str], str]
"""`(workspace, name)` to the secret; raises UsageError. It may take a while."""

log = logging.getLogger(__name__)


class Courier:
    """`reach` is where deliveries may go."""

    def __init__(self, tasks: SqlTasks, secret_of: SecretOf, reach: Reach) -> None:
        self._tasks = tasks
        self._secret_of = secret_of
        self._reach = reach

    async def run(self) -> None:
        """Deliver what comes due; a slow receiver keeps no other from being told."""
        sending: dict[asyncio.Task[None], str] = {}
        try:
            while True:
                try:
                    under_way = Counter(sending.values())
                    due = await self._tasks.take_deliveries(AT_ONCE - len(sending), under_way)
                except Exception as error:
                    # The store comes back; whatever it was, the next look tries again.
                    log.warning("courier: %s", error)
                    due = []
                for delivery in due:
                    task = asyncio.create_task(self.send(delivery))
                    sending[task] = delivery.url
                    task.add_done_callback(sending.pop)
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)

    async def send(self, delivery: Delivery) -> None:
        """Make one attempt, and keep what came of it."""
        reason, for_good = await self._refused(delivery)
        if reason is None:
            await self._tasks.delivered(delivery)
        else:
            spread = random.random()  # noqa: S311
            await self._tasks.not_delivered(delivery, reason, for_good, spread)

    async def _refused(self, delivery: Delivery) -> tuple[str | None, bool]:
        """Why it was not taken, and whether it never will be."""
        # Imported late: most workers tell nobody.
        from everturn_activities.web import ask

        try:
            secret = await asyncio.to_thread(self._secret_of, delivery.workspace, delivery.secret)
            body = delivery.body.encode()
            headers = signed_headers(secret, delivery.id, int(time.time()), body)
            async with asyncio.timeout(SEND_SECONDS):
                answer = await ask(self._reach, "POST", delivery.url, headers=headers, content=body)
        except (UsageError, ToolFailed) as error:
            return str(error), False
        except TimeoutError:
            return f"The receiver did not answer within {SEND_SECONDS:g} s.", False
        except Exception as error:
            # Whatever it was: an attempt that nobody settled would be made for ever.
            log.warning("courier: %s", type(error).__name__)
            return f"It could not be sent ({type(error).__name__}).", False
        return refusal(answer.status), answer.status == GONE
