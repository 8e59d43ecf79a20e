"""The migrations and the tables are one schema."""

from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from everturn.errors import RuntimeUnavailable
from everturn_activities.store import migrate, schema


def _scripts() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", "everturn_activities.store:migrations")
    return ScriptDirectory.from_config(config)


@pytest.mark.parametrize("made", [migrate.migrate, migrate.upgrade])
def test_a_database_has_the_tables_that_the_code_describes_however_it_was_made(
    tmp_path: Path, made: Callable[[sa.Connection], None]
) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'store.db'}", poolclass=sa.NullPool)
    with engine.begin() as connection:
        made(connection)
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []
        context = MigrationContext.configure(connection)
        assert context.get_current_revision() == migrate.HEAD
    engine.dispose()


def test_a_new_database_is_made_at_once_and_as_all_migrations_make_it(tmp_path: Path) -> None:
    described = []
    for made in (migrate.migrate, migrate.upgrade):
        engine = sa.create_engine(f"sqlite:///{tmp_path / made.__name__}", poolclass=sa.NullPool)
        with engine.begin() as connection:
            made(connection)
            found = connection.execute(sa.text("SELECT type, name, sql FROM sqlite_master"))
            described.append(
                {(row.type, row.name): " ".join((row.sql or "").split()) for row in found}
            )
        engine.dispose()
    at_once, step_by_step = described
    assert at_once.keys() == step_by_step.keys()
    assert at_once == step_by_step


def test_the_head_that_we_know_is_alembics() -> None:
    assert _scripts().get_heads() == [migrate.HEAD]


def test_a_database_of_a_newer_version_is_refused_in_one_sentence(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'store.db'}", poolclass=sa.NullPool)
    with engine.begin() as connection:
        migrate.migrate(connection)
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with engine.begin() as connection, pytest.raises(RuntimeUnavailable, match=r"9999.*upgrade"):
        migrate.migrate(connection)
    engine.dispose()


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("DROP TABLE memories", "no table 'memories'"),
        ("ALTER TABLE turns DROP COLUMN reason", r"no column turns\.reason"),
    ],
)
def test_a_database_that_lacks_what_its_version_has_is_refused(
    tmp_path: Path, statement: str, told: str
) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'store.db'}", poolclass=sa.NullPool)
    with engine.begin() as connection:
        migrate.migrate(connection)
        migrate.migrate(connection)
        connection.execute(sa.text(statement))
    with engine.begin() as connection, pytest.raises(RuntimeUnavailable, match=told):
        migrate.migrate(connection)
    engine.dispose()
