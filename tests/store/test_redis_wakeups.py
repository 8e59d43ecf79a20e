"""Wake-ups over Redis: heard by every process, lost without harm, and by themselves again."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from redis_servers import RedisServer, redis_server

from everturn.session import SessionKey
from everturn_activities import redis_wakeups
from everturn_activities.redis_link import RedisLink
from everturn_activities.redis_wakeups import RedisWakeUps
from everturn_activities.wakeups import cancels, logged

KEY = SessionKey("default", "s")


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def prefix() -> str:
    return f"everturn:{secrets.token_hex(4)}:"


async def process(stack: AsyncExitStack, server: RedisServer, prefix: str) -> RedisWakeUps:
    link = RedisLink(server.url)
    stack.push_async_callback(link.close)
    wakeups = RedisWakeUps(link, prefix)
    with wakeups.waiting(SessionKey("default", "first")) as looks:
        await wakeups.listen()
        stack.push_async_callback(wakeups.close)
        async with asyncio.timeout(10):
            # Whoever waits as a process begins to listen looks once.
            await looks.wait()
    return wakeups


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def subscribers(server: RedisServer, wakeups: RedisWakeUps, key: SessionKey) -> bool:
    return server.ask(f"PUBSUB NUMSUB {wakeups.channel(key)}").endswith(":1")


async def test_who_waits_hears_of_its_own_topic_from_another_process(
    redis: RedisServer, stack: AsyncExitStack, prefix: str
) -> None:
    here = await process(stack, redis, prefix)
    elsewhere = await process(stack, redis, prefix)
    with here.waiting(KEY) as session, here.waiting(cancels(KEY)) as cancel:
        await until(lambda: subscribers(redis, here, cancels(KEY)))
        elsewhere.tell({cancels(KEY), SessionKey("default", "another")})
        async with asyncio.timeout(10):
            await cancel.wait()
        assert not session.is_set()
    await until(lambda: not subscribers(redis, here, KEY))


async def test_who_waits_hears_of_its_own_process_without_redis(
    redis: RedisServer, stack: AsyncExitStack, prefix: str
) -> None:
    here = await process(stack, redis, prefix)
    with here.waiting(KEY) as event:
        await asyncio.to_thread(here.tell, {KEY})
        async with asyncio.timeout(10):
            await event.wait()
            event.clear()
        await until(lambda: subscribers(redis, here, KEY))
        # Its own message, which comes back to it, wakes nobody twice.
        here.tell({SessionKey("default", "another")})
        assert not event.is_set()


async def test_who_reads_a_log_looks_once_more_when_it_is_subscribed(
    redis: RedisServer, stack: AsyncExitStack, prefix: str
) -> None:
    here = await process(stack, redis, prefix)
    with here.waiting(logged(KEY)) as reads, here.waiting(KEY) as waits:
        async with asyncio.timeout(10):
            await reads.wait()
        await until(lambda: subscribers(redis, here, KEY))
        assert not waits.is_set()


async def test_a_listener_comes_back_by_itself_and_looks(
    stack: AsyncExitStack, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_wakeups, "AGAIN_SECONDS", 0.02)
    with redis_server(tmp_path) as server:
        here = await process(stack, server, prefix)
        elsewhere = await process(stack, server, prefix)
        with here.waiting(KEY) as event:
            await until(lambda: subscribers(server, here, KEY))
            server.kill()
            elsewhere.tell({KEY})
            server.start()
            async with asyncio.timeout(10):
                # What was told meanwhile is lost: it looks because it listens again.
                await event.wait()
            event.clear()
            await until(lambda: subscribers(server, here, KEY))
            await until(lambda: not elsewhere._link.is_away)
            elsewhere.tell({KEY})
            async with asyncio.timeout(10):
                await event.wait()


async def test_a_connection_that_says_nothing_is_left(
    stack: AsyncExitStack, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one to a machine that is gone: no packet says that it is."""
    monkeypatch.setattr(redis_wakeups, "QUIET_SECONDS", 0.1)
    monkeypatch.setattr(redis_wakeups, "AGAIN_SECONDS", 0.02)
    with redis_server(tmp_path) as server:
        here = await process(stack, server, prefix)
        with here.waiting(KEY) as event:
            await until(lambda: subscribers(server, here, KEY))
            server.pause()
            await asyncio.sleep(0.3)
            server.go_on()
            async with asyncio.timeout(10):
                await event.wait()
