"""A Redis that goes away and comes back."""

from pathlib import Path

import pytest
from governed import OK, Clock, call, fails, granted, limits, waits
from redis_servers import BINARY, redis_server

from everturn.errors import UsageError
from everturn_activities.governor import Ending
from everturn_activities.governor.redis import AWAY_SECONDS, RedisGovernor

needs_redis = pytest.mark.skipif(
    BINARY is None, reason="There is no redis-server; install redis-server."
)


@needs_redis
async def test_without_redis_calls_go_on_at_a_quarter_of_the_limit(tmp_path: Path) -> None:
    clock = Clock()
    with redis_server(tmp_path) as server:
        governor = RedisGovernor(server.url, limits({"requests_per_minute": 600}), clock)
        await granted(governor, call("before"))
        server.kill()
        await granted(governor, call("a"))
        state = await governor.state()
        assert state.note is not None
        wait = await waits(governor, call("b"))
        assert wait.seconds == pytest.approx(60 / 150, rel=0.2)

        # It comes back without its data, and is found again.
        server.start()
        clock.now += AWAY_SECONDS
        assert (await governor.state()).note is None
        await granted(governor, call("b"))
        assert (await governor.state()).note is None
        await governor.close()


@needs_redis
async def test_a_call_that_began_without_redis_gives_its_slot_back(tmp_path: Path) -> None:
    clock = Clock()
    with redis_server(tmp_path) as server:
        governor = RedisGovernor(server.url, limits({"concurrency": 1}), clock)
        server.kill()
        first = await granted(governor, call("first"))
        await waits(governor, call("second"))
        await fails(governor, "elsewhere", model="another")
        await governor.renew([first])
        await governor.settle(first, OK)
        await granted(governor, call("second"))
        await governor.close()


@needs_redis
async def test_a_call_that_began_without_redis_gives_nothing_back_there(tmp_path: Path) -> None:
    """Its answer took fewer tokens than it asked for, which Redis had never taken."""
    clock = Clock()
    with redis_server(tmp_path) as server:
        governor = RedisGovernor(server.url, limits({"tokens_per_minute": 6_000}), clock)
        server.kill()
        alone = await granted(governor, call("alone", tokens=100))
        server.start()
        clock.now += AWAY_SECONDS
        await granted(governor, call("there", tokens=600))
        before = await waits(governor, call("next", tokens=600))
        await governor.settle(alone, Ending("ok", tokens=1))
        assert (await waits(governor, call("next", tokens=600))).seconds == before.seconds
        await governor.close()


def test_an_address_that_is_none_is_named_with_the_mend() -> None:
    with pytest.raises(UsageError, match=r"EVERTURN_REDIS_URL.*redis://HOST:PORT/0"):
        RedisGovernor("localhost", limits({}))
