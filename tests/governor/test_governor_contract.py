"""What every governor does, whatever keeps its state."""

import itertools

import pytest
from governed import OK, Opened, call, fails, granted, waits

from everturn_activities.governor import Ending, Permit, Wait


async def test_calls_go_on_where_nothing_is_declared(opened: Opened) -> None:
    governor = await opened.open()
    for number in range(100):
        await granted(governor, call(f"c{number}"))
    assert (await governor.state()).keys == []


async def test_no_second_sees_more_calls_than_are_allowed(opened: Opened) -> None:
    governor = await opened.open(requests_per_second=20)
    began: list[float] = []
    due = {f"c{number}": opened.clock.now for number in range(100)}
    while due:
        name = min(due, key=lambda one: due[one])
        opened.clock.now = max(opened.clock.now, due.pop(name))
        answer = await governor.ask(call(name))
        if isinstance(answer, Wait):
            due[name] = opened.clock.now + answer.seconds
        else:
            began.append(opened.clock.now + answer.after_seconds)
    began.sort()
    fullest = max(sum(1 for b in began if a <= b < a + 1) for a in began)
    assert fullest <= 20
    # And they go as fast as is allowed.
    assert began[-1] - began[0] < 100 / 20 * 1.2


async def test_a_tenant_with_few_calls_is_served_in_turn_with_one_that_has_many(
    opened: Opened,
) -> None:
    governor = await opened.open(requests_per_second=10)
    due = {("large", f"l{number}"): opened.clock.now for number in range(60)}
    for tenant, name in due:
        await governor.ask(call(name, tenant))
    due |= {("small", f"s{number}"): opened.clock.now for number in range(5)}
    order: list[str] = []
    while due:
        opened.clock.now += 0.1
        for tenant, name in [one for one, at in due.items() if at <= opened.clock.now]:
            answer = await governor.ask(call(name, tenant))
            if isinstance(answer, Permit):
                order.append(tenant)
                del due[(tenant, name)]
            else:
                due[(tenant, name)] = opened.clock.now + answer.seconds
    assert order.index("small") < 10
    last = len(order) - 1 - order[::-1].index("small")
    assert last < 25


async def test_an_urgent_call_waits_for_no_lesser_ones_of_its_tenant(opened: Opened) -> None:
    governor = await opened.open(requests_per_second=10)
    for number in range(60):
        await governor.ask(call(f"low{number}", priority=4))
    wait = await governor.ask(call("high", priority=1))
    assert isinstance(wait, Wait)
    assert wait.ahead <= 1
    common = await governor.ask(call("common", priority=3))
    assert isinstance(common, Wait)
    assert common.ahead <= 5
    last = await governor.ask(call("last", priority=4))
    assert isinstance(last, Wait)
    assert last.ahead > 50


async def test_the_wait_tells_how_many_go_first_and_how_long_that_takes(opened: Opened) -> None:
    governor = await opened.open(requests_per_minute=60)
    while isinstance(await governor.ask(call("first")), Permit):
        pass
    told = [await waits(governor, call(f"c{number}")) for number in range(5)]
    assert [wait.ahead for wait in told] == [1, 2, 3, 4, 5]
    assert [wait.cause for wait in told] == ["rate"] * 5
    seconds = [wait.seconds for wait in told]
    assert seconds == sorted(seconds)
    assert 4 < seconds[-1] < 10


async def test_who_does_not_come_back_is_passed_by(opened: Opened) -> None:
    governor = await opened.open(requests_per_second=1)
    await granted(governor, call("first"))
    gone = await waits(governor, call("gone"))
    patient = await waits(governor, call("patient"))
    assert patient.seconds > gone.seconds
    opened.clock.now += gone.seconds + 2
    await granted(governor, call("patient"))


async def test_a_call_that_asks_again_keeps_its_place(opened: Opened) -> None:
    governor = await opened.open(requests_per_second=1)
    await granted(governor, call("first"))
    await waits(governor, call("second"))
    await waits(governor, call("third"))
    assert (await waits(governor, call("second"))).ahead == 0
    assert (await waits(governor, call("third"))).ahead == 1


async def test_tokens_are_shared_out_and_what_a_call_did_not_take_is_given_back(
    opened: Opened,
) -> None:
    governor = await opened.open(tokens_per_minute=60_000)
    first = await granted(governor, call("first", tokens=6_000))
    assert (await waits(governor, call("second", tokens=3_000))).cause == "rate"
    await governor.settle(first, Ending("ok", tokens=1_000))
    await granted(governor, call("second", tokens=3_000))


