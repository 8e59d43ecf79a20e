"""Which `up` works on a home: what it writes of itself, and what others read of it.

Every command looks here first, so nothing here loads more than files need.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from everturn_workers import processes
from everturn_workers.locks import is_held
from everturn_workers.processes import Identity


@dataclass(frozen=True)
class RunningUp:
    """An `up` that lives. `api_url` is None until all of its children are ready."""

    pid: int
    temporal_address: str | None
    api_url: str | None
    children: dict[str, int]


@dataclass(frozen=True)
class Record:
    up: Identity
    temporal_address: str | None
    api_url: str | None
    children: dict[str, Identity]


def running(home: Path) -> RunningUp | None:
    """The `up` that works on `home`, or None."""
    if not is_held(lock_path(home)):
        return None
    record = read(home)
    # A record can be that of an earlier `up`, until the new one writes its own.
    if record is None or not processes.lives(record.up):
        return None
    children = {name: child.pid for name, child in record.children.items()}
    return RunningUp(record.up.pid, record.temporal_address, record.api_url, children)


def lock_path(home: Path) -> Path:
    """The file that an `up` holds locked while it lives."""
    return home / "run" / "up.lock"


def read(home: Path) -> Record | None:
    try:
        raw = json.loads(_path(home).read_text())
        children = {name: Identity(**child) for name, child in raw["children"].items()}
        return Record(Identity(**raw["up"]), raw["temporal_address"], raw["api_url"], children)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(home: Path, record: Record) -> None:
    path = _path(home)
    part = path.with_suffix(".part")
    part.touch(mode=0o600)
    part.write_text(json.dumps(asdict(record)))
    part.replace(path)


def remove(home: Path) -> None:
    _path(home).unlink(missing_ok=True)


def _path(home: Path) -> Path:
    return home / "run" / "up.json"
