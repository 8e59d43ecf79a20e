"""How a crowd meets a limit that nobody has declared, whatever keeps the governor's state."""

import pytest
from crowds import Crowd, Strict, Telling
from governed import OK, Clock, Opened, call, granted, limits, waits

from everturn_activities.gateways.allowances import Allowance
from everturn_activities.governor import Ending, Wait, sentence
from everturn_activities.governor.memory import MemoryGovernor
from everturn_activities.governor.quick import QuickGovernor

# PostgreSQL has SQLite's statements, and takes longer to run so many of them.
but_postgres = pytest.mark.parametrize("opened", ["memory", "sqlite", "redis"], indirect=True)


async def quick(opened: Opened, **given: object) -> QuickGovernor:
    governor = QuickGovernor(await opened.open(**given), limits(given))
    await governor.look()
    return governor


@but_postgres
async def test_a_crowd_learns_a_limit_by_very_few_refusals(opened: Opened) -> None:
    endpoint = Strict(per_second=20)
    crowd = Crowd(opened.clock, [await quick(opened)], endpoint, late_seconds=0.3)
    seconds = await crowd.run(callers=200)
    assert 0 < endpoint.refused < 0.02 * (200 + endpoint.refused)
    assert seconds < 2 * 200 / 20


@pytest.mark.parametrize("late_seconds", [0.02, 0.1, 0.6])
@pytest.mark.parametrize("per_second", [10, 20, 50])
async def test_few_are_refused_however_late_answers_come(
    late_seconds: float, per_second: int
) -> None:
    clock, endpoint = Clock(), Strict(per_second)
    governor = QuickGovernor(MemoryGovernor(limits({}), clock), limits({}))
    await governor.look()
    seconds = await Crowd(clock, [governor], endpoint, late_seconds).run(callers=200)
    assert endpoint.refused < 0.02 * (200 + endpoint.refused)
    assert seconds < max(12, 2 * 200 / per_second)


@but_postgres
async def test_ten_callers_never_wait_however_fast_they_call(opened: Opened) -> None:
    endpoint = Strict(per_second=10**6)
    crowd = Crowd(opened.clock, [await quick(opened)], endpoint, late_seconds=0.02)
    seconds = await crowd.run(callers=10, calls=20)
    # All the time that a caller needs for anything is the endpoint's.
    assert max(crowd.waited.values()) <= 0.02
    assert seconds < 20 * 3 * 0.02
    assert not (await crowd.governors[0].state()).keys


@but_postgres
async def test_a_crowd_at_a_provider_without_limits_soon_asks_nobody(opened: Opened) -> None:
    endpoint = Strict(per_second=10**6)
    crowd = Crowd(opened.clock, [await quick(opened)], endpoint)
    assert await crowd.run(callers=200) < 12
    await crowd.governors[0].look()
    # A pace that went well is no limit: the same crowd is not held up a second time.
    crowd.waited.clear()
    assert await crowd.run(callers=30) < 2


@but_postgres
async def test_a_provider_that_tells_its_limit_refuses_nobody(opened: Opened) -> None:
    endpoint = Telling(limit=60)
    crowd = Crowd(opened.clock, [await quick(opened)], endpoint)
    seconds = await crowd.run(callers=100)
    assert endpoint.refused == 0
    # Sixty are there at once, and then one comes every second.
    assert seconds < 1.25 * 40


async def test_a_crowd_need_not_be_careful_where_the_provider_tells_of_much_room() -> None:
    clock, endpoint = Clock(), Telling(limit=1_200)
    governor = QuickGovernor(MemoryGovernor(limits({}), clock), limits({}))
    await governor.look()
    # Without a word of the provider's it takes ten seconds.
    assert await Crowd(clock, [governor], endpoint).run(callers=200) < 7
    assert endpoint.refused == 0


