"""A Redis that may be away: asked in time or not at all, and never asked twice by itself."""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import redis.asyncio as aioredis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import RedisError

from everturn.errors import UsageError
from everturn_activities.redis_refusals import refusal

ANSWER_SECONDS = 0.4
AWAY_SECONDS = 1.0
"""How long a Redis that did not answer is not asked again."""
REFUSED_SECONDS = 60.0
"""How often the log tells of a refusal that lasts."""

CONNECTIONS_MAX = 50
TURN_SECONDS = 10.0

log = logging.getLogger(__name__)

Script = Callable[[Sequence[str], Sequence[str | int]], Awaitable[Any]]


# Writes, so that it fails where they do; what it leaves is gone in a moment.
LOOK = "return redis.call('SET', KEYS[1], '1', 'PX', 1000)"
LOOKED_AT = "everturn:{look}"


class RedisAway(Exception):  # noqa: N818 - a state that passes, not a fault
    """Redis does not answer, or refuses what it is asked, or did so within the last second."""


def connect(url: str, answer_seconds: float) -> "aioredis.Redis":
    """A client that asks once; UsageError for a URL that is none."""
    try:
        pool = aioredis.BlockingConnectionPool.from_url(
            url,
            # One more than these waits for its turn, and is no sign that Redis is away.
            max_connections=CONNECTIONS_MAX,
            timeout=TURN_SECONDS,
            decode_responses=True,
            socket_timeout=answer_seconds,
            socket_connect_timeout=answer_seconds,
            # What is asked twice may be done twice; whoever asked decides.
            retry=Retry(NoBackoff(), 0),
        )
        return aioredis.Redis.from_pool(pool)
    except ValueError:
        raise UsageError(
            "EVERTURN_REDIS_URL is no address of a Redis; write redis://HOST:PORT/0."
        ) from None


class Trouble:
    """What is wrong with a Redis, told to the log: that it is away, and that it is back, once each,
    and what it refuses once a minute, with the mend."""

    def __init__(self, client: "aioredis.Redis", meanwhile: str) -> None:
        at = client.connection_pool.connection_kwargs
        self.address = at.get("path") or f"{at.get('host', 'localhost')}:{at.get('port', 6379)}"
        self.what = "does not answer"
        """Said after its name."""
        self._meanwhile = meanwhile
        self._is_away = False
        self._refused: dict[str, float] = {}

    def lost(self, error: BaseException) -> None:
        refused = refusal(error)
        if refused is None:
            self.what = "does not answer"
            if not self._is_away:
                self._is_away = True
                log.warning(
                    "Redis at %s does not answer (%s): %s",
                    *(self.address, type(error).__name__, self._meanwhile),
                )
            return
        self.what, mend = refused
        now = time.monotonic()
        if now - self._refused.get(self.what, -REFUSED_SECONDS) >= REFUSED_SECONDS:
            self._refused[self.what] = now
            log.warning("Redis at %s %s: %s; %s", *(self.address, self.what, self._meanwhile, mend))

    def answered(self) -> None:
        if self._is_away:
            self._is_away = False
            log.warning("Redis at %s answers again", self.address)


class RedisLink:
    """One process's connections to Redis. Once it does not answer, or refuses what it is asked,
    nobody waits for it for a while: whatever can go on without it does."""

    def __init__(self, url: str, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._client = connect(url, answer_seconds)
        self.trouble = Trouble(self._client, "streams wait for it, and all else goes on")
        self._away_until = 0.0
        self._look = self.script(LOOK)

    async def waits(self) -> str | None:
        """What streams wait for, as a sentence's end, or None."""
        try:
            await self._look([LOOKED_AT], [])
        except RedisAway:
            return f"Redis at {self.trouble.address}, which {self.trouble.what}"
        return None

    @property
    def is_away(self) -> bool:
        return time.monotonic() < self._away_until

    def script(self, text: str) -> Script:
        """A Lua script of `text`, which may be run again where nobody knows whether it was.

        Each call raises RedisAway where Redis does not answer, or refuses.
        """
        script = self._client.register_script(text)

        async def run(keys: Sequence[str], arguments: Sequence[str | int]) -> Any:
            if self.is_away:
                raise RedisAway
            try:
                try:
                    answer = await script(keys=keys, args=arguments)
                except NotConnected:
                    # A server that was started anew has left every connection behind.
                    await self._client.connection_pool.disconnect(inuse_connections=False)
                    answer = await script(keys=keys, args=arguments)
            except (TimeoutError, RedisError, OSError) as error:
                self.lost(error)
                raise RedisAway from None
            self._answered()
            return answer

        return run

    async def publish(self, channels: Sequence[str], message: str) -> None:
        """Tell whoever is subscribed; raises RedisAway."""
        if self.is_away:
            raise RedisAway
        pipeline = self._client.pipeline(transaction=False)
        for channel in channels:
            pipeline.publish(channel, message)
        try:
            await pipeline.execute()
        except (TimeoutError, RedisError, OSError) as error:
            self.lost(error)
            raise RedisAway from None
        self._answered()

    @asynccontextmanager
    async def subscriber(self) -> AsyncIterator["Subscriber"]:
        pubsub = self._client.pubsub()
        try:
            yield Subscriber(pubsub, self.trouble)
        finally:
            with suppress(RedisError, OSError):
                await pubsub.aclose()  # type: ignore[no-untyped-call]

    def lost(self, error: BaseException) -> None:
        """Note that Redis did not answer, or refused."""
        self._away_until = time.monotonic() + AWAY_SECONDS
        self.trouble.lost(error)

    def _answered(self) -> None:
        self._away_until = 0.0
        self.trouble.answered()

    async def close(self) -> None:
        await self._client.aclose()


class Subscriber:
    """A connection on which messages come; each method raises RedisAway where it is lost."""

    def __init__(self, pubsub: PubSub, trouble: Trouble) -> None:
        self._pubsub = pubsub
        self._trouble = trouble
        self.leaving = False

    async def subscribe(self, channels: Sequence[str]) -> None:
        with self._lost_is_away():
            await self._pubsub.subscribe(*channels)

    async def unsubscribe(self, channels: Sequence[str]) -> None:
        with self._lost_is_away():
            await self._pubsub.unsubscribe(*channels)

    async def ping(self) -> None:
        """Have the server say something."""
        with self._lost_is_away():
            await self._pubsub.ping()

    async def next(self, seconds: float) -> tuple[str, str, str] | None:
        """Kind, channel and text of what comes next; None where nothing came."""
        with self._lost_is_away():
            heard = await self._pubsub.get_message(timeout=seconds)
        if heard is None:
            return None
        return heard["type"], heard["channel"] or "", str(heard["data"])

    @contextmanager
    def _lost_is_away(self) -> Iterator[None]:
        try:
            yield
        except (TimeoutError, RedisError, OSError) as error:
            # That it is away whoever asks it tells; what it refuses of this nobody else may hear.
            if refusal(error) is not None:
                self._trouble.lost(error)
            raise RedisAway from None
