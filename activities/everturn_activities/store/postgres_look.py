"""What an operator should know of a PostgreSQL: whether it lets us in, and what it keeps."""

import ssl
import time
from dataclasses import dataclass
from typing import Any, Literal

import asyncpg
from sqlalchemy.engine import URL

from everturn_activities.store import schema
from everturn_activities.store.migrate import HEAD

Refusal = Literal["away", "password", "database", "full", "starting", "no_tls", "tls"]
Schema = Literal["none", "ours", "older", "other", "incomplete"]

_FACTS = """
SELECT current_setting('server_version_num')::int AS version,
    current_setting('server_encoding') AS encoding,
    pg_is_in_recovery() OR current_setting('default_transaction_read_only')::bool AS is_read_only,
    current_setting('fsync')::bool AND current_setting('synchronous_commit') <> 'off' AS is_durable,
    current_setting('max_connections')::int
        - current_setting('superuser_reserved_connections')::int AS connections_max,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::int - 1
        AS connections,
    coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS may_create,
    coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS has_tls,
    extract(epoch from clock_timestamp())::float8 AS now
"""
_COLUMNS = """
SELECT c.relname || '.' || a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
    AND a.attnum > 0 AND NOT a.attisdropped
"""


@dataclass(frozen=True)
class PostgresFacts:
    """`clock_seconds` is how far its clock is ahead of ours; `connections` are those of others."""

    version: int
    encoding: str
    is_read_only: bool
    is_durable: bool
    connections_max: int
    connections: int
    may_create: bool
    has_tls: bool
    clock_seconds: float
    schema: Schema


async def look(url: URL, seconds: float) -> PostgresFacts | Refusal:
    """Asks once and changes nothing."""
    address = url.set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        connection = await asyncpg.connect(address, timeout=seconds, command_timeout=seconds)
    except Exception as error:
        return _refusal(error)
    try:
        asked = time.time()
        [found] = await connection.fetch(_FACTS)
        row = dict(found)
        between = (asked + time.time()) / 2
        return PostgresFacts(
            clock_seconds=row.pop("now") - between, schema=await _schema(connection), **row
        )
    finally:
        await connection.close(timeout=seconds)


async def _schema(connection: Any) -> Schema:
    columns = {row[0] for row in await connection.fetch(_COLUMNS)}
    if "alembic_version.version_num" not in columns:
        return "none"
    known = await connection.fetchval("SELECT version_num FROM alembic_version")
    if known != HEAD:
        # Revisions are numbered in their order.
        return "older" if str(known) < HEAD else "other"
    ours = {f"{t.name}.{c.name}" for t in schema.metadata.sorted_tables for c in t.columns}
    return "ours" if ours <= columns else "incomplete"


def _refusal(error: Exception) -> Refusal:
    match error:
        case asyncpg.InvalidCatalogNameError():
            return "database"
        case asyncpg.InvalidAuthorizationSpecificationError():
            return "no_tls" if "no encryption" in str(error) else "password"
        case asyncpg.TooManyConnectionsError():
            return "full"
        case asyncpg.CannotConnectNowError():
            return "starting"
        case ssl.SSLError():
            return "tls"
        case ConnectionError() if "SSL" in str(error):
            return "tls"
        case _:
            return "away"
