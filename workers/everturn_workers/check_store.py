"""Whether the store can be worked with: its file, or the PostgreSQL that a URL names."""

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.engine import URL

from everturn.errors import UsageError
from everturn_activities.store.opening import database_url
from everturn_workers.check import Check, in_time
from everturn_workers.doors.guard import is_loopback
from everturn_workers.settings import Settings

if TYPE_CHECKING:
    from everturn_activities.store.postgres_look import PostgresFacts

VERSION = 130000
CONNECT_SECONDS = 3.0
CLOCK_SECONDS_MAX = 2.0
_URL = "EVERTURN_DATABASE_URL"


async def check_store(settings: Settings) -> list[Check]:
    try:
        url = database_url(settings.store_url)
    except UsageError as error:
        return [Check("store", False, str(error), "Or unset it to use a file in the home folder.")]
    if url.get_backend_name() == "sqlite":
        return [_sqlite(Path(url.database or ""))]
    address = f"{url.host or 'localhost'}:{url.port or 5432}"
    away = Check(
        "store",
        False,
        f"No PostgreSQL answers at {address}.",
        f"Start it, or unset {_URL} to use a file in the home folder.",
    )
    return await in_time(_postgres(url, address, settings, away), away)


async def _postgres(url: URL, address: str, settings: Settings, away: Check) -> list[Check]:
    # Imported late: a store in a file needs no driver of PostgreSQL.
    from everturn_activities.store.postgres_look import look

    found = await look(url, CONNECT_SECONDS)
    match found:
        case "password":
            sentence = f"PostgreSQL at {address} does not let {url.username!r} in."
            return [Check("store", False, sentence, f"Mend user and password in {_URL}.")]
        case "database":
            sentence = f"PostgreSQL at {address} has no database {url.database!r}."
            return [Check("store", False, sentence, f"Create it, or mend {_URL}.")]
        case "full":
            sentence = f"PostgreSQL at {address} has no connection left for us."
            mend = "Raise its max_connections, or lower EVERTURN_DATABASE_CONNECTIONS."
            return [Check("store", False, sentence, mend)]
        case "starting":
            sentence = f"PostgreSQL at {address} is starting or stopping."
            return [Check("store", False, sentence, "Ask again in a moment.")]
        case "no_tls":
            sentence = f"PostgreSQL at {address} lets nobody in without TLS."
            return [Check("store", False, sentence, f"Add ?sslmode=verify-full to {_URL}.")]
        case "tls":
            sentence = f"PostgreSQL at {address} has no TLS as {_URL} demands it."
            mend = f"Give it a certificate that we can check, or mend sslmode in {_URL}."
            return [Check("store", False, sentence, mend)]
        case "away":
            return [away]
        case _:
            major = found.version // 10000
            answers = f"PostgreSQL {major} answers at {address} with {_schema_told(found)}."
            near = is_loopback(url.host or "localhost")
            told = troubles(found, settings.database_connections, near)
            return [Check("store", True, answers), *told]


def troubles(found: "PostgresFacts", connections: int, is_near: bool) -> list[Check]:
    """What of a PostgreSQL that answers is to be mended, and what is to be known."""
    lacks, warnings = [], []
    if found.version < VERSION:
        lacks.append(("This PostgreSQL is older than 13.", "Upgrade it."))
    if found.encoding != "UTF8":
        sentence = f"The database is encoded as {found.encoding}, and what people write is UTF-8."
        lacks.append((sentence, "Create one with: createdb --encoding UTF8 --template template0."))
    if found.is_read_only:
        sentence = "This PostgreSQL takes no writes: it is a standby, or set to be read only."
        lacks.append((sentence, f"Name its primary in {_URL}."))
    if not found.is_durable:
        sentence = "This PostgreSQL says that it has written what a loss of power takes back."
        lacks.append((sentence, "Set fsync = on and synchronous_commit = on."))
    if found.schema in ("none", "older") and not found.may_create:
        sentence = "The user may not create the tables that are missing."
        lacks.append((sentence, f"Make the user of {_URL} the owner of its database."))
    if found.schema == "other":
        sentence = "A newer version of Everturn has made the tables of this database."
        lacks.append((sentence, "Upgrade Everturn here."))
    if found.schema == "incomplete":
        sentence = "Tables or columns are missing: a version that was not released made them."
        lacks.append((sentence, f"Name another database in {_URL}."))
    room = found.connections_max - found.connections
    if room < connections:
        sentence = (
            f"PostgreSQL has {max(room, 0)} connections left of {found.connections_max}, and each"
            f" process of ours takes up to {connections}."
        )
        mend = "Raise its max_connections, or lower EVERTURN_DATABASE_CONNECTIONS."
        warnings.append((sentence, mend))
    if abs(found.clock_seconds) > CLOCK_SECONDS_MAX:
        side = "ahead of" if found.clock_seconds > 0 else "behind"
        sentence = f"The clock of PostgreSQL is {abs(found.clock_seconds):.0f} s {side} ours."
        warnings.append((sentence, "Have both machines keep the time by NTP."))
    if not (found.has_tls or is_near):
        sentence = "What is kept goes to PostgreSQL as plain text, over a network."
        warnings.append((sentence, f"Add ?sslmode=verify-full to {_URL}."))
    return [
        *(Check("store", False, *one) for one in lacks),
        *(Check("store", True, *one) for one in warnings),
    ]


def _schema_told(found: "PostgresFacts") -> str:
    match found.schema:
        case "ours":
            return "the tables of this version"
        case "none":
            return "no tables yet, which the first start makes"
        case "older":
            return "tables of an older version, which the next start changes"
        case _:
            return "other tables than ours"


def _sqlite(file: Path) -> Check:
    if not file.exists():
        return Check("store", True, f"The store {file} will be made at the first start.")
    try:
        connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        try:
            connection.execute("PRAGMA schema_version").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as error:
        return Check(
            "store",
            False,
            f"The store {file} cannot be read: {error}.",
            "Put a backup in its place, or move it away to begin anew.",
        )
    return Check("store", True, f"The store {file} can be read.")
