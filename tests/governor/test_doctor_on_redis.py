"""What `everturn doctor` says of the governor's Redis."""

from pathlib import Path

import pytest
from governed import call, granted, limits
from redis_servers import RedisServer

from everturn_activities.governor import Ending
from everturn_activities.governor.redis import RedisGovernor
from everturn_workers.doctor import Check, checks
from everturn_workers.settings import read_settings


async def about_redis(home: Path, url: str) -> Check:
    found = await checks(read_settings(home=home, redis_url=url), {})
    return next(check for check in found if check.name == "redis")


async def test_it_says_whom_the_fleet_leaves_alone(tmp_path: Path, redis: RedisServer) -> None:
    url = redis.url.removesuffix("0") + "3"
    governor = RedisGovernor(url, limits({}))
    permit = await granted(governor, call("c"))
    await governor.settle(permit, Ending("rate_limited", retry_after_seconds=60))
    await governor.close()
    check = await about_redis(tmp_path, url)
    assert check.ok
    assert "provider is paused" in check.sentence


@pytest.mark.parametrize("url", ["redis://:secret@127.0.0.1:1/0", "localhost:secret"])
async def test_it_names_the_mend_and_no_password_and_logs_nothing(
    tmp_path: Path, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    check = await about_redis(tmp_path, url)
    assert caplog.records == []
    assert not check.ok
    assert "EVERTURN_REDIS_URL" in f"{check.sentence} {check.mend}"
    assert "secret" not in f"{check.sentence} {check.mend}"