async def test_a_call_larger_than_the_bucket_begins_and_leaves_a_debt(opened: Opened) -> None:
    governor = await opened.open(tokens_per_minute=60_000)
    await granted(governor, call("large", tokens=50_000))
    for _ in range(3):
        await waits(governor, call("next", tokens=100))
        opened.clock.now += 20
    await granted(governor, call("next", tokens=100))


async def test_keys_do_not_share_their_limits(opened: Opened) -> None:
    governor = await opened.open(requests_per_second=1)
    await granted(governor, call("a", key="one"))
    await waits(governor, call("b", key="one"))
    await granted(governor, call("b", key="other"))


async def test_t14_with_a_limit_of_one_two_runs_never_overlap(opened: Opened) -> None:
    governor = await opened.open(concurrency=1)
    first = await granted(governor, call("first"))
    assert (await waits(governor, call("second"))).cause == "busy"
    await granted(governor, call("elsewhere", model="another"))
    await governor.settle(first, OK)
    await granted(governor, call("second"))
    await waits(governor, call("third"))


async def test_slots_go_to_whoever_waited_first(opened: Opened) -> None:
    governor = await opened.open(concurrency={"model": 1})
    first = await granted(governor, call("first"))
    await waits(governor, call("second"))
    await waits(governor, call("third"))
    await governor.settle(first, OK)
    await waits(governor, call("third"))
    await granted(governor, call("second"))


async def test_a_killed_workers_permit_expires_and_a_living_ones_does_not(
    opened: Opened,
) -> None:
    governor = await opened.open(concurrency=1)
    lost = await granted(governor, call("lost"))
    for _ in range(5):
        opened.clock.now += 20
        await governor.renew([lost])
        await waits(governor, call("next"))
    opened.clock.now += 31
    await granted(governor, call("next"))


async def test_the_same_call_takes_over_the_permit_of_its_dead_attempt(opened: Opened) -> None:
    governor = await opened.open(concurrency=1)
    await granted(governor, call("first"))
    await granted(governor, call("first"))
    await waits(governor, call("second"))


async def test_who_waits_for_a_model_does_not_hold_up_another_model(opened: Opened) -> None:
    governor = await opened.open(concurrency={"model": 1}, requests_per_second=10)
    await granted(governor, call("first"))
    for number in range(30):
        await waits(governor, call(f"c{number}"))
    opened.clock.now += 1
    await granted(governor, call("elsewhere", model="another"))


async def test_retry_after_pauses_the_whole_key_and_no_other(opened: Opened) -> None:
    governor = await opened.open()
    under_way = await granted(governor, call("first"))
    await granted(governor, call("b"))
    await governor.settle(under_way, Ending("rate_limited", retry_after_seconds=30))
    wait = await waits(governor, call("c", model="another"))
    assert wait.cause == "paused"
    assert wait.seconds == pytest.approx(30, abs=0.2)
    await granted(governor, call("d", key="other"))
    (key,) = (await governor.state()).keys
    assert key.paused_seconds == pytest.approx(30)
    opened.clock.now += 30
    await granted(governor, call("c", model="another"))


async def test_after_a_refusal_those_who_waited_come_back_one_after_another(
    opened: Opened,
) -> None:
    governor = await opened.open()
    under_way = [await granted(governor, call(f"u{number}")) for number in range(50)]
    opened.clock.now += 1
    for permit in under_way:
        await governor.settle(permit, Ending("rate_limited", retry_after_seconds=5))
    due = sorted([(await waits(governor, call(f"u{number}"))).seconds for number in range(50)])
    assert due[0] == pytest.approx(5)
    # Fifty refusals of one moment are one: the pace is not cut fifty times.
    (key,) = (await governor.state()).keys
    assert key.rate == pytest.approx(3.5)
    gaps = [b - a for a, b in itertools.pairwise(due)]
    assert max(gaps) < 1
    assert due[20] - due[0] > 4


async def test_without_retry_after_the_pauses_grow(opened: Opened) -> None:
    governor = await opened.open()
    pauses = []
    for number in range(8):
        permit = await granted(governor, call(f"c{number}"))
        opened.clock.now += 0.5
        await governor.settle(permit, Ending("rate_limited"))
        (key,) = (await governor.state()).keys
        pauses.append(key.paused_seconds)
        opened.clock.now += key.paused_seconds + 20
    assert pauses == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60])


