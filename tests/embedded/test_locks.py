"""Locks tell whether a process lives, also when it was killed."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from everturn_workers.locks import WorkerLock, dead_workers, forget_worker, is_alive, try_lock

HOLDER = """\
import sys, signal
from pathlib import Path
from everturn_workers.locks import WorkerLock
WorkerLock(Path(sys.argv[1]), "w1").acquire()
print("held", flush=True)
signal.pause()
"""


@pytest.fixture
def holder(tmp_path: Path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_worker_is_alive_until_it_is_killed(tmp_path: Path, holder: subprocess.Popen[str]):
    assert is_alive(tmp_path, "w1")
    assert dead_workers(tmp_path) == []

    holder.kill()
    holder.wait()

    assert not is_alive(tmp_path, "w1")
    assert dead_workers(tmp_path) == ["w1"]


def test_a_dead_worker_is_told_of_until_it_is_forgotten(
    tmp_path: Path, holder: subprocess.Popen[str]
):
    holder.kill()
    holder.wait()

    forget_worker(tmp_path, "w1")

    assert dead_workers(tmp_path) == []


def test_a_worker_that_ends_by_itself_leaves_no_file(tmp_path: Path):
    with WorkerLock(tmp_path, "w2"):
        assert is_alive(tmp_path, "w2")

    assert not is_alive(tmp_path, "w2")
    assert list((tmp_path / "workers").iterdir()) == []


def test_an_instance_that_never_was_is_not_alive(tmp_path: Path):
    assert not is_alive(tmp_path, "never")


def test_a_lock_that_another_holds_is_not_given_twice(tmp_path: Path):
    assert try_lock(tmp_path / "one.lock") is not None

    assert try_lock(tmp_path / "one.lock") is None


def test_a_lock_whose_file_its_holder_removes_meanwhile_is_not_given_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "one.lock"
    flock = fcntl.flock

    def removed_before(descriptor: int, operation: int) -> None:
        monkeypatch.undo()
        path.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", removed_before)
    taken = try_lock(path)

    assert taken is not None
    assert try_lock(path) is None
    os.close(taken)
