"""Memories: the facts of a session, a person or a project, each with where it comes from.

A fact is never changed. A consolidation puts others in its place, and forgetting one takes
its text away, with the texts of all that it stands for.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from everturn.agents import AgentSpec
from everturn.errors import IdempotencyConflict, UsageError
from everturn.memory import FACTS_MAX, FactSource, MemoryPlace, place
from everturn.views import FactView
from everturn_activities.store import schema
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.statement import Statement, insert, without_nul

_m, _f = schema.memories, schema.facts
_memory: sa.BindParameter[int] = sa.bindparam("of_memory")
_n: sa.BindParameter[int] = sa.bindparam("of_n")
_COUNTERS = ("n", "facts", "tokens", "quiet_tokens", "due_at", "due_sid", "due_turn")

_of_place = sa.and_(
    _m.c.tenant == sa.bindparam("of_tenant"),
    _m.c.scope == sa.bindparam("of_scope"),
    _m.c.owner == sa.bindparam("of_owner"),
)
_LOCK = Statement(sa.select(_m).where(_of_place).with_for_update())
_BY_ID = Statement(sa.select(_m).where(_m.c.id == _memory).with_for_update())
_SAVE = Statement(
    sa.update(_m).where(_m.c.id == _memory).values({name: sa.bindparam(name) for name in _COUNTERS})
)
_INSERT_MEMORY = insert(_m)
_INSERT_FACT = insert(_f)
_KEYED = Statement(sa.select(_f).where(_f.c.memory == _memory, _f.c.key == sa.bindparam("of_key")))
_ALIKE = Statement(
    sa.select(_f)
    .where(
        _f.c.memory == _memory,
        _f.c.text == sa.bindparam("of_text"),
        _f.c.replaced_by.is_(None),
        _f.c.forgotten_at.is_(None),
    )
    .order_by(_f.c.n)
    .limit(1)
)
_FACT = Statement(sa.select(_f).where(_f.c.memory == _memory, _f.c.n == _n))
_REPLACED = Statement(sa.select(_f.c.n).where(_f.c.memory == _memory, _f.c.replaced_by == _n))
_IN_FORCE = Statement(
    sa.select(_f)
    .where(_f.c.memory == _memory, _f.c.replaced_by.is_(None), _f.c.forgotten_at.is_(None))
    .order_by(_f.c.n)
)
_REPLACE = Statement(
    sa.update(_f)
    .where(_f.c.memory == _memory, _f.c.n == _n)
    .values(replaced_by=sa.bindparam("replaced_by"))
)
_FORGET = Statement(
    sa.update(_f)
    .where(_f.c.memory == _memory, _f.c.n == _n)
    .values(text="", forgotten_at=sa.bindparam("forgotten_at"))
)
_side = schema.side_calls
# What a consolidation answered may tell of a fact too.
_FORGET_REPLIES = Statement(
    sa.update(_side)
    .where(_side.c.kind == "memory", _side.c.ordinal == _memory)
    .values(reply="", content_key=None)
)
_joined = sa.select(_f, _m.c.scope, _m.c.owner).join(_m, _m.c.id == _f.c.memory)
_READ = Statement(
    _joined.where(_of_place, _f.c.replaced_by.is_(None), _f.c.forgotten_at.is_(None)).order_by(
        _f.c.n
    )
)
_READ_ALL = Statement(_joined.where(_of_place, _f.c.forgotten_at.is_(None)).order_by(_f.c.n))
_ABOVE = Statement(
    sa.select(_m.c.id).where(
        _of_place, _m.c.tokens > sa.bindparam("above"), _m.c.tokens > _m.c.quiet_tokens
    )
)
_MARK_DUE = Statement(
    sa.update(_m)
    .where(_m.c.id == _memory, _m.c.due_at.is_(None))
    # Again, for one that was consolidated while its row was waited for.
    .where(_m.c.tokens > sa.bindparam("above"), _m.c.tokens > _m.c.quiet_tokens)
    .values({name: sa.bindparam(name) for name in ("due_at", "due_sid", "due_turn")})
)
_DUE = Statement(
    sa.select(_m.c.id, _m.c.tenant)
    .where(_m.c.due_at <= sa.bindparam("upto"))
    .order_by(_m.c.due_at)
    .limit(sa.bindparam("most"))
)
_PUT_OFF = Statement(
    sa.update(_m)
    .where(_m.c.id == _memory, _m.c.due_at.is_not(None))
    .values(due_at=sa.bindparam("due_at"))
)


class LockedMemory:
    """A memory's row, locked: whoever holds it gives out the numbers of its facts."""

    id: int
    tenant: str
    n: int
    facts: int
    tokens: int
    quiet_tokens: int
    due_at: float | None
    due_sid: int | None
    due_turn: int | None

    def __init__(self, tx: Tx, row: Any) -> None:
        self.tx = tx
        self.id, self.tenant, self.scope, self.owner = row.id, row.tenant, row.scope, row.owner
        for name in _COUNTERS:
            setattr(self, name, getattr(row, name))

    def add(self, text: str, tokens: int, key: str, sources: Sequence[FactSource]) -> int:
        """The number of a new fact."""
        self.n += 1
        self.facts += 1
        self.tokens += tokens
        _INSERT_FACT.run(
            self.tx.connection,
            {
                "memory": self.id,
                "n": self.n,
                "text": text,
                "tokens": tokens,
                "key": key,
                "sources": json.dumps([source.model_dump() for source in sources]),
                "created_at": self.tx.now,
            },
        )
        return self.n

    def in_force(self) -> list[Any]:
        """The rows of the facts that are read, the oldest first."""
        return _IN_FORCE.all(self.tx.connection, {"of_memory": self.id})

    def replace(self, fact: Any, by: int) -> None:
        _REPLACE.run(self.tx.connection, {"of_memory": self.id, "of_n": fact.n, "replaced_by": by})
        self.facts -= 1
        self.tokens -= fact.tokens

    def save(self) -> None:
        values = {name: getattr(self, name) for name in _COUNTERS}
        _SAVE.run(self.tx.connection, {"of_memory": self.id, **values})


