"""What people and programs read of sessions, turns and messages."""

import json
import os
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from everturn.context.projection import IMPORTED
from everturn.errors import UnknownSession
from everturn.executors import ExecutorRules
from everturn.forks import ForkedFrom
from everturn.messages import SkillInvocation, UserMessage, message_from_json
from everturn.session import SessionKey
from everturn.tasks import Output
from everturn.views import MessageView, SectionsView, SessionView, StepView, TurnView, UsageView
from everturn_activities.store import Assignment, UnfinishedCall, Wake, asks, schema, usage
from everturn_activities.store.locked import unknown
from everturn_activities.store.statement import Statement

_s, _t, _st, _c, _m, _i, _e, _f = (
    schema.sessions,
    schema.turns,
    schema.steps,
    schema.tool_calls,
    schema.messages,
    schema.inbox,
    schema.events,
    schema.forks,
)
_waiting = (
    sa.select(sa.func.count())
    .where(_i.c.sid == _s.c.sid, _i.c.state == "waiting", _i.c.kind == "message")
    .scalar_subquery()
)
_last_outcome = (
    sa.select(_t.c.outcome)
    .where(_t.c.sid == _s.c.sid, _t.c.outcome.is_not(None))
    .order_by(_t.c.turn.desc())
    .limit(1)
    .scalar_subquery()
)
_imported = (
    sa.select(sa.func.count()).where(_m.c.sid == _s.c.sid, _m.c.turn == IMPORTED).scalar_subquery()
)
_parents = _s.alias()
_above = sa.func.coalesce(_s.c.parent_sid, sa.func.nullif(_s.c.swarm_sid, _s.c.sid))
_parent = sa.select(_parents.c.id).where(_parents.c.sid == _above).scalar_subquery()
_SESSIONS = sa.select(
    _s,
    _parent.label("parent"),
    _waiting.label("waiting"),
    _last_outcome.label("last_outcome"),
    _imported.label("imported"),
    _f.c.origin_id,
    _f.c.turn.label("origin_turn"),
    _f.c.step.label("origin_step"),
    _f.c.unrecorded,
    _f.c.plan,
).join(_f, _f.c.sid == _s.c.sid, isouter=True)
_SID = Statement(
    sa.select(_s.c.sid).where(
        _s.c.tenant == sa.bindparam("of_tenant"), _s.c.id == sa.bindparam("of_id")
    )
)

_ROW = Statement(
    sa.select(_s).where(_s.c.tenant == sa.bindparam("of_tenant"), _s.c.id == sa.bindparam("of_id"))
)
_PINNED = Statement(
    sa.select(_t.c.spec_hash).where(
        _t.c.sid == sa.bindparam("of_sid"), _t.c.turn == sa.bindparam("of_turn")
    )
)
_NEXT_UP = Statement(
    sa.select(_i)
    .where(_i.c.sid == sa.bindparam("of_sid"), _i.c.state == "waiting", _i.c.kind == "message")
    # As `inbox.next_up` chooses: what stopped a turn goes first.
    .order_by(_i.c.target.is_(None), _i.c.position)
    .limit(1)
)
_SEARCHED = Statement(
    sa.select(schema.knowledge_bases.c.id)
    .where(
        schema.knowledge_bases.c.tenant == sa.bindparam("of_tenant"),
        schema.knowledge_bases.c.workspace == sa.bindparam("of_workspace"),
    )
    .limit(1)
)
_ASKED = Statement(
    sa.select(_m.c.body)
    .where(
        _m.c.sid == sa.bindparam("of_sid"),
        _m.c.turn == sa.bindparam("of_turn"),
        _m.c.role == "user",
        _m.c.body.contains('"type":"skill"', autoescape=True),
    )
    .order_by(_m.c.position)
)


def sid_of(connection: sa.Connection, key: SessionKey) -> int:
    """The session's short number; raises UnknownSession."""
    sid: int | None = _SID.scalar(connection, {"of_tenant": key.tenant, "of_id": key.session})
    if sid is None:
        raise UnknownSession(unknown(key))
    return sid


def session(connection: sa.Connection, key: SessionKey) -> SessionView:
    row = connection.execute(
        _SESSIONS.where(_s.c.tenant == key.tenant, _s.c.id == key.session)
    ).first()
    if row is None:
        raise UnknownSession(unknown(key))
    return _session_view(connection, row)


