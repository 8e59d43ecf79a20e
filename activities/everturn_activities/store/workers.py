"""Workers and their leases, all on the database's clock: who lives, for those on other machines.

A worker renews its lease by itself. Where it did not for long enough, others may take it for dead,
but only who has renewed its own all that time: after an outage of the database all leases
have run out, and nobody is dead.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa

from everturn_activities.store.database import Database, Tx
from everturn_activities.store.schema import workers

RENEW_SECONDS = 3.0
LEASE_SECONDS = 10.0
"""Three renewals that did not come."""
STEADY_SECONDS = 5.0
"""Who was late by more judges nobody for a while: what kept it may have kept them, too."""


@dataclass(frozen=True)
class Member:
    """A worker: `home` is the id of its home, the folder `path`, `host` the name of its machine."""

    instance: str
    home: str
    host: str
    roles: str
    build: str
    path: str = ""


@dataclass(frozen=True)
class Work:
    """How much a worker takes at a time and has under way, each by what it is; one that is
    `draining` takes no more."""

    slots: Mapping[str, int] = field(default_factory=dict)
    under_way: Mapping[str, int] = field(default_factory=dict)
    draining: bool = False


@dataclass(frozen=True)
class Listed:
    """A worker as others see it, and its work when it was heard of last, so many seconds ago."""

    member: Member
    work: Work
    started_at: float
    heard_at: float
    seconds_since: float
    alive: bool


class SqlWorkers:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def renew(self, member: Member, work: Work | None = None) -> list[str]:
        """Renew the worker's lease, or begin it; which others have let theirs run out."""
        return await self._database.write(lambda tx: _renew(tx, member, work or Work()))

    async def leave(self, instances: Collection[str]) -> None:
        """Forget workers that have ended, or whose calls were given away."""
        await self._database.write(
            lambda tx: tx.connection.execute(
                sa.delete(workers).where(workers.c.instance.in_(instances))
            )
        )

    async def lives(self, instance: str, judge: str) -> bool:
        """Whether `judge` may not take the worker for dead: one that nobody knows has ended."""
        return await self._database.write(lambda tx: _lives(tx, instance, judge))

    async def listed(self) -> list[Listed]:
        """All workers that have not ended by themselves, the oldest first."""
        now = self._database.now()

        def look(connection: sa.Connection) -> list[Listed]:
            rows = connection.execute(
                sa.select(workers).order_by(workers.c.started_at, workers.c.instance)
            )
            return [
                Listed(
                    Member(row.instance, row.home, row.host, row.roles, row.build, row.path),
                    Work(json.loads(row.slots), json.loads(row.under_way), bool(row.draining)),
                    row.started_at,
                    row.renewed_at,
                    max(0.0, now - row.renewed_at),
                    row.renewed_at >= now - LEASE_SECONDS,
                )
                for row in rows
            ]

        return await self._database.read(look)


def _renew(tx: Tx, member: Member, work: Work) -> list[str]:
    ours = workers.c.instance == member.instance
    ran_out = workers.c.renewed_at < tx.now - LEASE_SECONDS
    doing = {"under_way": json.dumps(work.under_way), "draining": int(work.draining)}
    was_late = workers.c.renewed_at < tx.now - STEADY_SECONDS
    renewed = tx.connection.execute(
        sa.update(workers)
        .where(ours)
        .values(
            steady_since=sa.case((was_late, tx.now), else_=workers.c.steady_since),
            renewed_at=tx.now,
            **doing,
        )
    )
    if not renewed.rowcount:
        tx.connection.execute(
            sa.insert(workers).values(
                instance=member.instance,
                home=member.home,
                host=member.host,
                roles=member.roles,
                build=member.build,
                path=member.path,
                slots=json.dumps(work.slots),
                **doing,
                started_at=tx.now,
                renewed_at=tx.now,
                steady_since=tx.now,
            )
        )
    if not _may_judge(tx, member.instance):
        return []
    lapsed = sa.select(workers.c.instance).where(ran_out).order_by(workers.c.instance)
    return list(tx.connection.execute(lapsed).scalars())


def _lives(tx: Tx, instance: str, judge: str) -> bool:
    query = sa.select(workers.c.renewed_at).where(workers.c.instance == instance)
    renewed_at = tx.connection.execute(query).scalar()
    if renewed_at is None:
        return False
    return renewed_at >= tx.now - LEASE_SECONDS or not _may_judge(tx, judge)


def _may_judge(tx: Tx, judge: str) -> bool:
    query = sa.select(workers.c.steady_since, workers.c.renewed_at).where(
        workers.c.instance == judge
    )
    row = tx.connection.execute(query).one_or_none()
    if row is None or row.renewed_at < tx.now - STEADY_SECONDS:
        return False
    return bool(row.steady_since <= tx.now - LEASE_SECONDS)