@dataclass(frozen=True)
class DueMemory:
    """A memory that is to be consolidated."""

    id: int
    tenant: str


def save(
    tx: Tx, at: MemoryPlace, text: str, tokens: int, key: str, source: FactSource | None
) -> FactView:
    """Keep a fact once: the same `key` again, or the same text, answers with the one there is.

    Raises UsageError where the memory is full.
    """
    memory = _locked(tx, at)
    known = _KEYED.first(tx.connection, {"of_memory": memory.id, "of_key": key}) or _ALIKE.first(
        tx.connection, {"of_memory": memory.id, "of_text": text}
    )
    if known is not None:
        if known.key == key and known.text not in ("", text, without_nul(text)):
            raise IdempotencyConflict(
                f"Fact {known.n} of this {at.scope} was saved under that id with another text;"
                " use a new id for a new fact."
            )
        return _view(known, at)
    if memory.facts >= FACTS_MAX:
        raise UsageError(
            f"The memory of this {at.scope} has {memory.facts:,} facts, which is the limit;"
            " forget some of them before you add more."
        )
    n = memory.add(text, tokens, key, () if source is None else (source,))
    memory.save()
    return _view(_FACT.one(tx.connection, {"of_memory": memory.id, "of_n": n}), at)


def read(connection: sa.Connection, places: Sequence[MemoryPlace]) -> list[FactView]:
    """The facts in force of `places`, in their order, the oldest first."""
    return _read(connection, places, _READ)


def read_all(connection: sa.Connection, places: Sequence[MemoryPlace]) -> list[FactView]:
    """The same with those that others stand in the place of."""
    return _read(connection, places, _READ_ALL)


def forget(tx: Tx, at: MemoryPlace, n: int) -> None:
    """Take a fact away with all that it stands for; one that is forgotten already stays so.

    Raises UsageError where there is none of that number.
    """
    memory = _locked(tx, at)
    fact = _FACT.first(tx.connection, {"of_memory": memory.id, "of_n": n})
    if fact is None:
        raise UsageError(f"The memory of this {at.scope} has no fact {n}.")
    if fact.forgotten_at is not None:
        return
    if fact.replaced_by is not None:
        raise UsageError(
            f"Fact {n} of this {at.scope} has become part of fact {fact.replaced_by};"
            " forget that one, and with it all that it stands for."
        )
    memory.facts -= 1
    memory.tokens -= fact.tokens
    memory.save()
    todo = [n]
    while todo:
        where = {"of_memory": memory.id, "of_n": todo.pop()}
        todo += [row.n for row in _REPLACED.all(tx.connection, where)]
        _FORGET.run(tx.connection, {**where, "forgotten_at": tx.now})
    _FORGET_REPLIES.run(tx.connection, {"of_memory": memory.id})


def mark_due(session: LockedSession, turn: int, spec: AgentSpec) -> None:
    """Have the memories of a turn that has ended consolidated that have grown too large."""
    rules = spec.profile.memory
    if rules.consolidate_tokens is None:
        return
    connection = session.tx.connection
    for scope in rules.scopes:
        at = _at(place(scope, *session.key, spec.workspace, spec.user))
        large = {"above": rules.consolidate_tokens}
        memory = _ABOVE.scalar(connection, {**at, **large})
        if memory is not None:
            due = {"due_at": session.tx.now, "due_sid": session.sid, "due_turn": turn}
            _MARK_DUE.run(connection, {"of_memory": memory, **large, **due})


def due(connection: sa.Connection, upto: float, limit: int) -> list[DueMemory]:
    """Memories whose consolidation is due since `upto` or before, the longest waiting first."""
    rows = _DUE.all(connection, {"upto": upto, "most": limit})
    return [DueMemory(row.id, row.tenant) for row in rows]


def put_off(tx: Tx, memory: int, until: float) -> None:
    """Let nobody begin the consolidation before `until`: it has been begun."""
    _PUT_OFF.run(tx.connection, {"of_memory": memory, "due_at": until})


def by_id(tx: Tx, memory: int) -> LockedMemory | None:
    row = _BY_ID.first(tx.connection, {"of_memory": memory})
    return None if row is None else LockedMemory(tx, row)


def sources_of(fact: Any) -> list[FactSource]:
    return [FactSource(**source) for source in json.loads(fact.sources)]


def _locked(tx: Tx, at: MemoryPlace) -> LockedMemory:
    """The memory of that place; a new one has no facts."""
    row = _LOCK.first(tx.connection, _at(at))
    if row is None:
        named = {"tenant": at.tenant, "scope": at.scope, "owner": at.owner}
        _INSERT_MEMORY.run(tx.connection, named)
        row = _LOCK.one(tx.connection, _at(at))
    return LockedMemory(tx, row)


def _read(
    connection: sa.Connection, places: Sequence[MemoryPlace], statement: Statement
) -> list[FactView]:
    return [_view(row, at) for at in places for row in statement.all(connection, _at(at))]


def _view(row: Any, at: MemoryPlace) -> FactView:
    return FactView(
        n=row.n,
        scope=at.scope,
        owner=at.owner,
        text=row.text,
        sources=tuple(sources_of(row)),
        tokens=row.tokens,
        created_at=row.created_at,
        replaced_by=row.replaced_by,
    )


def _at(at: MemoryPlace) -> dict[str, str]:
    return {"of_tenant": at.tenant, "of_scope": at.scope, "of_owner": at.owner}
