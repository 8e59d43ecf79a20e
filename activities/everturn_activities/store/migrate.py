"""Brings a database to this version's schema."""

from functools import lru_cache

import sqlalchemy as sa
from sqlalchemy.schema import CreateIndex, CreateTable

from everturn.errors import RuntimeUnavailable
from everturn_activities.store import schema

HEAD = "0001"
"""The newest revision in `migrations/versions`; a test holds it to Alembic's own answer."""

_VERSION = sa.Table(
    "alembic_version",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def is_current(connection: sa.Connection) -> bool:
    """Whether there is nothing to upgrade; whoever has to waits for nobody to find that out."""
    if "alembic_version" not in _columns(connection):
        return False
    known = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    return known == HEAD and _missing(connection) is None


def migrate(connection: sa.Connection) -> None:
    """Upgrade within the caller's transaction, so that two processes cannot both do it.

    Raises RuntimeUnavailable for a database of another version than it says or than ours.
    """
    known = None
    tables = sa.inspect(connection).get_table_names()
    if not tables:
        create(connection)
        return
    if "alembic_version" in tables:
        known = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    if known == HEAD:
        if (missing := _missing(connection)) is not None:
            raise RuntimeUnavailable(
                f"The store has no {missing}, because a version of Everturn made it that was not"
                " released; move it away, or set EVERTURN_HOME to another folder."
            )
        return
    upgrade(connection, known)


def create(connection: sa.Connection) -> None:
    """Give an empty database the newest schema at once: step by step, with Alembic, takes 20
    times as long."""
    for statement in _statements(connection.dialect.name):
        connection.exec_driver_sql(statement)


def upgrade(connection: sa.Connection, known: str | None = None) -> None:
    """Take a database from revision `known`, or from nothing, through all migrations."""
    # Takes a third of a second to import; an up-to-date database does not need it.
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", "everturn_activities.store:migrations")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError:
        raise RuntimeUnavailable(
            f"The store has schema {known}, this version knows {HEAD}: upgrade Everturn."
        ) from None


@lru_cache
def _statements(dialect: str) -> tuple[str, ...]:
    """What makes the tables, as Alembic leaves them."""
    to = sa.create_mock_engine(f"{dialect}://", lambda statement: None).dialect
    made: list[str] = []
    for table in schema.metadata.sorted_tables:
        made.append(str(CreateTable(table).compile(dialect=to)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        made += [str(CreateIndex(index).compile(dialect=to)) for index in indexes]
    made.append(str(CreateTable(_VERSION).compile(dialect=to)))
    made.append(f"INSERT INTO alembic_version VALUES ('{HEAD}')")  # noqa: S608
    return tuple(made)


def _missing(connection: sa.Connection) -> str | None:
    """A table or column that the schema has and the database has not: each turn would fail at
    it for ever, as if the store were away."""
    found = _columns(connection)
    for table in schema.metadata.sorted_tables:
        columns = found.get(table.name, set())
        if not columns:
            return f"table {table.name!r}"
        for column in table.columns:
            if column.name not in columns:
                return f"column {table.name}.{column.name}"
    return None


def _columns(connection: sa.Connection) -> dict[str, set[str]]:
    """Of each table of the database."""
    found: dict[str, set[str]] = {}
    if connection.dialect.name == "sqlite":
        for (_, table), columns in sa.inspect(connection).get_multi_columns().items():
            found[table] = {column["name"] for column in columns}
        return found
    # Asking for names alone is quick; all else that SQLAlchemy asks for is not.
    asked = (
        "SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
        " WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'"
        " AND a.attnum > 0 AND NOT a.attisdropped"
    )
    for table, name in connection.execute(sa.text(asked)):
        found.setdefault(table, set()).add(name)
    return found
