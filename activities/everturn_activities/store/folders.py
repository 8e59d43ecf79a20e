"""Which folder a session works in, and whether that is made."""

from typing import Any

import sqlalchemy as sa

from everturn.errors import UnknownSession, UsageError
from everturn.events import Draft
from everturn.session import AwaitHome, SessionKey
from everturn_activities.store import SessionFolder, inbox, schema, served
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession, unknown
from everturn_activities.store.statement import Statement

_s = schema.sessions
_FOLDER = Statement(
    sa.select(
        *(_s.c.workspace, _s.c.working_dir, _s.c.folder, _s.c.own_dir),
        *(_s.c.folder_due, _s.c.restore_turn, _s.c.restore_step, _s.c.home),
    ).where(_s.c.tenant == sa.bindparam("of_tenant"), _s.c.id == sa.bindparam("of_id"))
)
_of_sid = _s.c.sid == sa.bindparam("of_sid")
_PROBLEM = Statement(sa.select(_s.c.folder_problem).where(_of_sid))
_SET_PROBLEM = Statement(
    sa.update(_s).where(_of_sid).values(folder_problem=sa.bindparam("problem"))
)
_SET_HOME = Statement(
    sa.update(_s)
    .where(_of_sid)
    .values(home=sa.bindparam("new_home"), own_dir=sa.bindparam("new_dir"))
)


def of(connection: sa.Connection, key: SessionKey) -> SessionFolder:
    found: Any = _FOLDER.first(connection, {"of_tenant": key.tenant, "of_id": key.session})
    if found is None:
        raise UnknownSession(unknown(key))
    workspace, working_dir, kind, own_dir, due, *restore = found
    return SessionFolder(workspace, working_dir, kind, own_dir, bool(due), *restore)


def claim(tx: Tx, key: SessionKey, home: str, own_dir: str) -> SessionFolder:
    session = LockedSession(tx, key)
    if not session.home and session.folder_due:
        _SET_HOME.run(tx.connection, {"of_sid": session.sid, "new_home": home, "new_dir": own_dir})
    return of(tx.connection, key)


def away(tx: Tx, request: AwaitHome, told: str) -> None:
    session = LockedSession(tx, SessionKey(request.tenant, request.session))
    name = f"turn/{request.turn}/away/{request.at}"
    draft = Draft(id=name, type="status", turn=request.turn, body={"text": told})
    session.tell_once([draft])
    session.save()


def made(tx: Tx, key: SessionKey, turn: int, epoch: int, told: str | None) -> None:
    session = LockedSession(tx, key)
    session.demand_host(turn, epoch)
    if told is not None and session.folder_due:
        name = f"turn/{turn}/folder"
        session.tell(Draft(id=name, type="status", turn=turn, body={"text": told}))
    session.folder_due = 0
    _SET_PROBLEM.run(tx.connection, {"of_sid": session.sid, "problem": None})
    session.save()


def failed(tx: Tx, key: SessionKey, turn: int, epoch: int, problem: str) -> None:
    session = LockedSession(tx, key)
    session.demand_host(turn, epoch)
    _SET_PROBLEM.run(tx.connection, {"of_sid": session.sid, "problem": problem})


def restored(
    tx: Tx,
    key: SessionKey,
    turn: int,
    epoch: int | None,
    since: tuple[int, int],
    told: str | None,
) -> None:
    session = LockedSession(tx, key)
    if epoch is not None:
        session.demand_host(turn, epoch)
    if session.restore_turn == 0:
        return
    # The files of one turn may be put back again and again, each time by another rewind.
    name = f"restored/{session.event_seq}"
    if (session.restore_turn, session.restore_step) >= since:
        session.restore_turn = session.restore_step = 0
    if told is not None:
        session.tell(Draft(id=name, type="status", turn=turn, body={"text": told}))
    session.save()


def problem(connection: sa.Connection, sid: int) -> str | None:
    said: str | None = _PROBLEM.scalar(connection, {"of_sid": sid})
    return said


def release(tx: Tx, key: SessionKey) -> SessionFolder:
    session = LockedSession(tx, key)
    folder = of(tx.connection, key)
    if folder.own_dir is None:
        raise UsageError(
            f"Session {key.session!r} works in {folder.working_dir}, which is not its own, so it"
            " is not removed."
        )
    if session.open_turn is not None or any(
        row["kind"] == "message" for row in inbox.waiting(session)
    ):
        raise UsageError(
            f"Session {key.session!r} works in its folder; cancel it with 'everturn cancel"
            f" {key.session}', or wait for its end."
        )
    session.folder_due = 1
    served.leave_homes(session)
    # Whoever makes it anew may be of another home.
    _SET_HOME.run(
        tx.connection, {"of_sid": session.sid, "new_home": None, "new_dir": folder.own_dir}
    )
    session.save()
    return folder
