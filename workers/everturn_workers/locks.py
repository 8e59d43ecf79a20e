"""File locks that the kernel frees with their holder: one `up` a home, one file a live worker.

A lock is held as long as its open file description is, so it tells the truth about a
process that was killed. Lock files of clean holders are removed; those of dead ones tell
that they died.
"""

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

PROBE_SECONDS = 0.5
"""For how long `try_lock` asks again: whoever looks at a lock holds it for an instant."""


def try_lock(path: Path) -> int | None:
    """The descriptor that holds the exclusive lock on `path`, or None where another holds it.

    The descriptor is not inherited by children unless it is passed to them.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    give_up = time.monotonic() + PROBE_SECONDS
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            if time.monotonic() > give_up:
                return None
            time.sleep(0.01)
        else:
            # Its holder may have removed the file before it let go; then the lock of the path
            # is that of another file, or of none yet.
            if _is_at(path, descriptor):
                return descriptor
            os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def is_held(path: Path) -> bool:
    """Whether a living process holds the lock on `path`."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class WorkerLock:
    """Tells every process of this machine that the worker `instance` lives.

    `run_dir` is the home's `run` folder; `instance` is an id that no other worker ever had.
    """

    def __init__(self, run_dir: Path, instance: str) -> None:
        self._path = _worker_lock(run_dir, instance)
        self._descriptor: int | None = None

    def acquire(self) -> None:
        self._descriptor = try_lock(self._path)
        if self._descriptor is None:
            raise RuntimeError(f"Another process works as instance {self._path.stem}.")

    def release(self) -> None:
        """Free the lock and remove its file: the worker ended by itself and left nothing."""
        if self._descriptor is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def is_alive(run_dir: Path, instance: str) -> bool:
    """Whether the worker `instance` of this home holds its lock.

    Workers of other homes and machines have no file here and count as not alive: ask only
    for those that share this home.
    """
    return is_held(_worker_lock(run_dir, instance))


def is_known(run_dir: Path, instance: str) -> bool:
    """Whether the worker `instance` works on this home, or was killed there."""
    return _worker_lock(run_dir, instance).exists()


def dead_workers(run_dir: Path) -> list[str]:
    """Instances that were killed, as their lock files tell; `forget_worker` ends that."""
    files = sorted((run_dir / "workers").glob("*.lock"))
    return [file.stem for file in files if not is_held(file)]


def forget_worker(run_dir: Path, instance: str) -> None:
    _worker_lock(run_dir, instance).unlink(missing_ok=True)


def _worker_lock(run_dir: Path, instance: str) -> Path:
    return run_dir / "workers" / f"{instance}.lock"
