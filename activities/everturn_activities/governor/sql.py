"""The governor of one machine: its processes share the state in the store's database."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import orjson
import sqlalchemy as sa

from everturn_activities.governor import (
    BreakerState,
    Cause,
    Ending,
    GovernorState,
    ModelCall,
    Permit,
    Route,
    Wait,
    rules,
)
from everturn_activities.governor.limits import Limits, ProviderLimits
from everturn_activities.store import schema
from everturn_activities.store.database import Database, Tx
from everturn_activities.store.statement import Statement, insert

T = TypeVar("T")

_keys, _waiters = schema.governor_keys, schema.governor_waiters
_leases, _breakers = schema.governor_leases, schema.governor_breakers
_key: sa.BindParameter[str] = sa.bindparam("of_key")
_id: sa.BindParameter[str] = sa.bindparam("of_id")
_model: sa.BindParameter[str] = sa.bindparam("of_model")
_of_model = sa.and_(
    _breakers.c.provider == sa.bindparam("of_provider"), _breakers.c.model == _model
)


def _put(table: sa.Table) -> Statement:
    """Replaces the row of the same primary key, in words that both databases understand."""
    names = [column.name for column in table.columns]
    keys = [column.name for column in table.primary_key]
    columns, values = ", ".join(map(_quoted, names)), ", ".join(f":{name}" for name in names)
    changes = ", ".join(f"{_quoted(n)} = excluded.{_quoted(n)}" for n in names if n not in keys)
    same = ", ".join(map(_quoted, keys))
    return Statement(
        sa.text(
            f"INSERT INTO {table.name} ({columns}) VALUES ({values})"  # noqa: S608 - our names
            f" ON CONFLICT ({same}) DO UPDATE SET {changes}"
        )
    )


def _quoted(name: str) -> str:
    return f'"{name}"'


# Whoever reads a key's row keeps it locked until it has written what follows.
_KEY = Statement(sa.select(_keys.c.body).where(_keys.c.key == _key).with_for_update())
_NEW_KEY = insert(_keys)
_PUT_KEY = _put(_keys)
_BREAKER = Statement(sa.select(_breakers.c.body).where(_of_model).with_for_update())
_NEW_BREAKER = insert(_breakers)
_PUT_BREAKER = _put(_breakers)
_DROP_BREAKER = Statement(sa.delete(_breakers).where(_of_model))
_TIDY_WAITERS = Statement(
    sa.delete(_waiters).where(_waiters.c.key == _key, _waiters.c.due < sa.bindparam("gone"))
)
_TIDY_LEASES = Statement(
    sa.delete(_leases).where(_leases.c.key == _key, _leases.c.until <= sa.bindparam("now"))
)
_WAITER = Statement(sa.select(_waiters).where(_waiters.c.key == _key, _waiters.c.id == _id))
_PUT_WAITER = _put(_waiters)
_DROP_WAITER = Statement(sa.delete(_waiters).where(_waiters.c.key == _key, _waiters.c.id == _id))
_before = sa.and_(
    _waiters.c.key == _key,
    _waiters.c.due > sa.bindparam("due_after"),
    sa.tuple_(_waiters.c.tag, _waiters.c.number)
    < sa.tuple_(sa.bindparam("tag"), sa.bindparam("number")),
)
_AHEAD: dict[Cause, Statement] = {
    "rate": Statement(
        sa.select(sa.func.count()).where(_before, _waiters.c.line == sa.literal_column("'rate'"))
    ),
    "open": Statement(
        sa.select(sa.func.count()).where(
            _before, _waiters.c.model == _model, _waiters.c.line == sa.literal_column("'open'")
        )
    ),
    "busy": Statement(
        sa.select(sa.func.count()).where(
            _before, _waiters.c.model == _model, _waiters.c.line != sa.literal_column("'open'")
        )
    ),
}
_RUNNING = Statement(
    sa.select(sa.func.count()).where(
        _leases.c.key == _key, _leases.c.model == _model, _leases.c.id != _id
    )
)
_PUT_LEASE = _put(_leases)
_DROP_LEASE = Statement(sa.delete(_leases).where(_leases.c.key == _key, _leases.c.id == _id))


class SqlGovernor:
    """Time is the database's clock."""

    def __init__(self, database: Database, limits: Limits) -> None:
        self._database = database
        self._limits = limits

    async def ask(self, call: ModelCall) -> Permit | Wait:
        limits = self._limits.of(call.route.provider)
        answer = await self._with(call.route, lambda book, now: rules.ask(book, call, limits, now))
        if isinstance(answer, Wait):
            return answer
        return Permit(call, self.now(), answer.leased, answer.after_seconds)

    async def settle(self, permit: Permit, ending: Ending) -> None:
        call = permit.call
        limits = self._limits.of(call.route.provider)
        held = self.now() - permit.began
        await self._with(
            call.route, lambda book, now: rules.settle(book, call, ending, limits, held, now)
        )

    async def renew(self, permits: Sequence[Permit]) -> None:
        for permit in permits:
            await self._renew(permit.call, self._limits.of(permit.call.route.provider))

    async def _renew(self, call: ModelCall, limits: ProviderLimits) -> None:
        await self._with(call.route, lambda book, now: rules.renew(book, call, limits, now))

    async def state(self) -> GovernorState:
        now = self._database.now()
        return await self._database.read(lambda connection: _state(connection, now))

    def now(self) -> float:
        return self._database.now()

    async def close(self) -> None:
        """The database is its owner's to close."""

    async def _with(self, route: Route, rule: "Callable[[_SqlBook, float], T]") -> T:
        """What `rule` returns, applied to the key of `route` in one transaction."""

        def change(tx: Tx) -> T:
            book = _SqlBook(tx, route)
            result = rule(book, tx.now)
            book.save()
            return result

        return await self._database.write(change)