def sessions(
    connection: sa.Connection, tenant: str, limit: int, before: str | None, parent: str | None
) -> list[SessionView]:
    """The tenant's sessions that are no executors and of no swarm, or the executors of `parent`,
    or the sessions that work its items where it is a swarm; newest first, `before` is the id of
    the last one seen."""
    wanted = sa.and_(_s.c.parent_sid.is_(None), _s.c.swarm_sid.is_(None))
    if parent is not None:
        above = sid_of(connection, SessionKey(tenant, parent))
        of_swarm = sa.and_(_s.c.swarm_sid == above, _s.c.sid != above)
        wanted = sa.or_(_s.c.parent_sid == above, of_swarm)
    query = _SESSIONS.where(_s.c.tenant == tenant, wanted).order_by(_s.c.sid.desc()).limit(limit)
    if before is not None:
        query = query.where(_s.c.sid < sid_of(connection, SessionKey(tenant, before)))
    return [_session_view(connection, row) for row in connection.execute(query).all()]


def _session_view(connection: sa.Connection, row: Any) -> SessionView:
    status = "running" if row.open_turn is not None else "queued" if row.waiting else "idle"
    return SessionView(
        id=row.id,
        title=row.title,
        agent=row.agent,
        model=row.model,
        workspace=row.workspace,
        working_dir=row.working_dir,
        folder=row.folder,
        own_dir=row.own_dir,
        home=row.home,
        user=row.user,
        imported=row.imported,
        parent=row.parent,
        forked=_forked(row),
        status=status,
        turn=row.turn,
        waiting=row.waiting,
        last_outcome=row.last_outcome,
        created_at=row.created_at,
        updated_at=row.updated_at,
        usage=usage.of_session(connection, row.sid),
        cursor=f"{row.event_epoch}.{row.event_seq}",
        asked=asks.open_of(connection, row.sid) if row.budgeted else (),
    )


def _forked(row: Any) -> ForkedFrom | None:
    if row.origin_id is None:
        return None
    place = {"turn": row.origin_turn, "step": row.origin_step}
    turns = () if row.plan is None else json.loads(row.plan)["turns"]
    return ForkedFrom(session=row.origin_id, **place, turns=turns, unrecorded=row.unrecorded)


def turns(connection: sa.Connection, key: SessionKey, first: int) -> list[TurnView]:
    sid = sid_of(connection, key)
    started = sa.literal("turn/") + sa.cast(_t.c.turn, sa.Text) + "/started"
    rows = connection.execute(
        sa.select(_t, _e.c.epoch, _e.c.seq)
        .join(_e, sa.and_(_e.c.sid == _t.c.sid, _e.c.event_id == started), isouter=True)
        .where(_t.c.sid == sid, _t.c.turn >= first)
        .order_by(_t.c.turn)
    ).all()
    steps = connection.execute(
        sa.select(_st).where(_st.c.sid == sid, _st.c.turn >= first).order_by(_st.c.turn, _st.c.step)
    ).all()
    calls = connection.execute(
        sa.select(_c.c.turn, _c.c.step, _c.c.name)
        .where(_c.c.sid == sid, _c.c.turn >= first)
        .order_by(_c.c.turn, _c.c.step, _c.c.idx)
    ).all()
    sums = usage.of_turns(connection, sid, first)
    return [
        TurnView(
            turn=row.turn,
            agent=row.agent,
            outcome=row.outcome,
            reason=row.reason,
            started_at=row.started_at,
            ended_at=row.ended_at,
            steps=tuple(_step_view(step, calls) for step in steps if step.turn == row.turn),
            usage=sums.get(row.turn, UsageView()),
            # Where that event was trimmed away, all that is left is its turn's or a later one's.
            cursor="0" if row.seq is None else f"{row.epoch}.{row.seq - 1}",
        )
        for row in rows
    ]


def _step_view(row: Any, calls: Sequence[Any]) -> StepView:
    ended = row.ended_at is not None and row.started_at is not None
    return StepView(
        turn=row.turn,
        step=row.step,
        model=row.model,
        placement=row.placement,
        attempts=row.attempt,
        stop=row.stop,
        context_tokens=row.context_tokens,
        usage=UsageView(
            input_tokens=row.input_tokens,
            output_tokens=row.output_tokens,
            cached_tokens=row.cached_tokens,
            reasoning_tokens=row.reasoning_tokens,
            model_calls=int(row.ended_at is not None),
            cost_usd=row.cost_usd or 0.0,
            unpriced_calls=int(row.ended_at is not None and row.cost_usd is None),
        ),
        duration_seconds=round(row.ended_at - row.started_at, 4) if ended else None,
        tools=tuple(c.name for c in calls if (c.turn, c.step) == (row.turn, row.step)),
        sections=_sections(row.context),
        estimated=bool(row.estimated),
    )


def _sections(context: str) -> SectionsView | None:
    made = json.loads(context).get("sections")
    known = SectionsView.model_fields
    return made and SectionsView(**{name: made[name] for name in known if name in made})


_MESSAGES = Statement(
    sa.select(_m)
    .where(
        _m.c.sid == sa.bindparam("of_sid"),
        _m.c.position > sa.bindparam("after"),
        _m.c.position <= sa.bindparam("upto"),
    )
    .order_by(_m.c.position)
    .limit(sa.bindparam("most"))
)


