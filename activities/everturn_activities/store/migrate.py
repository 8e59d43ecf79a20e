"""Brings a database to this version's schema."""

import sqlalchemy as sa

from everturn.errors import RuntimeUnavailable

HEAD = "0001"
"""The newest revision in `migrations/versions`; a test holds it to Alembic's own answer."""


def migrate(connection: sa.Connection) -> None:
    """Upgrade within the caller's transaction, so that two processes cannot both do it.

    Raises RuntimeUnavailable for a database of a newer version than ours.
    """
    known = None
    if sa.inspect(connection).has_table("alembic_version"):
        known = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    if known == HEAD:
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
