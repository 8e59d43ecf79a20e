"""What `everturn doctor` says of a store in PostgreSQL."""

import ssl
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest
from postgres_servers import PostgresServer

from everturn_activities.store.postgres_look import PostgresFacts, _refusal
from everturn_workers.check import Check
from everturn_workers.check_store import check_store, troubles
from everturn_workers.settings import read_settings


async def about(home: Path, url: str) -> list[Check]:
    return await check_store(read_settings(home=home, database_url=url))


async def test_a_database_is_told_with_its_tables_and_without_its_password(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    empty, ours = postgres.made(), postgres.emptied()

    first, durable = await about(tmp_path, empty.replace("everturn@", "everturn:canary@"))
    then, *_ = await about(tmp_path, ours)

    assert (first.ok, then.ok) == (True, True)
    assert "no tables yet" in first.sentence
    assert "the tables of this version" in then.sentence
    # The server of the tests keeps nothing over a loss of power.
    assert (durable.ok, durable.mend) == (False, "Set fsync = on and synchronous_commit = on.")
    assert "canary" not in f"{first}{durable}"


async def test_tables_of_another_version_are_told(tmp_path: Path, postgres: PostgresServer) -> None:
    url = postgres.made()
    connection = await asyncpg.connect(url)
    told = []
    try:
        await connection.execute("CREATE TABLE alembic_version (version_num text)")
        for version in ("0000", "9999", "0001"):
            await connection.execute("DELETE FROM alembic_version")
            await connection.execute("INSERT INTO alembic_version VALUES ($1)", version)
            told.append(" ".join(check.sentence for check in await about(tmp_path, url)))
    finally:
        await connection.close()

    assert "of an older version, which the next start changes" in told[0]
    assert "A newer version of Everturn" in told[1]
    assert "Tables or columns are missing" in told[2]


async def test_each_reason_for_which_nobody_is_let_in_has_its_sentence(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    there = f"127.0.0.1:{postgres.port}"
    told = {}
    for url in (
        f"postgresql://stranger:canary@{there}/postgres",
        f"postgresql://everturn:canary@{there}/nowhere",
        f"postgresql://everturn:canary@{there}/postgres?sslmode=require",
        "postgresql://everturn:canary@127.0.0.1:1/postgres",
        "postgresql://everturn:canary@host.invalid/postgres",
    ):
        [told[url]] = await about(tmp_path, url)

    says = [check.sentence for check in told.values()]
    assert not any(check.ok for check in told.values())
    assert "does not let 'stranger' in" in says[0]
    assert "has no database 'nowhere'" in says[1]
    assert "has no TLS as EVERTURN_DATABASE_URL demands" in says[2]
    assert says[3] == "No PostgreSQL answers at 127.0.0.1:1."
    assert says[4] == "No PostgreSQL answers at host.invalid:5432."
    assert all(check.mend for check in told.values())
    assert "canary" not in repr(told.values())


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (asyncpg.InvalidPasswordError("canary"), "password"),
        (asyncpg.InvalidAuthorizationSpecificationError("no pg_hba.conf entry"), "password"),
        (asyncpg.InvalidAuthorizationSpecificationError("no entry, no encryption"), "no_tls"),
        (asyncpg.TooManyConnectionsError("sorry"), "full"),
        (asyncpg.CannotConnectNowError("starting up"), "starting"),
        (ssl.SSLCertVerificationError("self-signed"), "tls"),
        (ConnectionResetError("gone"), "away"),
        (TimeoutError(), "away"),
    ],
)
def test_what_a_server_says_is_told_apart(error: Exception, why: str) -> None:
    assert _refusal(error) == why


async def test_a_user_who_may_not_make_tables_is_told_so(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    url = postgres.made()
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            "CREATE ROLE reader LOGIN; REVOKE CREATE ON SCHEMA public FROM public"
        )
        found = await about(tmp_path, url.replace("everturn@", "reader@"))
    finally:
        await connection.execute("DROP OWNED BY reader; DROP ROLE reader")
        await connection.close()

    assert "The user may not create the tables that are missing." in [c.sentence for c in found]


async def test_a_url_that_is_none_of_ours_is_told_without_it(tmp_path: Path) -> None:
    [check] = await about(tmp_path, "mysql://me:canary@host/db")

    assert not check.ok
    assert "PostgreSQL" in check.sentence
    assert "canary" not in repr(check)


FINE = PostgresFacts(
    version=150004,
    encoding="UTF8",
    is_read_only=False,
    is_durable=True,
    connections_max=97,
    connections=20,
    may_create=True,
    has_tls=True,
    clock_seconds=0.1,
    schema="ours",
)


@pytest.mark.parametrize(
    ("facts", "ok", "says"),
    [
        (replace(FINE, version=120017), False, "older than 13"),
        (replace(FINE, encoding="LATIN1"), False, "encoded as LATIN1"),
        (replace(FINE, is_read_only=True), False, "takes no writes"),
        (replace(FINE, is_durable=False), False, "loss of power"),
        (replace(FINE, schema="none", may_create=False), False, "may not create"),
        (replace(FINE, schema="older", may_create=False), False, "may not create"),
        (replace(FINE, connections=88), True, "9 connections left of 97"),
        (replace(FINE, clock_seconds=3.2), True, "is 3 s ahead of ours"),
        (replace(FINE, clock_seconds=-3.2), True, "is 3 s behind ours"),
        (replace(FINE, has_tls=False), True, "as plain text, over a network"),
    ],
)
def test_each_trouble_of_a_postgresql_has_its_sentence(
    facts: PostgresFacts, ok: bool, says: str
) -> None:
    [check] = troubles(facts, 10, is_near=False)

    assert check.ok == ok
    assert says in check.sentence
    assert check.mend


def test_a_postgresql_as_it_should_be_has_no_trouble() -> None:
    assert troubles(FINE, 10, is_near=False) == []
    assert troubles(replace(FINE, has_tls=False), 10, is_near=True) == []
    assert troubles(replace(FINE, connections=87), 10, is_near=False) == []
    assert troubles(replace(FINE, schema="older"), 10, is_near=False) == []