def messages(
    connection: sa.Connection, key: SessionKey, after: int, limit: int
) -> list[MessageView]:
    rows = message_rows(connection, sid_of(connection, key), after, 2**31 - 1, limit)
    return [
        MessageView(
            position=row.position,
            turn=row.turn,
            step=row.step,
            message=message_from_json(row.body),
            tokens=row.tokens,
            created_at=row.created_at,
        )
        for row in rows
    ]


def message_rows(
    connection: sa.Connection, sid: int, after: int, upto: int, limit: int = 2**31 - 1
) -> Sequence[Any]:
    return _MESSAGES.all(connection, {"of_sid": sid, "after": after, "upto": upto, "most": limit})


def assignment(connection: sa.Connection, key: SessionKey) -> Assignment | None:
    """For whom the session's next turn would run; None where nothing waits."""
    row = _ROW.first(connection, {"of_tenant": key.tenant, "of_id": key.session})
    if row is None:
        raise UnknownSession(unknown(key))
    pinned = agent = model = None
    if row.open_turn is not None:
        pinned = _PINNED.one(connection, {"of_sid": row.sid, "of_turn": row.open_turn}).spec_hash
    else:
        first = _NEXT_UP.first(connection, {"of_sid": row.sid})
        if first is None:
            return None
        agent, model = first.agent, first.model
    return Assignment(
        agent=agent or row.agent,
        model=model or row.model,
        workspace=row.workspace,
        working_dir=row.working_dir,
        pinned=pinned,
        user=row.user,
        searched=_SEARCHED.first(
            connection,
            {"of_tenant": key.tenant, "of_workspace": os.path.realpath(row.workspace)},
        )
        is not None,
        rules=None if row.rules is None else ExecutorRules.model_validate_json(row.rules),
        priority=row.priority,
        output=None if row.output is None else Output.model_validate_json(row.output),
        useful=None if row.useful is None else tuple(row.useful.split()),
        own_dir=row.own_dir,
        folder_due=bool(row.folder_due),
        home=row.home or "",
        served={} if row.served is None else json.loads(row.served),
    )


def left_asleep(connection: sa.Connection, before: float, limit: int) -> list[Wake]:
    """Sessions whose sender set `wake_at` before `before` and whose turn never looked."""
    rows = connection.execute(
        sa.select(_s).where(_s.c.wake_at < before).order_by(_s.c.wake_at).limit(limit)
    )
    return [_wake(row) for row in rows]


def open_hosts(
    connection: sa.Connection, before: float, after: SessionKey | None, limit: int
) -> list[tuple[Wake, str]]:
    """Sessions with an open turn and no change since `before`, with the run that hosts them."""
    row = sa.tuple_(_s.c.tenant, _s.c.id)
    rows = connection.execute(
        sa.select(_s)
        .where(
            _s.c.open_turn.is_not(None),
            _s.c.updated_at < before,
            row > sa.tuple_(*(after or ("", ""))),
        )
        .order_by(_s.c.tenant, _s.c.id)
        .limit(limit)
    )
    return [(_wake(row), row.host_run_id or "") for row in rows]


def _wake(row: Any) -> Wake:
    key = SessionKey(row.tenant, row.id)
    return Wake(key, row.host_workflow_id, row.host_epoch, row.priority)


def invocations(connection: sa.Connection, key: SessionKey, turn: int) -> list[SkillInvocation]:
    """The skills that the messages of a turn ask for, in their order."""
    rows = _ASKED.all(connection, {"of_sid": sid_of(connection, key), "of_turn": turn})
    return [
        part
        for row in rows
        for part in UserMessage.model_validate_json(row.body).parts
        if isinstance(part, SkillInvocation)
    ]


def unfinished_calls(connection: sa.Connection) -> list[UnfinishedCall]:
    """Queued calls without a result, of whichever worker."""
    found = [
        connection.execute(
            sa.select(table.c.worker, table.c.task_token).where(
                table.c.state == "started", table.c.task_token.is_not(None)
            )
        ).all()
        for table in (_st, _c, schema.side_calls, schema.hook_runs)
    ]
    return [UnfinishedCall(row.worker, row.task_token) for rows in found for row in rows]


def durations(connection: sa.Connection, kind: str, name: str, limit: int) -> list[float]:
    """Seconds that the newest ended calls of a model or a tool took."""
    if kind == "model":
        query = sa.select(_st.c.ended_at - _st.c.started_at).where(
            _st.c.model == name, _st.c.ended_at.is_not(None), _st.c.stop != "cancelled"
        )
        order = _st.c.ended_at
    else:
        query = sa.select(_c.c.duration_seconds).where(
            _c.c.name == name, _c.c.ended_at.is_not(None)
        )
        order = _c.c.ended_at
    return list(connection.execute(query.order_by(order.desc()).limit(limit)).scalars())
