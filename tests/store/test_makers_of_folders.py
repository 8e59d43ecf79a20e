"""Who makes a session's own folder, and whether anybody works where it is."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from databases import Databases
from stories import Clock, count, price
from temporalio.testing import ActivityEnvironment

from everturn.messages import user_text
from everturn.session import AwaitHome, PreparedFolder, PrepareFolder, SessionKey
from everturn_activities import own_folders
from everturn_activities.file_changes import Work
from everturn_activities.folders import FolderActivities
from everturn_activities.session_homes import ELSEWHERE, SessionHomes
from everturn_activities.store import Assignment, Inbound, SessionSettings
from everturn_activities.store.sql import SqlStore
from everturn_activities.store.workers import LEASE_SECONDS, Member, SqlWorkers

KEY = SessionKey("default", "s")


@dataclass
class Fleet:
    """A store, and the leases of those who work at its homes."""

    store: SqlStore
    workers: SqlWorkers
    clock: Clock

    async def works(self, home: str, roles: str) -> None:
        await self.workers.renew(Member(f"{home}-1", home, "host", roles, "build", f"/{home}"))

    def of(self, home: str, makes: bool = False) -> SessionHomes:
        return SessionHomes(self.store, self.workers, home, Path(f"/{home}"), makes)

    async def placed(self, homes: SessionHomes) -> Assignment:
        assignment = await self.store.assignment(KEY)
        assert assignment is not None
        return await homes.placed(KEY, assignment)


@pytest.fixture
async def fleet(databases: Databases) -> AsyncIterator[Fleet]:
    clock = Clock()
    database = await databases.open(clock=clock)
    store = SqlStore(database, count, price)
    path = own_folders.own_path(Path("/a"), KEY, "copy", Path("/workspace"))
    own = SessionSettings("/workspace", "/workspace", folder="copy", own_dir=str(path))
    await store.create_session(KEY, own)
    await store.accept(KEY, Inbound("m1", "message", user_text("hello"), "queue"))
    yield Fleet(store, SqlWorkers(database), clock)
    await store.close()


async def test_who_runs_no_tools_leaves_the_folder_to_a_living_home_that_does(fleet: Fleet):
    await fleet.works("dead", "tools")
    fleet.clock.now += LEASE_SECONDS + 1
    await fleet.works("turns", "turns,models")
    await fleet.works("tools", "turns,tools")

    placed = await fleet.placed(fleet.of("turns"))

    assert (placed.home, placed.here) == ("tools", False)
    assert str(placed.own_dir).startswith("/tools/")


async def test_where_no_home_that_runs_tools_lives_no_folder_is_claimed(fleet: Fleet):
    await fleet.works("dead", "tools")
    fleet.clock.now += LEASE_SECONDS + 1
    await fleet.works("turns", "turns,models")

    placed = await fleet.placed(fleet.of("turns"))

    assert (placed.home, placed.here) == ("", True)


async def test_a_folder_that_nobody_claimed_is_of_the_first_home_that_makes_it(fleet: Fleet):
    async def seen_by(home: str, path: str = "/a") -> str | None:
        homes = SessionHomes(fleet.store, fleet.workers, home, Path(path), True)
        return (await homes.settled(KEY, await fleet.store.folder(KEY))).home

    # Where it is to be lies on another home, whose path is another.
    assert await seen_by("three", "/c") is None
    assert await seen_by("one") == "one"
    # Machines of a cluster often have their homes at one path.
    assert await seen_by("two") == "one"


async def test_who_is_asked_for_a_folder_of_another_home_names_that_and_makes_none(fleet: Fleet):
    homes = SessionHomes(fleet.store, fleet.workers, "one", Path("/a"), True)
    await homes.settled(KEY, await fleet.store.folder(KEY))
    folders = FolderActivities(
        fleet.store,
        Path("/a"),
        *(_unasked, _unasked, _unasked, _unasked),  # type: ignore[arg-type]
        fleet.of("two", makes=True),
    )
    asked = PrepareFolder(*KEY, 1, 1)
    made = await ActivityEnvironment().run(folders.prepare_folder, asked)
    assert made == PreparedFolder(True, "one")


async def test_a_home_is_away_without_a_living_worker_that_runs_tools(fleet: Fleet):
    homes = fleet.of("turns")
    await fleet.works("one", "tools")
    assert not await homes.is_away("one")

    fleet.clock.now += LEASE_SECONDS + 1
    await fleet.works("two", "turns,models")

    assert await homes.is_away("one")
    assert await homes.is_away("two")
    assert await homes.is_away("three")


async def test_what_executors_did_at_another_home_is_told(fleet: Fleet):
    child = SessionKey("default", "child")
    await fleet.store.create_session(child, SessionSettings("/workspace", "/workspace"))
    await fleet.store.note_record(KEY, 1, "here")
    homes = fleet.of("here")
    assert await homes.left(KEY, 1, [Work(child, 1, (1, 1))]) == ()

    await fleet.store.note_record(child, 1, "there")

    assert await homes.left(KEY, 1, [Work(child, 1, (1, 1))]) == (ELSEWHERE.format(homes="there"),)


async def test_who_waits_for_a_busy_home_is_not_told_that_nobody_works_there(fleet: Fleet):
    await fleet.works("one", "tools")
    folders = FolderActivities(
        fleet.store,
        Path("/a"),
        *(_unasked, _unasked, _unasked, _unasked),  # type: ignore[arg-type]
        fleet.of("turns"),
    )
    asked = AwaitHome(*KEY, 1, "one", "1")
    assert not await folders.tell_away(asked)

    fleet.clock.now += LEASE_SECONDS + 1

    assert await folders.tell_away(asked)


def _unasked(*_: object) -> None:
    raise AssertionError
