"""What `everturn doctor` says of the governor's Redis."""

from dataclasses import replace
from pathlib import Path

import pytest
from governed import call, granted, limits
from redis_servers import RedisServer

from everturn_activities.governor import Ending
from everturn_activities.governor.redis import RedisGovernor
from everturn_activities.redis_look import RedisFacts, look
from everturn_activities.redis_refusals import RIGHTS
from everturn_workers.check import Check
from everturn_workers.check_redis import troubles
from everturn_workers.doctor import checks
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


async def test_it_tells_a_wrong_password_from_a_server_that_is_away(
    tmp_path: Path, redis: RedisServer
) -> None:
    redis.ask(f"ACL SETUSER guarded on >right-0123 {RIGHTS}")
    redis.ask("ACL SETUSER narrow on >right-0123 ~* +ping +select +info")
    at = f"127.0.0.1:{redis.port}/0"

    wrong = await about_redis(tmp_path, f"redis://guarded:wrong-0123@{at}")
    right = await about_redis(tmp_path, f"redis://guarded:right-0123@{at}")
    narrow = await about_redis(tmp_path, f"redis://narrow:right-0123@{at}")

    assert (wrong.ok, right.ok, narrow.ok) == (False, True, False)
    assert "refuses the user or the password" in wrong.sentence
    assert "does all that we need, and keeps no log of its writes" in right.sentence
    assert "does not allow our user what we need" in narrow.sentence
    assert RIGHTS in (narrow.mend or "")
    assert "0123" not in f"{wrong}{right}{narrow}"


@pytest.mark.parametrize(
    "lacks", ["-@scripting", "-publish", "-subscribe", "resetchannels", "resetkeys"]
)
async def test_it_tries_what_is_needed(tmp_path: Path, redis: RedisServer, lacks: str) -> None:
    redis.ask(f"ACL SETUSER tried on >t {RIGHTS} {lacks}")
    url = f"redis://tried:t@127.0.0.1:{redis.port}/0"
    try:
        assert "does not allow our user" in (await about_redis(tmp_path, url)).sentence
    finally:
        redis.ask("ACL DELUSER tried")


async def test_memory_that_is_full_is_a_fault(tmp_path: Path, redis: RedisServer) -> None:
    redis.ask("CONFIG SET maxmemory 1mb")
    try:
        check = await about_redis(tmp_path, redis.url)
    finally:
        redis.ask("CONFIG SET maxmemory 0")
    assert not check.ok
    assert "has no memory left" in check.sentence
    assert "maxmemory" in (check.mend or "")


async def test_it_warns_where_a_restart_loses_what_watchers_read(
    tmp_path: Path, redis: RedisServer
) -> None:
    found = await checks(read_settings(home=tmp_path, redis_url=redis.url), {})

    [warned] = [check for check in found if check.name == "redis" and check.mend]
    assert warned.ok
    assert "appendonly yes" in (warned.mend or "")


FINE = RedisFacts(
    "7.0.15", is_replica=False, has_aof=True, cannot_write=False, evicts=None, memory_share=0.8
)


@pytest.mark.parametrize(
    ("facts", "ok", "says"),
    [
        (replace(FINE, version="6.0.16"), False, "older than 6.2"),
        (replace(FINE, is_replica=True), False, "takes no writes"),
        (replace(FINE, cannot_write=True), False, "could not write its data"),
        (replace(FINE, has_aof=False), True, "keeps no log of its writes"),
        (replace(FINE, memory_share=0.93), True, "has taken 93% of the memory"),
        (replace(FINE, evicts="allkeys-lru"), True, "maxmemory-policy allkeys-lru"),
    ],
)
def test_each_trouble_of_a_redis_has_its_sentence(facts: RedisFacts, ok: bool, says: str) -> None:
    [check] = troubles(facts)

    assert check.ok == ok
    assert says in check.sentence
    assert check.mend


def test_a_redis_as_it_should_be_has_no_trouble() -> None:
    assert troubles(FINE) == []
    assert troubles(replace(FINE, version="6.2")) == []


async def test_a_policy_counts_only_where_memory_is_limited(redis: RedisServer) -> None:
    redis.ask("CONFIG SET maxmemory-policy allkeys-lru")
    try:
        unlimited = await look(redis.url, 2)
        redis.ask("CONFIG SET maxmemory 100mb")
        limited = await look(redis.url, 2)
    finally:
        redis.ask("CONFIG SET maxmemory 0")
        redis.ask("CONFIG SET maxmemory-policy noeviction")

    assert isinstance(unlimited, RedisFacts)
    assert isinstance(limited, RedisFacts)
    assert (unlimited.evicts, limited.evicts) == (None, "allkeys-lru")
    assert unlimited.memory_share is None
    assert limited.memory_share is not None
    assert 0 < limited.memory_share < 1
