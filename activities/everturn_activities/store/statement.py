"""Statements compiled once and run on the driver itself where that is safe.

SQLAlchemy describes every statement, so one description serves every database. Executing
through it costs about 80 us a statement, and a turn has 180 of them: on SQLite, whose
types need no conversion, the compiled text goes straight to the driver (about 8 us).
"""

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

Parameters = Mapping[str, Any]


class Statement:
    """A SQLAlchemy statement whose parameters are all named binds."""

    def __init__(self, core: sa.Executable) -> None:
        self._core = core
        self._text: str | None = None
        self._order: Sequence[str] = ()
        self._defaults: dict[str, Any] = {}
        self._make: Callable[[Any], Any] | None = None

    def all(self, connection: sa.Connection, parameters: Parameters) -> list[Any]:
        """The rows, with columns as attributes."""
        if connection.dialect.name != "sqlite":
            return list(connection.execute(self._core, parameters).all())
        cursor = _driver(connection).execute(*self._bound(connection, parameters))
        if self._make is None:
            names = [column[0] for column in cursor.description]
            self._make = _row_type(names)
        return [self._make(row) for row in cursor.fetchall()]

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
        if connection.dialect.name != "sqlite":
            connection.execute(self._core, list(parameters))
            return
        driver = _driver(connection)
        for each in parameters:
            driver.execute(*self._bound(connection, each))

    def _bound(self, connection: sa.Connection, parameters: Parameters) -> tuple[str, list[Any]]:
        if self._text is None:
            compiled = self._core.compile(dialect=connection.dialect)  # type: ignore[attr-defined]
            self._defaults = dict(compiled.params)
            self._order = compiled.positiontup
            self._text = str(compiled)
        defaults = self._defaults
        values = [parameters[n] if n in parameters else defaults[n] for n in self._order]
        return self._text, values


def insert(table: sa.Table) -> Statement:
    """An INSERT of a whole row; columns that are not given take their default or NULL."""
    values: dict[str, sa.BindParameter[Any]] = {}
    for column in table.columns:
        default = column.default.arg if isinstance(column.default, sa.ColumnDefault) else None
        values[column.name] = sa.bindparam(column.name, default)
    return Statement(sa.insert(table).values(values))


def _row_type(names: list[str]) -> Callable[[Any], Any]:
    kind: Any = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    make: Callable[[Any], Any] = kind._make
    return make


def _driver(connection: sa.Connection) -> Any:
    return connection.connection.dbapi_connection
