"""Several processes: what one learns holds for all, and what a dead one held is free."""

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from governed import call, granted, limits, waits
from holding_process import GIVEN

from everturn_activities.governor import Governor
from everturn_activities.governor.redis import RedisGovernor
from everturn_activities.governor.rules import LEASE_SECONDS
from everturn_activities.governor.sql import SqlGovernor
from everturn_activities.store.database import SqliteDatabase

PROCESS = Path(__file__).with_name("holding_process.py")


@pytest.fixture(params=["sqlite", "redis"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    url: str = request.getfixturevalue("redis").url
    return url.removesuffix("0") + ("1" if "holds" in request.node.name else "2")


@contextmanager
def another_process(where: str, what: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, str(PROCESS), where, what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        yield process
        process.kill()


@asynccontextmanager
async def ours(where: str, clock: Callable[[], float] | None = None) -> AsyncIterator[Governor]:
    """Our own governor on the same state; `clock` may be ahead of the other process's."""
    if where.startswith("redis"):
        redis = RedisGovernor(where, limits(GIVEN), clock)
        yield redis
        await redis.close()
    else:
        database = SqliteDatabase(Path(where), lambda told: None, clock or time.time)
        yield SqlGovernor(database, limits(GIVEN))
        await database.close()


async def test_what_a_killed_process_holds_is_free_once_its_lease_ends(where: str) -> None:
    with another_process(where, "hold") as process:
        async with ours(where) as governor:
            assert (await waits(governor, call("next"))).cause == "busy"
            process.kill()
            process.wait()
            assert (await waits(governor, call("next"))).cause == "busy"
    async with ours(where, lambda: time.time() + LEASE_SECONDS + 1) as later:
        await granted(later, call("next"))


async def test_a_breaker_that_one_process_opened_is_open_in_another(where: str) -> None:
    with another_process(where, "fail"):
        async with ours(where) as governor:
            assert (await waits(governor, call("next"))).cause == "open"
