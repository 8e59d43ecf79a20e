"""A Redis that answers and does not do what it is asked: told as what it is, with the mend."""

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from governed import call, granted, limits
from redis.exceptions import ResponseError
from redis_servers import RedisServer

from everturn_activities.governor.redis import RedisGovernor
from everturn_activities.redis_link import RedisAway, RedisLink
from everturn_activities.redis_refusals import RIGHTS, refusal

PASSWORD = "canary-0123"


@contextmanager
def told(redis: RedisServer, *commands: str, after: str) -> Iterator[None]:
    for command in commands:
        assert redis.ask(command) == "+OK"
    try:
        yield
    finally:
        assert redis.ask(after) == "+OK"


@pytest.fixture
def user(redis: RedisServer) -> Iterator[str]:
    """The URL of a user who may do nothing yet."""
    redis.ask(f"ACL SETUSER narrow on >{PASSWORD} resetkeys resetchannels -@all")
    yield f"redis://narrow:{PASSWORD}@127.0.0.1:{redis.port}/0"
    redis.ask("ACL DELUSER narrow")


async def refused(url: str) -> str:
    """What streams are said to wait for, asked twice."""
    link = RedisLink(url)
    try:
        what = await link.waits()
        assert what is not None
        assert await link.waits() == what
        with pytest.raises(RedisAway):
            await link.publish(["everturn:x"], "m")
    finally:
        await link.close()
    return what


def the_log(caplog: pytest.LogCaptureFixture) -> str:
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    said = record.getMessage()
    assert PASSWORD not in said
    return said


async def test_a_user_who_may_not_is_told_once_and_what_it_needs(
    redis: RedisServer, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    what = await refused(user)

    at = f"Redis at 127.0.0.1:{redis.port}"
    assert what == f"{at}, which does not allow our user what we need"
    assert the_log(caplog) == (
        f"{at} does not allow our user what we need: streams wait for it, and all else goes on;"
        f" ACL SETUSER its name with {RIGHTS}"
    )


async def test_who_may_run_scripts_but_not_what_is_in_them_is_told_the_same(
    redis: RedisServer, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    redis.ask("ACL SETUSER narrow ~everturn:* &everturn:* +@scripting")

    assert "does not allow our user" in await refused(user)

    assert RIGHTS in the_log(caplog)


@pytest.mark.parametrize(
    ("command", "after", "says", "mend"),
    [
        ("CONFIG SET maxmemory 1mb", "CONFIG SET maxmemory 0", "no memory left", "raise its max"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "is a replica", "name its primary"),
        (
            "CONFIG SET min-replicas-to-write 1",
            "CONFIG SET min-replicas-to-write 0",
            "fewer replicas than it wants",
            "min-replicas-to-write",
        ),
    ],
)
async def test_a_server_that_takes_no_writes_is_told_with_the_mend(
    redis: RedisServer,
    caplog: pytest.LogCaptureFixture,
    command: str,
    after: str,
    says: str,
    mend: str,
) -> None:
    with told(redis, command, after=after):
        assert says in await refused(redis.url)
    assert mend in the_log(caplog)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (f"narrow:wrong-{PASSWORD}@127.0.0.1:PORT/0", "refuses the user or the password"),
        ("127.0.0.1:PORT/99", "has no database of that number"),
    ],
)
async def test_an_address_that_is_refused_is_told_without_the_password(
    redis: RedisServer, caplog: pytest.LogCaptureFixture, path: str, says: str
) -> None:
    assert says in await refused("redis://" + path.replace("PORT", str(redis.port)))

    assert "mend EVERTURN_REDIS_URL" in the_log(caplog)


async def test_a_server_with_as_many_clients_as_it_takes_is_not_told_as_one_that_is_away(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(("127.0.0.1", redis.port), 5) as operator:

        def limit(clients: int) -> None:
            operator.sendall(f"CONFIG SET maxclients {clients}\r\n".encode())
            assert operator.recv(4096) == b"+OK\r\n"

        limit(1)
        try:
            assert "has as many clients as it takes" in await refused(redis.url)
        finally:
            limit(10_000)
    assert "raise its maxclients" in the_log(caplog)


def test_no_mend_sends_an_operator_to_the_doctor_who_would_say_the_same() -> None:
    told = refusal(ResponseError("unknown command 'XADD'"))

    assert told is not None
    assert "doctor" not in told[1]
    assert "Redis from 6.2 on" in told[1]


async def test_who_may_not_listen_is_told_though_all_else_is_done(
    redis: RedisServer, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    redis.ask("ACL SETUSER narrow ~everturn:* +@all")
    link = RedisLink(user)
    async with link.subscriber() as subscriber:
        for _ in range(2):
            await subscriber.subscribe(["everturn:x"])
            with pytest.raises(RedisAway):
                await subscriber.next(5)
        assert await link.waits() is None
    await link.close()

    assert "does not allow our user what we need" in the_log(caplog)


async def test_without_leave_calls_go_on_at_a_quarter_and_the_log_says_why(
    user: str, caplog: pytest.LogCaptureFixture
) -> None:
    governor = RedisGovernor(user, limits({"requests_per_minute": 600}))
    await granted(governor, call("a"))
    state = await governor.state()
    await governor.close()

    assert state.note == (
        "Redis does not allow our user what we need: each process governs itself."
    )
    assert "each process keeps to 25% of the limits by itself" in the_log(caplog)


async def test_the_rights_that_are_named_are_enough(
    redis: RedisServer, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    redis.ask(f"ACL SETUSER narrow {RIGHTS}")
    link = RedisLink(user)
    async with link.subscriber() as subscriber:
        await subscriber.subscribe(["everturn:x"])
        assert await subscriber.next(5)
        await link.publish(["everturn:x"], "m")
        assert await subscriber.next(5) == ("message", "everturn:x", "m")
    assert await link.waits() is None
    await link.close()
    governor = RedisGovernor(user, limits({"requests_per_minute": 600}))
    await granted(governor, call("rights"))
    assert (await governor.state()).note is None
    await governor.close()
    assert caplog.records == []
