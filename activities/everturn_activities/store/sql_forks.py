"""Forks on a SQL database: each method one transaction or one read."""

import sqlalchemy as sa

from everturn.context.cuts import Cut
from everturn.forks import ForkSession
from everturn.session import SessionKey
from everturn.trajectories import Trajectory
from everturn_activities.store import (
    ExecutorTurn,
    ForkFolder,
    Origin,
    Rewound,
    Wake,
    forks,
    origins,
    reads,
    rewinds,
    trajectories,
    trees,
)
from everturn_activities.store.database import Database
from everturn_activities.store.forks import Count


class SqlForks:
    """`Forks` on `database`; `count` gives the tokens of a message."""

    def __init__(self, database: Database, count: Count) -> None:
        self._database = database
        self._count = count

    async def fork(
        self, origin: SessionKey, made: SessionKey, wanted: ForkSession, folder: ForkFolder
    ) -> Wake | None:
        return await self._database.write(
            lambda tx: forks.fork(tx, origin, made, wanted, folder, self._count)
        )

    async def origin(self, key: SessionKey) -> Origin | None:
        def look(connection: sa.Connection) -> Origin | None:
            came = origins.fork_of(connection, reads.sid_of(connection, key))
            if came is None:
                return None
            return Origin(SessionKey(key.tenant, came.origin_id), came.turn, came.step)

        return await self._database.read(look)

    async def rewind(
        self,
        key: SessionKey,
        turn: int,
        step: int | None,
        id: str | None = None,  # noqa: A002
    ) -> Rewound:
        return await self._database.write(lambda tx: rewinds.rewind(tx, key, turn, step, id))

    async def undo_rewind(self, key: SessionKey, id: str | None = None) -> Cut:  # noqa: A002
        return await self._database.write(lambda tx: rewinds.undo(tx, key, id))

    async def trajectory(self, key: SessionKey, turn: int | None) -> Trajectory:
        return await self._database.read(lambda found: trajectories.read(found, key, turn))

    async def executor_turns(
        self, key: SessionKey, since: tuple[int, int] = (0, 0)
    ) -> list[ExecutorTurn]:
        return await self._database.read(
            lambda found: trees.below(found, reads.sid_of(found, key), since)
        )
