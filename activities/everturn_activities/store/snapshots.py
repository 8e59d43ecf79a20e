"""The texts that prompts are composed of: each stored once, by its digest, and named by steps."""

from collections.abc import Iterable

import sqlalchemy as sa

from everturn.context.manifest import Manifest, digest_of
from everturn.events import Draft
from everturn.session import SessionKey
from everturn_activities.store import Snapshot, StepLayers, reads, schema
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.statement import Statement, insert

_blobs, _pins = schema.blobs, schema.session_layers
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_BODY = Statement(sa.select(_blobs.c.body).where(_blobs.c.digest == sa.bindparam("of_digest")))
_KNOWN = Statement(sa.select(_blobs.c.digest).where(_blobs.c.digest == sa.bindparam("of_digest")))
_INSERT_BLOB = insert(_blobs)
_PINNED = Statement(
    sa.select(_pins.c.layer, _pins.c.digest).where(
        _pins.c.sid == _sid, _pins.c.agent == sa.bindparam("of_agent")
    )
)
_INSERT_PIN = insert(_pins)
_TOLD = Statement(
    sa.select(schema.events.c.event_id).where(
        schema.events.c.sid == _sid, schema.events.c.event_id == sa.bindparam("of_event")
    )
)


def record(session: LockedSession, layers: StepLayers, turn: int, step: int) -> None:
    """Write what is new of a step's texts, with the step."""
    connection = session.tx.connection
    for digest, body in layers.bodies.items():
        if _KNOWN.first(connection, {"of_digest": digest}) is None:
            _INSERT_BLOB.run(connection, {"digest": digest, "body": body})
    if layers.pinned:
        known = _pinned(connection, session.sid, layers.agent)
        for layer, digest in layers.pinned.items():
            if layer not in known:
                _INSERT_PIN.run(
                    connection,
                    {
                        "sid": session.sid,
                        "agent": layers.agent,
                        "layer": layer,
                        "digest": digest,
                    },
                )
    for text in layers.warnings:
        name = f"turn/{turn}/warning/{digest_of(text)[:16]}"
        if _TOLD.first(connection, {"of_sid": session.sid, "of_event": name}) is None:
            told = Draft(id=name, type="status", turn=turn, step=step, body={"text": text})
            session.tell(told)


def keep(connection: sa.Connection, body: str) -> str:
    """Store a text once; answers with its digest."""
    digest = digest_of(body)
    if _KNOWN.first(connection, {"of_digest": digest}) is None:
        _INSERT_BLOB.run(connection, {"digest": digest, "body": body})
    return digest


def snapshot(connection: sa.Connection, digest: str) -> Snapshot:
    """The manifest of that digest, and the texts that it names."""
    manifest = Manifest.read(_BODY.one(connection, {"of_digest": digest}).body)
    texts = _bodies(connection, (layer.digest for layer in manifest.layers))
    return Snapshot(manifest, {layer.id: texts[layer.digest] for layer in manifest.layers})


def of_session(connection: sa.Connection, key: SessionKey, agent: str) -> dict[str, str]:
    """What stands for the session and the agent: texts by layer, empty ones too."""
    pinned = _pinned(connection, reads.sid_of(connection, key), agent)
    texts = _bodies(connection, filter(None, pinned.values()))
    return {layer: texts.get(digest, "") for layer, digest in pinned.items()}


def _pinned(connection: sa.Connection, sid: int, agent: str) -> dict[str, str]:
    rows = _PINNED.all(connection, {"of_sid": sid, "of_agent": agent})
    return {row.layer: row.digest for row in rows}


def _bodies(connection: sa.Connection, digests: Iterable[str]) -> dict[str, str]:
    return {digest: _BODY.one(connection, {"of_digest": digest}).body for digest in digests}
