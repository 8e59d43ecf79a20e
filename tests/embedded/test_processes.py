"""The log files of children."""

from pathlib import Path

import pytest

from everturn_workers.processes import Log


def test_the_tail_of_a_log_is_that_of_the_last_start(tmp_path: Path):
    (tmp_path / "worker.log").write_text("an old failure\n")
    log = Log(tmp_path / "worker.log")

    with log.open() as file:
        assert log.tail() == "nothing"
        file.write(b"starting\nunable to start\n\n")

    assert log.tail() == "unable to start"


def test_a_log_that_grew_long_is_put_aside_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("everturn_workers.processes.LOG_BYTES_MAX", 10)
    (tmp_path / "worker.log").write_text("more than ten bytes\n")

    Log(tmp_path / "worker.log").open().close()

    assert (tmp_path / "worker.log").read_text() == ""
    assert (tmp_path / "worker.log.1").read_text() == "more than ten bytes\n"
