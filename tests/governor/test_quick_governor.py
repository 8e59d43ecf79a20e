"""What a call costs where nothing holds it back, and how soon a process hears of others."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from governed import OK, Clock, call, granted, limits, waits

from everturn_activities.governor import Ending, GovernorState, ModelCall, Permit, Wait
from everturn_activities.governor.memory import MemoryGovernor
from everturn_activities.governor.quick import QuickGovernor


class Fleet(MemoryGovernor):
    """Counts what it is asked; `away` raises, as a database does that is."""

    def __init__(self, clock: Clock, **given: object) -> None:
        super().__init__(limits(given), clock)
        self.asked: list[str] = []
        self.away = False

    async def ask(self, call: ModelCall) -> Permit | Wait:
        self._note("ask")
        return await super().ask(call)

    async def settle(self, permit: Permit, ending: Ending) -> None:
        self._note("settle")
        await super().settle(permit, ending)

    async def renew(self, permits: Sequence[Permit]) -> None:
        self._note("renew")
        await super().renew(permits)

    async def state(self) -> GovernorState:
        self._note("state")
        return await super().state()

    def _note(self, what: str) -> None:
        self.asked.append(what)
        if self.away:
            raise OSError


async def one_call(governor: QuickGovernor, name: str, ending: Ending = OK) -> None:
    await governor.settle(await granted(governor, call(name)), ending)


async def test_a_healthy_provider_without_limits_costs_the_fleet_nothing() -> None:
    fleet = Fleet(Clock())
    governor = QuickGovernor(fleet, limits({}))
    await governor.look()
    for number in range(100):
        await one_call(governor, f"c{number}")
    await one_call(governor, "cancelled", Ending("abandoned"))
    assert fleet.asked == ["state"]


async def test_before_the_first_look_the_fleet_is_asked() -> None:
    fleet = Fleet(Clock())
    await granted(QuickGovernor(fleet, limits({})), call("c"))
    assert fleet.asked == ["ask"]


async def test_a_declared_limit_is_asked_for_but_a_success_is_told_to_nobody() -> None:
    fleet = Fleet(Clock(), requests_per_minute=100)
    governor = QuickGovernor(fleet, limits({"requests_per_minute": 100}))
    await governor.look()
    await one_call(governor, "c")
    assert fleet.asked == ["state", "ask"]


async def test_a_failure_is_told_and_the_success_that_ends_the_row_too() -> None:
    fleet = Fleet(Clock())
    governor = QuickGovernor(fleet, limits({}))
    await governor.look()
    await one_call(governor, "a", Ending("overloaded"))
    await one_call(governor, "b")
    assert fleet.asked.count("settle") == 2
    fleet.asked.clear()
    await one_call(governor, "c")
    assert fleet.asked == []


async def test_a_breaker_that_another_process_opened_is_seen_at_the_next_look() -> None:
    clock = Clock()
    fleet = Fleet(clock, breaker_failures=1)
    one, other = (QuickGovernor(fleet, limits({"breaker_failures": 1})) for _ in range(2))
    await one.look()
    await other.look()
    await one_call(one, "a", Ending("unreachable"))
    assert one.is_open("model")
    assert not other.is_open("model")
    await other.look()
    assert other.is_open("model")
    assert (await waits(other, call("b"))).cause == "open"
    clock.now += 11
    # Whoever asks now may become the probe.
    assert not other.is_open("model")


async def test_the_pace_that_was_refused_is_what_a_refusal_teaches() -> None:
    clock = Clock()
    fleet = Fleet(clock)
    governor = QuickGovernor(fleet, limits({}))
    await governor.look()
    for number in range(400):
        clock.now += 0.05
        await one_call(governor, f"c{number}")
    await one_call(governor, "refused", Ending("rate_limited", 1.0))
    (key,) = (await governor.state()).keys
    assert key.rate == pytest.approx(0.7 * 20, rel=0.1)
    assert not governor.is_free(call("next"))


async def test_a_fleet_that_cannot_be_told_loses_no_reply() -> None:
    fleet = Fleet(Clock(), concurrency=1)
    governor = QuickGovernor(fleet, limits({"concurrency": 1}))
    permit = await granted(governor, call("c"))
    fleet.away = True
    await governor.settle(permit, OK)
    await governor.look()


async def test_who_comes_late_to_a_crowd_does_not_overtake_who_stands_in_line() -> None:
    clock = Clock()
    governor = QuickGovernor(Fleet(clock), limits({}))
    await governor.look()
    answers = [
        await governor.ask(replace(call(f"c{number}"), caller=f"s{number}")) for number in range(20)
    ]
    assert [isinstance(answer, Permit) for answer in answers] == [True] * 11 + [False] * 9
    # The calls of the last second are few by now, and nobody has looked since.
    clock.now += 0.9
    assert isinstance(await governor.ask(replace(call("late"), caller="late")), Wait)
