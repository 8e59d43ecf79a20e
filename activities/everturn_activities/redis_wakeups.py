"""Tells every process of a fleet which sessions changed, by messages over Redis.

As datagrams are on one machine: a message carries nothing but who sent it, and one may be lost.
While Redis is away whoever waits looks by itself.
"""

import asyncio
import secrets

from everturn.session import SessionKey
from everturn_activities.redis_link import RedisAway, RedisLink, Subscriber
from everturn_activities.wakeups import Exchange, is_logged

PREFIX = "everturn:"
QUIET_SECONDS = 5.0
AGAIN_SECONDS = 0.5
GATHER_SECONDS = 0.004
LEAVE_SECONDS = 0.5


class RedisWakeUps(Exchange):
    """One process's place in the exchange; `tell` may be called from any thread."""

    def __init__(self, link: RedisLink, prefix: str = PREFIX) -> None:
        super().__init__()
        self._link = link
        self._prefix = prefix
        self.sender = secrets.token_hex(6)
        self._due: set[SessionKey] = set()
        self._publishing: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._subscribed: set[SessionKey] = set()
        self._moved = asyncio.Event()

    async def listen(self) -> None:
        """Hear of changes from here on; Redis may be away."""
        self._loop = asyncio.get_running_loop()
        self._listening = asyncio.create_task(self._listen())

    async def close(self) -> None:
        for task in (self._publishing, self._listening):
            if task is not None:
                task.cancel()
                await asyncio.wait([task], timeout=2 * LEAVE_SECONDS)

    def tell(self, keys: set[SessionKey]) -> None:
        super().tell(keys)
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._take, keys)
            except RuntimeError:
                return  # The loop has ended, and the process with it.

    def channel(self, key: SessionKey) -> str:
        return f"{self._prefix}{{{key.tenant}/{key.session}}}:told"

    def _take(self, keys: set[SessionKey]) -> None:
        self._due |= keys
        if self._publishing is None:
            self._publishing = asyncio.create_task(self._publish())

    async def _publish(self) -> None:
        try:
            while self._due:
                await asyncio.sleep(GATHER_SECONDS)
                keys, self._due = self._due, set()
                await self._link.publish([self.channel(key) for key in keys], self.sender)
        except RedisAway:
            self._due.clear()  # Whoever waits for one of them looks by itself.
        finally:
            self._publishing = None

    def _waits_changed(self) -> None:
        self._moved.set()

    async def _listen(self) -> None:
        while True:
            self._subscribed.clear()
            try:
                async with self._link.subscriber() as subscriber:
                    # So that there is always something to listen to.
                    await subscriber.subscribe([f"{self._prefix}{{told}}:all"])
                    # What was told while nobody listened.
                    self._heard_keys(set(self._waiting))
                    self._moved.set()
                    following = asyncio.create_task(self._follow(subscriber))
                    try:
                        await self._hear(subscriber, following)
                    finally:
                        # One that is just sending would swallow a cancel.
                        subscriber.leaving = True
                        self._moved.set()
                        await asyncio.wait([following], timeout=LEAVE_SECONDS)
                        following.cancel()
            except RedisAway:
                await asyncio.sleep(AGAIN_SECONDS)

    async def _follow(self, subscriber: Subscriber) -> None:
        """Keep subscribed to what somebody here waits for."""
        while True:
            await self._moved.wait()
            if subscriber.leaving:
                return
            self._moved.clear()
            wanted = set(self._waiting)
            new, old = wanted - self._subscribed, self._subscribed - wanted
            self._subscribed = wanted
            if new:
                await subscriber.subscribe([self.channel(key) for key in new])
            if old:
                await subscriber.unsubscribe([self.channel(key) for key in old])

    async def _hear(self, subscriber: Subscriber, following: "asyncio.Task[None]") -> None:
        asked = False
        while not following.done():
            heard = await subscriber.next(QUIET_SECONDS)
            if heard is None:
                # A connection to a machine that is gone says nothing, either.
                if asked:
                    raise RedisAway
                asked = True
                await subscriber.ping()
                continue
            asked = False
            kind, channel, sender = heard
            key = self._key(channel)
            if key is None or sender == self.sender:
                continue
            # A watcher has read before it was subscribed: what came between is found now.
            if kind == "message" or is_logged(key):
                self._heard_keys({key})
        following.result()

    def _key(self, channel: str) -> SessionKey | None:
        inside = channel.removeprefix(self._prefix + "{").removesuffix("}:told")
        tenant, slash, session = inside.partition("/")
        return SessionKey(tenant, session) if slash else None
