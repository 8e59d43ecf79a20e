"""What a step's request was composed of, for people to look at."""

import json

import sqlalchemy as sa

from everturn.agents import AgentSpec
from everturn.context.compose import with_summary
from everturn.context.cuts import Cut, Span, shown
from everturn.context.layers import above_boundary
from everturn.context.manifest import digest_of
from everturn.errors import UsageError
from everturn.session import ContextHead, SessionKey
from everturn.views import ContextView, LayerView, SectionsView
from everturn_activities.store import Snapshot, cuts, reads, schema, snapshots
from everturn_activities.store.statement import Statement
from everturn_activities.store.steps import context_head
from everturn_activities.store.turns import SPEC, TURN

_steps, _messages = schema.steps, schema.messages
_sid: sa.BindParameter[int] = sa.bindparam("of_sid")
_STEPS = Statement(
    sa.select(_steps.c.turn, _steps.c.step, _steps.c.model, _steps.c.context)
    .where(
        _steps.c.sid == _sid,
        _steps.c.turn >= sa.bindparam("first_turn"),
        _steps.c.turn <= sa.bindparam("last_turn"),
        _steps.c.step >= sa.bindparam("first_step"),
        _steps.c.step <= sa.bindparam("last_step"),
    )
    .order_by(_steps.c.turn.desc(), _steps.c.step.desc())
    .limit(1)
)
_COUNTS = Statement(
    sa.select(
        sa.func.count().label("all"),
        sa.func.coalesce(
            sa.func.sum(sa.case((_messages.c.turn < sa.bindparam("of_turn"), 1), else_=0)), 0
        ).label("history"),
    ).where(
        _messages.c.sid == _sid,
        _messages.c.position >= sa.bindparam("first"),
        _messages.c.position <= sa.bindparam("last"),
        sa.or_(_messages.c.turn >= sa.bindparam("since"), _messages.c.said == 1),
    )
)
ENDLESS = 2**31 - 1


def context(
    connection: sa.Connection, key: SessionKey, turn: int | None, step: int | None
) -> ContextView:
    """The context of a step, by default the newest; raises UsageError where there is none."""
    sid = reads.sid_of(connection, key)
    row = _STEPS.first(
        connection,
        {
            "of_sid": sid,
            "first_turn": turn or 0,
            "last_turn": turn or ENDLESS,
            "first_step": step or 0,
            "last_step": step or ENDLESS,
        },
    )
    if row is None:
        raise UsageError(_none(key, turn, step))
    head = context_head(row.context)
    of_turn = TURN.one(connection, {"of_sid": sid, "of_turn": row.turn})
    spec = AgentSpec.model_validate_json(SPEC.scalar(connection, {"of_hash": of_turn.spec_hash}))
    made = snapshots.snapshot(connection, head.layers) if head.layers else Snapshot()
    history, memory, summary = _conversation(connection, sid, head)
    compaction = spec.agent.compaction
    return ContextView(
        session=key.session,
        turn=row.turn,
        step=row.step,
        agent=spec.agent.name,
        model=row.model,
        profile=spec.profile.name,
        mode=spec.profile.recipe.mode,
        level=head.level,
        compacts_at=compaction.at if compaction.enabled else None,
        sections=_sections(row.context),
        layers=_layers(spec, made, summary),
        tools=tuple(tool.name for tool in spec.tools),
        history_messages=history,
        memory_messages=memory,
    )


def _none(key: SessionKey, turn: int | None, step: int | None) -> str:
    if turn is None and step is None:
        return f"Session {key.session!r} has taken no step yet; send it a message first."
    named = (("step", step), ("turn", turn))
    asked = " of ".join(f"{what} {number}" for what, number in named if number is not None)
    return (
        f"Session {key.session!r} has no {asked}; 'everturn sessions show {key.session}' lists"
        " its turns and steps."
    )


def _sections(context: str) -> SectionsView:
    made = json.loads(context)["sections"] or {}
    known = {name: made[name] for name in SectionsView.model_fields if name in made}
    return SectionsView(**{"system": 0, "tools": 0, "history": 0, "memory": 0, **known})


def _layers(spec: AgentSpec, made: Snapshot, summary: Cut | None) -> tuple[LayerView, ...]:
    """The layers that have something to tell, in their order, as they were sent."""
    texts = made.texts
    tokens = {layer.id: layer.tokens for layer in made.manifest.layers}
    if summary is not None and spec.profile.compaction.sink == "layer":
        texts = with_summary(spec, texts, summary.body)
    kept = above_boundary(spec.profile.recipe, texts)
    return tuple(
        LayerView(
            id=layer.id,
            source=layer.source,
            scope=layer.scope,
            # What stands in a summary's layer counts as history.
            tokens=tokens.get(layer.id, summary.tokens if summary is not None else 0),
            digest=digest_of(texts[layer.id]),
            cached=layer.id in kept,
            text=texts[layer.id],
        )
        for layer in spec.profile.recipe.layers
        if texts.get(layer.id)
    )


def _conversation(
    connection: sa.Connection, sid: int, head: ContextHead
) -> tuple[int, int, Cut | None]:
    """How many messages of earlier turns and of this one are sent, and the summary before them."""
    extent = head.extent
    history = memory = 0
    summary: Cut | None = None
    for piece in shown(cuts.in_force(connection, sid, extent.cuts), extent.upto, extent.first):
        if isinstance(piece, Span):
            at = {"first": piece.first, "last": piece.last, "since": extent.since}
            found = _COUNTS.one(connection, {"of_sid": sid, "of_turn": head.turn, **at})
            history += found.history
            memory += found.all - found.history
        else:
            summary = piece
    return history, memory, summary
