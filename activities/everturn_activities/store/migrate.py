"""Brings a database to this version's schema."""

import sqlalchemy as sa

from everturn.errors import RuntimeUnavailable
from everturn_activities.store import schema

HEAD = "0001"
"""The newest revision in `migrations/versions`; a test holds it to Alembic's own answer."""


def migrate(connection: sa.Connection) -> None:
    """Upgrade within the caller's transaction, so that two processes cannot both do it.

    Raises RuntimeUnavailable for a database of another version than it says or than ours.
    """
    known = None
    if sa.inspect(connection).has_table("alembic_version"):
        known = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    if known == HEAD:
        if (missing := _missing(connection)) is not None:
            raise RuntimeUnavailable(
                f"The store has no {missing}, because a version of Everturn made it that was not"
                " released; move it away, or set EVERTURN_HOME to another folder."
            )
        return
    # Alembic takes a third of a second to import; an up-to-date database does not need it.
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


def _missing(connection: sa.Connection) -> str | None:
    """A table or column that the schema has and the database has not: each turn would fail at
    it for ever, as if the store were away."""
    found = sa.inspect(connection).get_multi_columns()
    for table in schema.metadata.sorted_tables:
        columns = {column["name"] for column in found.get((None, table.name), ())}
        if not columns:
            return f"table {table.name!r}"
        for column in table.columns:
            if column.name not in columns:
                return f"column {table.name}.{column.name}"
    return None
