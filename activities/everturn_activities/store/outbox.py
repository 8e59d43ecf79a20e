"""The outbox: what somebody outside is told, written with the events that it tells of."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import sqlalchemy as sa

from everturn.errors import UnknownWebhook
from everturn.session import SessionKey
from everturn.tasks import RESULT_BYTES_MAX
from everturn.webhooks import ATTEMPTS_MAX, Webhook, WebhookState, WebhookView, pause_seconds
from everturn_activities.capped import capped
from everturn_activities.store import Delivery, schema
from everturn_activities.store.database import Tx
from everturn_activities.store.statement import Statement, insert

LEASE_SECONDS = 20.0
"""Longer than an attempt takes; whoever was killed in one is made up for then."""

RECEIVER_MAX = 10
"""Attempts at once at one URL."""

ASKING = frozenset({"approval_asked", "budget_asked"})
PERSON_AWAITED = "person.awaited"

_w, _s, _t = schema.webhooks, schema.sessions, schema.tasks
_INSERT = insert(_w)
_TASK = Statement(sa.select(_t).where(_t.c.n == sa.bindparam("of_task")))
_viewed = (
    sa.select(_w, _s.c.tenant, _s.c.id.label("session"), _s.c.workspace, _t.c.id.label("of_task"))
    .join(_s, _s.c.sid == _w.c.sid)
    .outerjoin(_t, _t.c.n == _s.c.task)
)
_DUE = Statement(
    _viewed.where(_w.c.due_at <= sa.bindparam("now"))
    .order_by(_w.c.due_at, _w.c.n)
    .limit(sa.bindparam("most"))
)
_ranked = (
    sa.select(
        _w.c.n,
        sa.func.row_number()
        .over(partition_by=_w.c.url, order_by=(_w.c.due_at, _w.c.n))
        .label("place"),
    )
    .where(_w.c.due_at <= sa.bindparam("now"))
    .subquery()
)
_IN_TURN = (
    _viewed.join(_ranked, _ranked.c.n == _w.c.n)
    .where(_ranked.c.place <= sa.bindparam("of_receiver"))
    .order_by(_w.c.due_at, _w.c.n)
)
_OF_SESSION = Statement(_viewed.where(_w.c.sid == sa.bindparam("of_sid")).order_by(_w.c.n))
_BEGIN = Statement(
    sa.update(_w)
    # Another process may have begun it since we looked.
    .where(_w.c.n == sa.bindparam("of_n"), _w.c.attempts == sa.bindparam("of_attempts"))
    .where(_w.c.due_at <= sa.bindparam("now"))
    .values(attempts=_w.c.attempts + 1, due_at=sa.bindparam("due_at"))
    .returning(_w.c.n)
)
_SETTLE = Statement(
    sa.update(_w)
    # A later attempt settles it itself.
    .where(_w.c.id == sa.bindparam("of_id"), _w.c.attempts == sa.bindparam("of_attempt"))
    .where(_w.c.state == "waits")
    .values(
        state=sa.bindparam("state"), reason=sa.bindparam("reason"), due_at=sa.bindparam("due_at")
    )
)


class _Told(Protocol):
    """The session whose events are told."""

    tx: Tx
    sid: int
    key: SessionKey
    task: int | None


def put(
    connection: sa.Connection, session: _Told, webhook: str, events: Sequence[Mapping[str, Any]]
) -> None:
    """Write down what of `events`, which are on their way into the log, is told outside."""
    to = Webhook.model_validate_json(webhook)
    for event in events:
        told = _told(connection, session, event)
        if told is None:
            continue
        kind, body = told
        name = f"{session.key.tenant}/{session.key.session}/{event['event_id']}"
        moment = datetime.fromtimestamp(session.tx.now, UTC).isoformat().replace("+00:00", "Z")
        _INSERT.run(
            connection,
            {
                "id": f"msg_{hashlib.sha256(name.encode()).hexdigest()[:32]}",
                "sid": session.sid,
                "type": kind,
                "url": to.url,
                "secret": to.secret,
                "body": json.dumps(
                    {"type": kind, "timestamp": moment, "data": body}, ensure_ascii=False
                ),
                "state": "waits",
                "created_at": session.tx.now,
                "due_at": session.tx.now,
            },
        )


def _told(
    connection: sa.Connection, session: _Told, event: Mapping[str, Any]
) -> tuple[str, dict[str, Any]] | None:
    kind, said = event["type"], None
    if kind in ASKING:
        kind, said = PERSON_AWAITED, json.loads(event["body"])
    elif kind == "executor_event":
        # A question of an executor's is its parent's user's to answer.
        inner = json.loads(event["body"])
        if inner["event"] in ASKING:
            kind, said = PERSON_AWAITED, {"executor": inner["executor"], **inner["told"]}
    elif kind == "task_ended":
        said = json.loads(event["body"])
        kind = f"task.{said['state']}"
        result = _TASK.one(connection, {"of_task": session.task}).result
        if result is not None:
            cut = capped(result, RESULT_BYTES_MAX)
            said |= {"result": cut, "result_cut": cut != result}
    elif kind == "turn_finished" and session.task is None:
        said = json.loads(event["body"])
        kind = "turn.finished"
        said["text"] = capped(said["text"], RESULT_BYTES_MAX)
    if said is None:
        return None
    return kind, {"session": session.key.session, "turn": event["turn"], **said}


def take_due(tx: Tx, limit: int, under_way: Mapping[str, int]) -> list[Delivery]:
    """Begin an attempt at each delivery that is due. Nobody else begins one for a while.

    A receiver has so many at once, with those `under_way` by its URL: one that answers nothing
    leaves places for others.
    """
    taken = dict(under_way)
    begun: list[Any] = []
    for row in tx.connection.execute(_IN_TURN, {"now": tx.now, "of_receiver": RECEIVER_MAX}):
        if len(begun) == limit:
            break
        if taken.get(row.url, 0) < RECEIVER_MAX:
            taken[row.url] = taken.get(row.url, 0) + 1
            begun.append(row)
    mine: set[int] = set()
    for row in sorted(begun, key=lambda row: row.n):
        lease = {"now": tx.now, "due_at": tx.now + LEASE_SECONDS}
        known = {"of_n": row.n, "of_attempts": row.attempts}
        mine.update(found.n for found in _BEGIN.all(tx.connection, {**lease, **known}))
    return [
        Delivery(row.id, row.attempts + 1, row.workspace, row.url, row.secret, row.body)
        for row in begun
        if row.n in mine
    ]


def any_due(connection: sa.Connection, now: float) -> bool:
    return bool(_DUE.all(connection, {"now": now, "most": 1}))


def delivered(tx: Tx, delivery: Delivery) -> None:
    _settle(tx, delivery, "delivered", None, None)


def failed(tx: Tx, delivery: Delivery, reason: str, for_good: bool, spread: float) -> None:
    """Keep why an attempt failed, and when the next one is, if any."""
    if for_good or delivery.attempt >= ATTEMPTS_MAX:
        tries = "" if for_good else f" It was sent {delivery.attempt} times."
        _settle(tx, delivery, "dead", f"{reason}{tries}", None)
    else:
        due_at = tx.now + pause_seconds(delivery.attempt, spread)
        _settle(tx, delivery, "waits", reason, due_at)


def _settle(
    tx: Tx, delivery: Delivery, state: WebhookState, reason: str | None, due_at: float | None
) -> None:
    at = {"of_id": delivery.id, "of_attempt": delivery.attempt}
    _SETTLE.run(tx.connection, {**at, "state": state, "reason": reason, "due_at": due_at})


def send_again(tx: Tx, tenant: str, name: str) -> WebhookView:
    """Send a delivery anew, at once and as often as at first."""
    row = tx.connection.execute(_viewed.where(_s.c.tenant == tenant, _w.c.id == name)).first()
    if row is None:
        raise UnknownWebhook(
            f"There is no webhook {name!r}; `everturn webhooks list` names those there are."
        )
    changed = {"state": "waits", "attempts": 0, "reason": None, "due_at": tx.now}
    tx.connection.execute(sa.update(_w).where(_w.c.n == row.n).values(changed))
    return view(row).model_copy(update=changed)


def listed(
    connection: sa.Connection, tenant: str, state: WebhookState | None, limit: int, before: str
) -> list[WebhookView]:
    """The tenant's deliveries, the newest first, older than `before`."""
    query = _viewed.where(_s.c.tenant == tenant).order_by(_w.c.n.desc()).limit(limit)
    if state is not None:
        query = query.where(_w.c.state == state)
    if before:
        last = sa.select(_w.c.n).where(_w.c.id == before).scalar_subquery()
        query = query.where(_w.c.n < last)
    return [view(row) for row in connection.execute(query)]


def of_session(connection: sa.Connection, sid: int) -> tuple[WebhookView, ...]:
    return tuple(view(row) for row in _OF_SESSION.all(connection, {"of_sid": sid}))


def view(row: Any) -> WebhookView:
    return WebhookView(
        id=row.id,
        session=row.session,
        task=row.of_task,
        type=row.type,
        url=row.url,
        state=row.state,
        attempts=row.attempts,
        reason=row.reason,
        created_at=row.created_at,
        due_at=row.due_at,
    )
