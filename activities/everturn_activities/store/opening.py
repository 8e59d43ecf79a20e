"""Which database a URL names, and opening it."""

from collections.abc import Callable
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from everturn.errors import UsageError
from everturn.session import SessionKey
from everturn_activities.store.database import Database, SqliteDatabase


def database_url(url: str) -> URL:
    """`url` as we can open it; UsageError, which does not quote it, where we cannot."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise UsageError(
            "EVERTURN_DATABASE_URL is not a database URL; write sqlite:///PATH or"
            " postgresql://USER:PASSWORD@HOST:PORT/DATABASE."
        ) from None
    kind = parsed.get_backend_name()
    if kind not in ("sqlite", "postgresql", "postgres"):
        raise UsageError(
            f"EVERTURN_DATABASE_URL names {kind}; the store is kept in SQLite or PostgreSQL: write"
            " sqlite:///PATH or postgresql://USER:PASSWORD@HOST:PORT/DATABASE."
        )
    if kind != "sqlite" and url.partition("?")[0].count("@") > 1:
        raise UsageError(
            "EVERTURN_DATABASE_URL has an @ in its user or password, where it ends the password;"
            " write %40 for @ and %2F for / there."
        )
    if not parsed.database:
        raise UsageError(
            "EVERTURN_DATABASE_URL names no database; write sqlite:///PATH or"
            " postgresql://USER:PASSWORD@HOST:PORT/DATABASE."
        )
    return parsed


async def open_database(
    url: str, told: Callable[[set[SessionKey]], None], connections: int, patience_seconds: float
) -> Database:
    """The database of `url`, with this version's schema.

    Raises UsageError for a URL that we cannot use, and RuntimeUnavailable for a database that
    cannot be opened.
    """
    parsed = database_url(url)
    if parsed.get_backend_name() == "sqlite":
        return SqliteDatabase(Path(parsed.database or ""), told)
    # Imported late: a store in a file needs no driver of PostgreSQL.
    from everturn_activities.store.postgres import PostgresDatabase

    database = PostgresDatabase(
        parsed, told, connections=connections, patience_seconds=patience_seconds
    )
    await database.open()
    return database