@but_postgres
async def test_what_a_provider_says_is_left_is_shared_out(opened: Opened) -> None:
    governor = await opened.open()
    told = Allowance("calls", limit=60, remaining=3, reset_seconds=57)
    await governor.settle(await granted(governor, call("first")), Ending("ok", allowances=(told,)))
    (key,) = (await governor.state()).keys
    assert key.told
    for number in range(3):
        await granted(governor, call(f"c{number}"))
    wait = await waits(governor, call("c"))
    assert wait.cause == "rate"
    # Nine tenths of one a second: others may use the key too.
    assert wait.seconds == pytest.approx(1 / 0.9, rel=0.01)
    opened.clock.now += 60
    assert not any(key.told for key in (await governor.state()).keys)
    for number in range(10):
        await granted(governor, call(f"d{number}"))


@but_postgres
async def test_tokens_that_are_left_are_counted_like_calls(opened: Opened) -> None:
    governor = await opened.open()
    told = Allowance("tokens", limit=60_000, remaining=6_000, reset_seconds=54)
    await governor.settle(await granted(governor, call("first")), Ending("ok", allowances=(told,)))
    second = await granted(governor, call("second", tokens=5_000))
    assert (await waits(governor, call("third", tokens=3_000))).cause == "rate"
    await governor.settle(second, Ending("ok", tokens=1_000))
    await granted(governor, call("third", tokens=3_000))


@but_postgres
async def test_an_allowance_that_is_ample_again_holds_nobody_back(opened: Opened) -> None:
    governor = await opened.open()
    low, ample = (Allowance("calls", 60, left, 60 - left) for left in (0, 50))
    one, other = await granted(governor, call("a")), await granted(governor, call("b"))
    await governor.settle(one, Ending("ok", allowances=(low,)))
    await waits(governor, call("c"))
    await governor.settle(other, Ending("ok", allowances=(ample,)))
    await granted(governor, call("c"))


@but_postgres
async def test_a_pace_is_remembered_by_all_and_forgotten_in_time(opened: Opened) -> None:
    one, other = await opened.open(), await opened.open()
    for number in range(20):
        opened.clock.now += 0.2
        await one.ask(call(f"c{number}", crowded=True))
    (key,) = (await other.state()).keys
    assert key.pace is not None
    assert 6 < key.pace < 11
    assert key.rate is None
    opened.clock.now += 3700
    assert (await other.state()).keys == []


@but_postgres
async def test_a_crowd_is_told_why_it_waits(opened: Opened) -> None:
    governor = await opened.open()
    await granted(governor, call("first", crowded=True))
    told: list[Wait] = []
    for number in range(40):
        told.append(await waits(governor, call(f"c{number}", crowded=True)))
    assert [wait.ahead for wait in told] == list(range(40))
    # The pace rises while they wait: the last waits shorter than 40 at the first pace would.
    assert 4 < told[-1].seconds < 5 < 40 / 5
    text = sentence(call("c"), told[-1])
    assert "while its limit is not known, and 39 go first" in text


@but_postgres
async def test_whoever_waits_in_a_crowd_is_served_by_tenant(opened: Opened) -> None:
    governor = await opened.open()
    await granted(governor, call("first", crowded=True))
    for number in range(30):
        await waits(governor, call(f"l{number}", tenant="large", crowded=True))
    wait = await waits(governor, call("s", tenant="small", crowded=True))
    assert wait.ahead <= 1


@pytest.mark.parametrize("given", [{"careful": False}, {"requests_per_second": 1000}])
@but_postgres
async def test_a_crowd_begins_at_once_where_that_is_wanted(
    opened: Opened, given: dict[str, object]
) -> None:
    governor = await quick(opened, **given)
    crowd = Crowd(opened.clock, [governor], Strict(10**6), late_seconds=1.0)
    assert await crowd.run(callers=100) < 4.1


@but_postgres
async def test_what_was_learnt_is_where_a_crowd_goes_on_when_it_is_forgotten(
    opened: Opened,
) -> None:
    governor = await opened.open()
    await governor.settle(
        await granted(governor, call("c")), Ending("rate_limited", retry_after_seconds=1)
    )
    opened.clock.now += 119
    await granted(governor, call("d", crowded=True))
    await governor.settle(await granted(governor, call("e")), OK)
    opened.clock.now += 10
    (key,) = (await governor.state()).keys
    assert key.rate is None
    assert key.pace == pytest.approx(3.5 * (1 + 119 / 30))
