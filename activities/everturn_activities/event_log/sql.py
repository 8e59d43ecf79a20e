"""The event log in the store's own database: numbered in the transaction that changed the state."""

import json
from collections.abc import AsyncIterator, Sequence

import sqlalchemy as sa

from everturn.errors import StoreAway, UnknownSession
from everturn.events import Draft, Event
from everturn.session import SessionKey
from everturn_activities.store import model_journal, schema
from everturn_activities.store.database import Database, Tx
from everturn_activities.store.locked import LockedSession, unknown
from everturn_activities.store.statement import Statement
from everturn_activities.wakeups import Exchange, changed

BATCH = 500

_e, _s = schema.events, schema.sessions
_SESSION = Statement(
    sa.select(_s.c.sid, _s.c.event_epoch, _s.c.event_seq).where(
        _s.c.tenant == sa.bindparam("tenant"), _s.c.id == sa.bindparam("session")
    )
)
_AFTER = Statement(
    sa.select(_e)
    .where(
        _e.c.sid == sa.bindparam("of_sid"),
        sa.tuple_(_e.c.epoch, _e.c.seq) > sa.tuple_(sa.bindparam("epoch"), sa.bindparam("seq")),
    )
    .order_by(_e.c.epoch, _e.c.seq)
    .limit(sa.bindparam("most"))
)


class SqlEventLog:
    """`EventLog` on the store's database."""

    def __init__(self, database: Database, wakeups: Exchange) -> None:
        self._database = database
        self._wakeups = wakeups

    async def close(self) -> None:
        pass  # Its database is the store's.

    async def append_deltas(
        self, key: SessionKey, turn: int, step: int, attempt: int, drafts: Sequence[Draft]
    ) -> bool:
        def change(tx: Tx) -> None:
            session = LockedSession(tx, key)
            model_journal.fence_model_call(session, turn, step, attempt)
            session.tell_once(drafts)
            session.save()

        await self._database.write(change)
        return True

    async def read(self, key: SessionKey, after: tuple[int, int], limit: int) -> list[Event]:
        return await self._database.read(lambda connection: _read(connection, key, after, limit))

    async def end(self, key: SessionKey, like: tuple[int, int]) -> tuple[int, int]:
        return await self._database.read(lambda connection: _end(connection, key))

    async def watch(self, key: SessionKey, after: tuple[int, int]) -> AsyncIterator[list[Event]]:
        with self._wakeups.waiting(key) as event:
            while True:
                try:
                    batch = await self.read(key, after, BATCH)
                except StoreAway:
                    # It goes on where it was: nobody needs to come again.
                    batch = []
                if batch:
                    after = (batch[-1].epoch, batch[-1].seq)
                    yield batch
                else:
                    await changed(event)


def _end(connection: sa.Connection, key: SessionKey) -> tuple[int, int]:
    session = _SESSION.first(connection, {"tenant": key.tenant, "session": key.session})
    if session is None:
        raise UnknownSession(unknown(key))
    return session.event_epoch, session.event_seq


def _read(
    connection: sa.Connection, key: SessionKey, after: tuple[int, int], limit: int
) -> list[Event]:
    session = _SESSION.first(connection, {"tenant": key.tenant, "session": key.session})
    if session is None:
        raise UnknownSession(unknown(key))
    if after >= (session.event_epoch, session.event_seq):
        return []
    rows = _AFTER.all(
        connection, {"of_sid": session.sid, "epoch": after[0], "seq": after[1], "most": limit}
    )
    return [
        Event.model_construct(
            epoch=row.epoch,
            seq=row.seq,
            type=row.type,
            turn=row.turn,
            step=row.step,
            attempt=row.attempt,
            time=row.time,
            body=json.loads(row.body),
        )
        for row in rows
    ]
