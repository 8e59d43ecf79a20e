"""`everturn migrate` makes the store's tables, and nothing else."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from everturn_activities.store.migrate import HEAD
from everturn_workers.cli.main import app


def test_a_store_is_made_before_anything_else_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # No server answers there, and none is asked.
    monkeypatch.setenv("EVERTURN_REDIS_URL", "redis://:hunter2@127.0.0.1:1/0")
    monkeypatch.setenv("EVERTURN_TEMPORAL_ADDRESS", "127.0.0.1:1")
    for _ in range(2):
        ran = CliRunner().invoke(app, ["migrate", "--home", str(tmp_path / "home")])
        assert ran.exit_code == 0, ran.output
        assert ran.output == (
            f"The store sqlite:///{tmp_path}/home/everturn.db has the tables of this version.\n"
        )
    with closing(sqlite3.connect(tmp_path / "home" / "everturn.db")) as store:
        assert store.execute("SELECT version_num FROM alembic_version").fetchall() == [(HEAD,)]