class _SqlBook:
    def __init__(self, tx: Tx, route: Route) -> None:
        self._connection = tx.connection
        self._now = tx.now
        self._provider = route.provider
        self._at = {"of_key": route.key}
        self._unheard: set[str] = set()
        body = _KEY.scalar(self._connection, self._at)
        self.key = _key_row(body)
        if body is None:
            # A row that two make at once is there for one of them, who looks again.
            _NEW_KEY.run(self._connection, self._row())

    def save(self) -> None:
        _PUT_KEY.run(self._connection, self._row())

    def _row(self) -> dict[str, Any]:
        return {
            "key": self._at["of_key"],
            "provider": self._provider,
            "body": orjson.dumps(asdict(self.key)).decode(),
            "changed_at": self._now,
        }

    def breaker(self, model: str) -> rules.Breaker:
        at = {"of_provider": self._provider, "of_model": model}
        body = _BREAKER.scalar(self._connection, at)
        if body is None:
            self._unheard.add(model)
        return rules.Breaker(**orjson.loads(body)) if body is not None else rules.Breaker()

    def keep_breaker(self, model: str, breaker: rules.Breaker | None) -> None:
        if breaker is None:
            at = {"of_provider": self._provider, "of_model": model}
            _DROP_BREAKER.run(self._connection, at)
            return
        # Of two keys that make a model's row at once, one looks again.
        put = _NEW_BREAKER if model in self._unheard else _PUT_BREAKER
        self._unheard.discard(model)
        put.run(
            self._connection,
            {
                "provider": self._provider,
                "model": model,
                "body": orjson.dumps(asdict(breaker)).decode(),
                "changed_at": self._now,
            },
        )

    def tidy(self, gone: float, now: float) -> None:
        _TIDY_WAITERS.run(self._connection, {**self._at, "gone": gone})
        _TIDY_LEASES.run(self._connection, {**self._at, "now": now})

    def waiter(self, call_id: str) -> rules.Waiter | None:
        row = _WAITER.first(self._connection, {**self._at, "of_id": call_id})
        if row is None:
            return None
        return rules.Waiter(row.id, row.model, row.tag, row.number, row.since, row.due, row.line)

    def keep_waiter(self, waiter: rules.Waiter) -> None:
        _PUT_WAITER.run(self._connection, {"key": self._at["of_key"], **vars(waiter)})

    def drop_waiter(self, call_id: str) -> None:
        _DROP_WAITER.run(self._connection, {**self._at, "of_id": call_id})

    def ahead(self, waiter: rules.Waiter, line: Cause, model: str | None, due_after: float) -> int:
        place = {"tag": waiter.tag, "number": waiter.number, "due_after": due_after}
        count: int = _AHEAD[line].scalar(self._connection, {**self._at, **place, "of_model": model})
        return count

    def running(self, model: str, besides: str) -> int:
        count: int = _RUNNING.scalar(
            self._connection, {**self._at, "of_model": model, "of_id": besides}
        )
        return count

    def keep_lease(self, call_id: str, model: str, until: float) -> None:
        row = {"key": self._at["of_key"], "id": call_id, "model": model, "until": until}
        _PUT_LEASE.run(self._connection, row)

    def drop_lease(self, call_id: str) -> None:
        _DROP_LEASE.run(self._connection, {**self._at, "of_id": call_id})


def _key_row(body: str | None) -> rules.KeyRow:
    if body is None:
        return rules.KeyRow()
    made: dict[str, Any] = orjson.loads(body)
    made["levels"] = {name: (level, at) for name, (level, at) in made["levels"].items()}
    made["told"] = {name: tuple(told) for name, told in made["told"].items()}
    return rules.KeyRow(**made)


_ALL_KEYS = Statement(sa.select(_keys))
_ALL_BREAKERS = Statement(sa.select(_breakers))
_WAITING = Statement(
    sa.select(_waiters.c.key, sa.func.count().label("most"))
    .where(_waiters.c.due >= sa.bindparam("gone"))
    .group_by(_waiters.c.key)
)
_LEASED = Statement(
    sa.select(_leases.c.key, sa.func.count().label("most"))
    .where(_leases.c.until > sa.bindparam("now"))
    .group_by(_leases.c.key)
)


def _state(connection: sa.Connection, now: float) -> GovernorState:
    breakers = []
    for row in _ALL_BREAKERS.all(connection, {}):
        breaker = rules.Breaker(**orjson.loads(row.body))
        breakers.append(
            BreakerState(
                row.provider,
                row.model,
                breaker.state(now),
                breaker.failures,
                max(0.0, breaker.until - now),
            )
        )
    rows = _ALL_KEYS.all(connection, {})
    if not rows:
        return GovernorState((), breakers)
    gone = {"gone": now - rules.GONE_SECONDS}
    waiting = {row.key: row.most for row in _WAITING.all(connection, gone)}
    running = {row.key: row.most for row in _LEASED.all(connection, {"now": now})}
    keys = [
        rules.state(
            row.key,
            row.provider,
            _key_row(row.body),
            waiting.get(row.key, 0),
            running.get(row.key, 0),
            now,
        )
        for row in rows
    ]
    return GovernorState([key for key in keys if key is not None], breakers)
