"""Leases of workers: who counts as dead, and who may say so."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from databases import Databases
from stories import Clock

from everturn_activities.store.workers import LEASE_SECONDS, Member, SqlWorkers, Work

EARLY, LATE = LEASE_SECONDS - 1, LEASE_SECONDS + 1


def member(instance: str) -> Member:
    return Member(instance, "home", "host", "turns", "build")


A, B = member("a"), member("b")


@dataclass
class Fleet:
    workers: SqlWorkers
    clock: Clock

    async def pass_seconds(self, seconds: float, *renewing: Member) -> list[str]:
        """Let time pass, in which some renew; what the last one of them is told."""
        lapsed: list[str] = []
        for _ in range(int(seconds)):
            self.clock.now += 1
            for one in renewing:
                lapsed = await self.workers.renew(one)
        return lapsed


@pytest.fixture
async def fleet(databases: Databases) -> AsyncIterator[Fleet]:
    clock = Clock()
    database = await databases.open(clock=clock)
    fleet = Fleet(SqlWorkers(database), clock)
    for one in (A, B):
        await fleet.workers.renew(one)
    yield fleet
    await database.close()


async def test_a_worker_is_dead_once_its_lease_ran_out(fleet: Fleet) -> None:
    assert await fleet.pass_seconds(EARLY, A) == []
    assert await fleet.workers.lives("b", judge="a")

    assert await fleet.pass_seconds(2, A) == ["b"]
    assert not await fleet.workers.lives("b", judge="a")
    assert [one.alive for one in await fleet.workers.listed()] == [True, False]


async def test_after_an_outage_of_the_database_nobody_is_dead(fleet: Fleet) -> None:
    await fleet.pass_seconds(2 * LATE, A, B)
    fleet.clock.now += 100

    # Who has not renewed since judges nobody.
    assert await fleet.workers.lives("b", judge="a")
    assert await fleet.workers.renew(A) == []
    assert await fleet.workers.lives("b", judge="a")
    assert await fleet.pass_seconds(LATE, A) == ["b"]


async def test_after_a_short_outage_who_is_back_first_buries_nobody(fleet: Fleet) -> None:
    await fleet.pass_seconds(2 * LATE, A, B)
    await fleet.pass_seconds(2, A)
    fleet.clock.now += LEASE_SECONDS - 1.5

    assert await fleet.workers.renew(A) == []
    assert await fleet.workers.lives("b", judge="a")
    await fleet.workers.renew(B)
    assert await fleet.pass_seconds(LATE, A, B) == []


async def test_a_worker_that_has_just_begun_takes_nobody_for_dead(fleet: Fleet) -> None:
    await fleet.pass_seconds(LATE, A)
    assert await fleet.workers.renew(member("new")) == []
    assert await fleet.workers.lives("b", judge="new")
    assert await fleet.workers.lives("b", judge="never begun")


async def test_a_worker_that_has_left_is_dead_at_once(fleet: Fleet) -> None:
    await fleet.workers.leave(["b"])

    assert not await fleet.workers.lives("b", judge="a")
    assert [one.member for one in await fleet.workers.listed()] == [A]


async def test_a_worker_that_was_taken_for_dead_and_wakes_up_is_on_the_list_again(
    fleet: Fleet,
) -> None:
    await fleet.pass_seconds(LATE, A)
    await fleet.workers.leave(["b"])
    await fleet.workers.renew(B)

    assert await fleet.workers.lives("b", judge="a")
    assert await fleet.workers.renew(A) == []


async def test_the_list_tells_since_when_and_what_each_had_to_do_when_it_was_heard_of_last(
    fleet: Fleet,
) -> None:
    begun = fleet.clock.now
    slots = {"models": 3}
    busy = Work(slots, {"call_model": 2})
    await fleet.workers.renew(member("c"), busy)
    fleet.clock.now += 2
    await fleet.workers.renew(member("c"), Work(slots, {"call_model": 1}, draining=True))
    fleet.clock.now += 1

    *_, listed = await fleet.workers.listed()

    assert listed.work == Work(slots, {"call_model": 1}, draining=True)
    assert listed.started_at == pytest.approx(begun, abs=0.1)
    assert listed.heard_at == pytest.approx(begun + 2, abs=0.1)
    assert listed.seconds_since == pytest.approx(1, abs=0.1)
