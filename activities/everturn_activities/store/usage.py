"""What was used: replies, attempts that were cut or lost, and side calls, added up exactly."""

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from everturn.budgets import part
from everturn.views import UsageBy, UsageRow, UsageView
from everturn_activities.store import schema
from everturn_activities.store.accounts import EXTRA, day_of, whole_usd

_s, _t, _st, _e, _side, _v = (
    schema.sessions,
    schema.turns,
    schema.steps,
    schema.entries,
    schema.side_calls,
    schema.embeddings,
)
KNOWLEDGE = "(knowledge)"
"""The key of calls that are no session's and no agent's."""
_TOKENS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")


def _calls(table: sa.Table, at: Any, usd: Any, kind: str, *conditions: Any) -> sa.Select[Any]:
    kinds = [sa.literal(int(kind == each)).label(each) for each in ("replies", "lost", "side")]
    tokens = [table.c[name] for name in _TOKENS]
    row = [table.c.sid, table.c.turn, table.c.model, at.label("at"), usd.label("usd")]
    return sa.select(*row, *tokens, *kinds).where(*conditions)


_ended, _answered = _st.c.ended_at.is_not(None), _side.c.output_tokens > 0
_CALLS = sa.union_all(
    _calls(_st, _st.c.started_at, whole_usd(_st.c.cost_usd), "replies", _ended),
    _calls(_e, _e.c.created_at, _e.c.usd, "lost", _e.c.state.in_(EXTRA)),
    _calls(_side, _side.c.started_at, whole_usd(_side.c.cost_usd), "side", _answered),
).subquery()
_NONE = sa.literal(0).label("vectors")


def _sums(calls: Any) -> list[Any]:
    figures = (*_TOKENS, "replies", "lost", "side", "usd")
    return [
        *(sa.func.coalesce(sa.func.sum(calls.c[name]), 0).label(name) for name in figures),
        (sa.func.count() - sa.func.count(calls.c.usd)).label("unpriced"),
    ]


_SUMS = _sums(_CALLS)


def of_session(connection: sa.Connection, sid: int) -> UsageView:
    return _view(connection.execute(sa.select(*_SUMS).where(_CALLS.c.sid == sid)).one())


def of_turns(connection: sa.Connection, sid: int, first: int) -> dict[int, UsageView]:
    """By the number of each turn from `first` on."""
    rows = connection.execute(
        sa.select(_CALLS.c.turn, *_SUMS)
        .where(_CALLS.c.sid == sid, _CALLS.c.turn >= first)
        .group_by(_CALLS.c.turn)
    )
    return {row.turn: _view(row) for row in rows}


def by(connection: sa.Connection, tenant: str, by: UsageBy, since: float) -> list[UsageRow]:
    """The tenant's usage of calls that began at `since` or later, by session, agent, model or
    UTC day; the dearest first, days in their order."""
    keys = {
        "session": (_s.c.id, sa.literal(KNOWLEDGE)),
        "agent": (_t.c.agent, sa.literal(KNOWLEDGE)),
        "model": (_CALLS.c.model, _v.c.model),
        "day": tuple(sa.func.floor(at / 86_400) for at in (_CALLS.c.at, _v.c.started_at)),
    }[by]
    figures = (*_TOKENS, "replies", "lost", "side", "usd")
    replies = (
        sa.select(keys[0].label("key"), *(_CALLS.c[name] for name in figures), _NONE)
        .select_from(_CALLS)
        .join(_s, _s.c.sid == _CALLS.c.sid)
        .join(_t, sa.and_(_t.c.sid == _CALLS.c.sid, _t.c.turn == _CALLS.c.turn))
        .where(_s.c.tenant == tenant, _CALLS.c.at >= since)
    )
    vectors = sa.select(
        keys[1].label("key"),
        _v.c.input_tokens,
        *(sa.literal(0).label(name) for name in figures[1:-1]),
        _v.c.usd,
        sa.literal(1).label("vectors"),
    ).where(_v.c.tenant == tenant, _v.c.started_at >= since, _v.c.state.in_(("done", "lost")))
    calls = sa.union_all(replies, vectors).subquery()
    key = calls.c.key
    rows = connection.execute(
        sa.select(key, *_sums(calls), sa.func.sum(calls.c.vectors).label("vectors"))
        .group_by(key)
        .order_by(key if by == "day" else sa.desc("usd"), key)
    )
    return [
        UsageRow(
            key=day_of(row.key * 86_400) if by == "day" else row.key,
            lost_attempts=row.lost,
            side_calls=row.side,
            embedding_calls=row.vectors,
            **_view(row).model_dump(exclude={"model_calls"}),
            model_calls=row.replies,
        )
        for row in rows
    ]


def start_of(day: str) -> float:
    """The first second of a UTC day; raises ValueError where it is none."""
    return datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()


def _view(sums: Any) -> UsageView:
    return UsageView(
        **{name: getattr(sums, name) for name in _TOKENS},
        model_calls=sums.replies + sums.side,
        cost_usd=part("usd", sums.usd),
        unpriced_calls=sums.unpriced,
    )
