"""Statements compiled once and run on the driver itself.

SQLAlchemy describes every statement, so one description serves every database. Executing
through it costs about 80 us a statement, and a turn has 180 of them: as our types need no
conversion, the compiled text goes straight to the driver (about 8 us on SQLite).
"""

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.util import await_only

Parameters = Mapping[str, Any]


class Statement:
    """A SQLAlchemy statement whose parameters are all named binds."""

    def __init__(self, core: sa.Executable) -> None:
        self._core = core
        self._compiled: dict[str, _Compiled] = {}

    def all(self, connection: sa.Connection, parameters: Parameters) -> list[Any]:
        """The rows, with columns as attributes."""
        compiled = self._compiled.get(connection.dialect.name) or self._compile(connection)
        values = compiled.bound(parameters)
        if compiled.waits:
            found = await_only(_waiting(connection).fetch(compiled.text, *map(without_nul, values)))
            if not found:
                return []
            names = found[0].keys()
        else:
            cursor = _driver(connection).execute(compiled.text, values)
            found = cursor.fetchall()
            names = (column[0] for column in cursor.description)
        if compiled.make is None:
            compiled.make = _row_type(list(names))
        return [compiled.make(row) for row in found]

    def first(self, connection: sa.Connection, parameters: Parameters) -> Any:
        rows = self.all(connection, parameters)
        return rows[0] if rows else None

    def one(self, connection: sa.Connection, parameters: Parameters) -> Any:
        """The row that must be there."""
        (row,) = self.all(connection, parameters)
        return row

    def scalar(self, connection: sa.Connection, parameters: Parameters) -> Any:
        """The first column of the first row, or None."""
        rows = self.all(connection, parameters)
        return rows[0][0] if rows else None

    def run(self, connection: sa.Connection, *parameters: Parameters) -> None:
        """Execute once for each of `parameters`."""
        compiled = self._compiled.get(connection.dialect.name) or self._compile(connection)
        if not compiled.waits:
            driver = _driver(connection)
            for each in parameters:
                driver.execute(compiled.text, compiled.bound(each))
            return
        waiting = _waiting(connection)
        values = [tuple(map(without_nul, compiled.bound(each))) for each in parameters]
        if len(values) == 1:
            await_only(waiting.fetch(compiled.text, *values[0]))
        elif values:
            await_only(waiting.executemany(compiled.text, values))

    def _compile(self, connection: sa.Connection) -> "_Compiled":
        compiled = self._core.compile(dialect=connection.dialect)  # type: ignore[attr-defined]
        made = _Compiled(
            str(compiled),
            compiled.positiontup,
            dict(compiled.params),
            waits=connection.dialect.is_async,
        )
        self._compiled[connection.dialect.name] = made
        return made


@dataclass
class _Compiled:
    """A statement in a database's own words; `waits` where its driver is awaited."""

    text: str
    order: Sequence[str]
    defaults: dict[str, Any]
    waits: bool
    make: Callable[[Any], Any] | None = None

    def bound(self, parameters: Parameters) -> list[Any]:
        defaults = self.defaults
        return [parameters[n] if n in parameters else defaults[n] for n in self.order]


def without_nul(value: Any) -> Any:
    """`value` as PostgreSQL takes it: a text that holds the sign 0 is refused there, so it gets
    the sign for what cannot be shown. Here, for it is the one way in for all that is stored."""
    if type(value) is str and "\0" in value:
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return value


def lock_table(
    connection: sa.Connection,
    table: sa.Table,
    mode: Literal["EXCLUSIVE", "ROW EXCLUSIVE"] = "EXCLUSIVE",
) -> None:
    """Wait until nobody else has a row of `table` locked, and let nobody lock one; with `ROW
    EXCLUSIVE` wait for whoever does so. On SQLite there is only one writer anyway."""
    if connection.dialect.name != "sqlite":
        connection.exec_driver_sql(f'LOCK TABLE "{table.name}" IN {mode} MODE')


def insert(table: sa.Table) -> Statement:
    """An INSERT of a whole row; columns that are not given take their default or NULL, and the
    one that the database numbers takes the next number."""
    values: dict[str, sa.BindParameter[Any]] = {}
    for column in table.columns:
        if column is table.autoincrement_column:
            continue
        default = column.default.arg if isinstance(column.default, sa.ColumnDefault) else None
        values[column.name] = sa.bindparam(column.name, default, column.type)
    return Statement(sa.insert(table).values(values))


def _row_type(names: list[str]) -> Callable[[Any], Any]:
    kind: Any = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    make: Callable[[Any], Any] = kind._make
    return make


def _driver(connection: sa.Connection) -> Any:
    return connection.connection.dbapi_connection


def _waiting(connection: sa.Connection) -> Any:
    return connection.connection.driver_connection