async def test_a_pace_that_was_learnt_is_never_less_than_a_call_in_ten_seconds(
    opened: Opened,
) -> None:
    governor = await opened.open(requests_per_minute=1)
    await governor.settle(await granted(governor, call("c")), Ending("rate_limited", 1.0))
    (key,) = (await governor.state()).keys
    assert key.rate == pytest.approx(0.1)


async def test_what_a_refusal_taught_is_forgotten(opened: Opened) -> None:
    governor = await opened.open()
    await governor.settle(
        await granted(governor, call("c")), Ending("rate_limited", retry_after_seconds=1)
    )
    opened.clock.now += 60
    assert (await governor.state()).keys[0].rate is not None
    opened.clock.now += 61
    for number in range(100):
        await granted(governor, call(f"c{number}"))


async def test_a_model_that_fails_in_a_row_is_left_alone_and_then_tried_once(
    opened: Opened,
) -> None:
    governor = await opened.open(breaker_failures=3, breaker_seconds=10)
    for number in range(3):
        await fails(governor, f"c{number}")
    wait = await waits(governor, call("c"))
    assert (wait.cause, wait.failing) == ("open", "overloaded")
    assert wait.seconds == pytest.approx(10)
    await granted(governor, call("elsewhere", model="another"))
    opened.clock.now += 10
    probe = await granted(governor, call("c"))
    assert (await waits(governor, call("d"))).cause == "open"
    assert [one.state for one in (await governor.state()).breakers] == ["half_open"]
    await governor.settle(probe, OK)
    await granted(governor, call("d"))
    assert (await governor.state()).breakers == []


async def test_a_probe_that_fails_opens_the_breaker_for_longer(opened: Opened) -> None:
    governor = await opened.open(breaker_failures=1, breaker_seconds=10)
    await fails(governor, "c")
    opened.clock.now += 10
    await fails(governor, "c")
    assert (await waits(governor, call("c"))).seconds == pytest.approx(20)


async def test_a_probe_whose_worker_was_killed_is_made_by_another(opened: Opened) -> None:
    governor = await opened.open(breaker_failures=1, breaker_seconds=10)
    await fails(governor, "c")
    opened.clock.now += 10
    await granted(governor, call("lost"))
    opened.clock.now += 29
    await waits(governor, call("d"))
    opened.clock.now += 2
    await granted(governor, call("d"))


async def test_the_probe_that_asks_again_goes_on_as_the_probe(opened: Opened) -> None:
    governor = await opened.open(breaker_failures=1, breaker_seconds=10)
    await fails(governor, "c")
    opened.clock.now += 10
    for _ in range(2):
        assert (await granted(governor, call("c"))).leased
    assert (await waits(governor, call("d"))).cause == "open"


async def test_an_abandoned_probe_judges_nothing_and_leaves_its_place(opened: Opened) -> None:
    governor = await opened.open(breaker_failures=1, breaker_seconds=10)
    await fails(governor, "c")
    opened.clock.now += 10
    probe = await granted(governor, call("c"))
    await governor.settle(probe, Ending("abandoned"))
    await granted(governor, call("d"))


async def test_a_success_ends_a_row_of_failures(opened: Opened) -> None:
    governor = await opened.open(breaker_failures=2)
    for number in range(4):
        await fails(governor, f"c{number}")
        await governor.settle(await granted(governor, call("ok")), OK)


async def test_limits_and_refusals_are_no_failures_of_the_model(opened: Opened) -> None:
    governor = await opened.open(breaker_failures=1)
    await governor.settle(await granted(governor, call("c")), Ending("rate_limited", 0.0))
    assert (await governor.state()).breakers == []


async def test_a_breaker_that_one_process_opened_is_open_for_another(opened: Opened) -> None:
    one = await opened.open(breaker_failures=2)
    other = await opened.open(breaker_failures=2)
    await fails(one, "a")
    await fails(other, "b", key="another key of the same provider")
    assert (await waits(one, call("c"))).cause == "open"
    assert (await waits(other, call("c"))).cause == "open"


async def test_waiting_for_an_open_breaker_is_counted_from_when_it_was_met(
    opened: Opened,
) -> None:
    governor = await opened.open(breaker_failures=1, requests_per_second=1)
    await fails(governor, "c")
    wait = await waits(governor, call("c"))
    assert wait.waited_seconds == 0
    opened.clock.now += 5
    assert (await waits(governor, call("c"))).waited_seconds == pytest.approx(5)
