"""What agents' MCP servers offer: pinned when an agent first works in a session."""

import json

import sqlalchemy as sa

from everturn.agents import AgentSpec
from everturn.events import Draft
from everturn.mcp import Server
from everturn.session import GatherTools, SessionKey
from everturn_activities.store import reads, schema
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.specs import keep, spec_of
from everturn_activities.store.statement import Statement, insert

_pins = schema.served_tools
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_of_agent = sa.and_(_pins.c.sid == _sid, _pins.c.agent == sa.bindparam("of_agent"))
_PINS = Statement(sa.select(_pins.c.body).where(_of_agent).order_by(_pins.c.server))
_UNPIN = Statement(sa.delete(_pins).where(_of_agent))
_UNPIN_ALL = Statement(sa.delete(_pins).where(_pins.c.sid == _sid))
_one = sa.and_(_of_agent, _pins.c.server == sa.bindparam("of_server"))
_HOME = Statement(sa.select(_pins.c.home).where(_one))
_MOVE = Statement(sa.update(_pins).where(_one).values(home=sa.bindparam("home")))
_LEAVE = Statement(sa.update(_pins).where(_pins.c.sid == _sid).values(home=None))
_INSERT = insert(_pins)
_TURN = Statement(
    sa.update(schema.turns)
    .where(schema.turns.c.sid == _sid, schema.turns.c.turn == sa.bindparam("of_turn"))
    .values(spec_hash=sa.bindparam("spec_hash"))
)


def mark(session: LockedSession, spec: AgentSpec) -> None:
    """Remember how many servers the agent has as it first works in the session."""
    known = {} if session.served is None else json.loads(session.served)
    if spec.agent.name not in known:
        known[spec.agent.name] = len(spec.servers)
        session.served = json.dumps(known)


def pinned(connection: sa.Connection, key: SessionKey, agent: str) -> tuple[Server, ...]:
    at = {"of_sid": reads.sid_of(connection, key), "of_agent": agent}
    return tuple(Server.model_validate_json(row.body) for row in _PINS.all(connection, at))


def settle(
    tx: Tx, request: GatherTools, spec: AgentSpec, problems: list[str], worker: str
) -> AgentSpec:
    """Let the turn run under `spec` from now on; where another did so before, under that one.

    One with a `settings_error` ends its turn and pins nothing. `worker` has launched the servers.
    """
    session = LockedSession(tx, SessionKey(request.tenant, request.session))
    session.demand_host(request.turn, request.epoch)
    now = spec_of(tx.connection, session.sid, request.turn)
    if spec.settings_error is None and not now.is_pending:
        return now
    connection = tx.connection
    _TURN.run(
        connection,
        {"of_sid": session.sid, "of_turn": request.turn, "spec_hash": keep(connection, spec)},
    )
    if spec.settings_error is None:
        _UNPIN.run(connection, {"of_sid": session.sid, "of_agent": spec.agent.name})
        for server in spec.servers:
            _INSERT.run(
                connection,
                {
                    "sid": session.sid,
                    "agent": spec.agent.name,
                    "server": server.name,
                    "body": server.model_dump_json(),
                    "home": worker if server.config.stateful else None,
                },
            )
    for n, problem in enumerate(problems):
        session.tell(
            Draft(
                id=f"turn/{request.turn}/servers/{n}",
                type="status",
                turn=request.turn,
                body={"text": problem},
            )
        )
    session.save()
    return spec


def home(connection: sa.Connection, key: SessionKey, agent: str, server: str) -> str | None:
    at = {"of_sid": reads.sid_of(connection, key), "of_agent": agent, "of_server": server}
    found: str | None = _HOME.scalar(connection, at)
    return found


def move_home(
    tx: Tx, key: SessionKey, agent: str, server: str, before: str | None, worker: str
) -> bool:
    """Let `worker` have a server in place of `before`; False where another was quicker.

    True where it has the server already: the answer to a COMMIT may have been lost.
    """
    session = LockedSession(tx, key)
    at = {"of_sid": session.sid, "of_agent": agent, "of_server": server}
    rows = _HOME.all(tx.connection, at)
    if not rows or rows[0].home not in (before, worker):
        return False
    _MOVE.run(tx.connection, {**at, "home": worker})
    return True


def leave_homes(session: LockedSession) -> None:
    """No worker has the session's servers any more: what they work in is to be another's."""
    _LEAVE.run(session.tx.connection, {"of_sid": session.sid})


def accept(tx: Tx, key: SessionKey) -> None:
    """Forget what was pinned: the next turn of each agent pins what there is then."""
    session = LockedSession(tx, key)
    _UNPIN_ALL.run(tx.connection, {"of_sid": session.sid})
    session.served = None
    session.save()
