"""The specs that turns run under, each kept once by its hash."""

import sqlalchemy as sa

from everturn.agents import AgentSpec
from everturn.session import SessionKey
from everturn_activities.store import schema
from everturn_activities.store.statement import Statement, insert

_KNOWN = Statement(
    sa.select(schema.specs.c.hash).where(schema.specs.c.hash == sa.bindparam("of_hash"))
)
_BY_HASH = Statement(
    sa.select(schema.specs.c.body).where(schema.specs.c.hash == sa.bindparam("of_hash"))
)
_HASH_OF_TURN = Statement(
    sa.select(schema.turns.c.spec_hash)
    .join(schema.sessions, schema.sessions.c.sid == schema.turns.c.sid)
    .where(
        schema.sessions.c.tenant == sa.bindparam("of_tenant"),
        schema.sessions.c.id == sa.bindparam("of_id"),
        schema.turns.c.turn == sa.bindparam("of_turn"),
    )
)
_OF_TURN = Statement(
    sa.select(schema.specs.c.body)
    .join(schema.turns, schema.turns.c.spec_hash == schema.specs.c.hash)
    .where(
        schema.turns.c.sid == sa.bindparam("of_sid"), schema.turns.c.turn == sa.bindparam("of_turn")
    )
)
_INSERT = insert(schema.specs)


def keep(connection: sa.Connection, spec: AgentSpec) -> str:
    """Keep a spec, and answer with its hash."""
    if _KNOWN.first(connection, {"of_hash": spec.hash}) is None:
        _INSERT.run(connection, {"hash": spec.hash, "body": spec.model_dump_json()})
    return spec.hash


def spec_of(connection: sa.Connection, sid: int, turn: int) -> AgentSpec:
    body = _OF_TURN.scalar(connection, {"of_sid": sid, "of_turn": turn})
    return AgentSpec.model_validate_json(body)


def hash_of(connection: sa.Connection, key: SessionKey, turn: int) -> str:
    """The hash of the spec that a turn runs under."""
    at = {"of_tenant": key.tenant, "of_id": key.session, "of_turn": turn}
    return str(_HASH_OF_TURN.one(connection, at).spec_hash)


def spec_by(connection: sa.Connection, digest: str) -> AgentSpec:
    return AgentSpec.model_validate_json(_BY_HASH.scalar(connection, {"of_hash": digest}))
