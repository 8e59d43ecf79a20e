"""Schedules on a SQL database: each method one transaction or one read."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pydantic import ValidationError

from everturn.errors import UsageError
from everturn.schedules import ChangeSchedule, Definition, RunView, ScheduleView, Status
from everturn.session import SessionKey
from everturn_activities import cron
from everturn_activities.own_folders import own_path
from everturn_activities.store import firings, runs, schedules
from everturn_activities.store.database import Database, Tx
from everturn_activities.store.firings import Fired, Firing
from everturn_activities.store.metering import Count
from everturn_activities.store.schedules import Missed, Told

TIMES = ("cron", "every_seconds", "time_zone")


@dataclass(frozen=True)
class Bounds:
    """So many schedules may a tenant have, and none may fire more often than that."""

    schedules_max: int = 100
    seconds_min: float = 60.0


BOUNDS = Bounds()


class SqlSchedules:
    """`count` gives the tokens of a message; below `home` new sessions have own folders.

    Whoever makes a change may tell Temporal of it at once; else the reconciler does.
    """

    def __init__(
        self,
        database: Database,
        count: Count,
        home: Path,
        bounds: Bounds = BOUNDS,
    ) -> None:
        self._database = database
        self._count = count
        self._home = home
        self._bounds = bounds

    async def add(
        self, tenant: str, name: str, given: Definition, status: Status = "active"
    ) -> tuple[ScheduleView, Told]:
        """The schedule of that name, new or as it is."""
        now = self._database.now()
        cron.check(given, now, self._bounds.seconds_min)
        made = given.model_copy(update={"since": float(int(now))})

        def change(tx: Tx) -> tuple[ScheduleView, Told]:
            most = self._bounds.schedules_max
            row = schedules.add(tx, tenant, name, made, status, most)
            return _both(tx, row)

        return await self._database.write(change)

    async def change(
        self, tenant: str, name: str, given: ChangeSchedule
    ) -> tuple[ScheduleView, Told]:
        """Change what `given` names; raises UsageError for what cannot be."""
        named = given.model_dump(exclude_unset=True)
        paused = named.pop("paused", None)
        status: Status | None = None if paused is None else "paused" if paused else "active"

        def change(tx: Tx) -> tuple[ScheduleView, Told]:
            row = schedules.demand(schedules.locked(tx, tenant, name), name)
            new = _changed(schedules.definition_of(row), named)
            if not named.keys().isdisjoint({*TIMES, "until"}):
                cron.check(new, tx.now, self._bounds.seconds_min)
            if not named.keys().isdisjoint(TIMES) or (status == "active" and row.state != "active"):
                # Times that passed while it was paused, or that it had not, are none of it.
                new = new.model_copy(update={"since": float(int(tx.now))})
            return _both(tx, schedules.change(tx, row, new, status))

        return await self._database.write(change)

    async def remove(self, tenant: str, name: str) -> Told:
        removed: list[Told] = []

        def change(tx: Tx) -> Told:
            row = schedules.locked(tx, tenant, name)
            if removed and schedules.is_removed(row):
                return removed[-1]  # The answer to the COMMIT was lost.
            removed.append(schedules.told_of(schedules.remove(tx, schedules.demand(row, name))))
            return removed[-1]

        return await self._database.write(change)

    async def remove_own(self, tenant: str, name: str, session: str) -> None:
        """Remove one that the agent of that session has made; raises UsageError."""
        removed = False

        def change(tx: Tx) -> None:
            nonlocal removed
            row = schedules.locked(tx, tenant, name)
            if removed and schedules.is_removed(row):
                return
            row = schedules.demand(row, name)
            if schedules.definition_of(row).made_by != session:
                raise UsageError(
                    f"Schedule {name!r} is none that this session's agent has set; whoever set it"
                    " removes it."
                )
            schedules.remove(tx, row)
            removed = True

        await self._database.write(change)

    async def schedule(self, tenant: str, name: str, next_count: int) -> ScheduleView:
        now = self._database.now()

        def look(connection: sa.Connection) -> ScheduleView:
            row = schedules.demand(schedules.found(connection, tenant, name), name)
            return schedules.view(connection, row, now, next_count)

        return await self._database.read(look)

    async def schedules(self, tenant: str, session: str | None = None) -> list[ScheduleView]:
        """The tenant's, or those that send to that session."""
        now = self._database.now()
        return await self._database.read(
            lambda connection: schedules.views(connection, tenant, now, session)
        )

    # What Temporal is told.

    async def due(self, limit: int) -> list[Told]:
        now = self._database.now()
        return await self._database.read(lambda connection: schedules.due(connection, now, limit))

    async def missed(self, late_seconds: float) -> list[Missed]:
        """Times that passed so long ago, and about which nobody has decided: `fire` does, and then
        they are `settled`."""
        now = self._database.now()
        return await self._database.read(
            lambda connection: schedules.missed(connection, now, late_seconds)
        )

    async def settled(self, of: Missed) -> None:
        await self._database.write(lambda tx: schedules.settled(tx, of))

    async def known(self) -> list[Told]:
        """Those that Temporal should have."""
        return await self._database.read(schedules.known)

    async def told(self, of: Told) -> None:
        await self._database.write(lambda tx: schedules.told(tx, of))

    async def refused(self, of: Told, problem: str) -> None:
        await self._database.write(lambda tx: schedules.refused(tx, of, problem))

    async def lost(self, of: Told) -> None:
        await self._database.write(lambda tx: schedules.lost(tx, of))

    # Firing.

    async def fire(self, tenant: str, name: str, at: float) -> Fired:
        """Decide about a time of a schedule, once, whoever asks."""
        return await self._fire(tenant, name, at, "")

    async def run(self, tenant: str, name: str, run_id: str) -> tuple[RunView, Fired]:
        """Send its message now, as a person asks by an id of theirs; raises UsageError."""
        now = float(int(self._database.now()))
        fired = await self._fire(tenant, name, now, run_id)

        def look(connection: sa.Connection) -> RunView:
            row = schedules.demand(schedules.found(connection, tenant, name), name)
            return runs.one(connection, row.id, run_id)

        return await self._database.read(look), fired

    async def _fire(self, tenant: str, name: str, at: float, key: str) -> Fired:
        while True:
            row = await self._database.read(
                lambda connection: schedules.found(connection, tenant, name)
            )
            if row is None or row.state == "removed":
                return Fired("unknown")
            firing = Firing(tenant, name, at, row.version, key)
            firing = await self._placed(firing, schedules.definition_of(row))
            fired = await self._database.write(self._decision(firing))
            if fired.state != "again":
                return fired

    def _decision(self, firing: Firing) -> Callable[[Tx], Fired]:
        return lambda tx: firings.fire(tx, firing, self._count)

    async def _placed(self, firing: Firing, definition: Definition) -> Firing:
        """With the folder that a new session would have; looking for it may run git."""
        if definition.session is not None or definition.folder == "shared":
            return firing
        key = SessionKey(firing.tenant, firing.new_session)
        source = Path(definition.working_dir)
        try:
            own = await asyncio.to_thread(own_path, self._home, key, definition.folder, source)
        except UsageError as error:
            return replace(firing, problem=str(error))
        return replace(firing, own_dir=str(own))


def _both(tx: Tx, row: Any) -> tuple[ScheduleView, Told]:
    view = schedules.view(tx.connection, row, tx.now)
    return view, schedules.told_of(row)


def _changed(known: Definition, named: dict[str, object]) -> Definition:
    """`known` with what is `named`; other times take the place of those that it had."""
    if named.get("cron"):
        named = {"every_seconds": None, **named}
    elif named.get("every_seconds") is not None:
        named = {"cron": (), **named}
    nullable = ("until", "runs_max", "budget", "every_seconds")
    given = {field: value for field, value in named.items() if value is not None}
    gone = {field: None for field in nullable if field in named and named[field] is None}
    try:
        return Definition.model_validate({**known.model_dump(), **given, **gone})
    except ValidationError as error:
        said = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise UsageError(f"The schedule cannot be changed so: {said}.") from None
