"""The specs that turns run under, each kept once by its hash."""

import sqlalchemy as sa

from everturn.agents import AgentSpec
from everturn_activities.store import schema
from everturn_activities.store.statement import Statement, insert

_KNOWN = Statement(
    sa.select(schema.specs.c.hash).where(schema.specs.c.hash == sa.bindparam("of_hash"))
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
