"""A working folder whose tools' calls are recorded."""

import time
from collections.abc import Callable
from pathlib import Path

from everturn.session import SessionKey
from everturn_activities.checkpoints import Checkpoints
from everturn_activities.file_changes import Record, Restored

KEY = SessionKey("default", "s")
AFTER_ALL = (99, 0)


class Folder:
    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "work"
        self.path.mkdir()
        self.home = tmp_path / "home"
        self.checkpoints = Checkpoints(self.home)

    def write(self, name: str, text: str) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def read(self, name: str) -> str | None:
        path = self.path / name
        return path.read_text() if path.exists() else None

    def begin(self, place: tuple[int, int], tool: str, path: str | None, call: str = "") -> str:
        call = call or f"c{place[0]}-{place[1]}-{path}".replace("/", "-")
        record = Record(*place, call, tool, str(self.path), time.time())
        self.checkpoints.before(KEY, record, path)
        return call

    def writes(self, place: tuple[int, int], path: str, text: str) -> None:
        """A call of write_file."""
        call = self.begin(place, "write_file", path)
        self.write(path, text)
        self.checkpoints.after(KEY, call)

    def runs(self, place: tuple[int, int], command: Callable[[], object]) -> None:
        """A call of run_command."""
        call = self.begin(place, "run_command", None)
        command()
        self.checkpoints.after(KEY, call)

    def restore(self, since: tuple[int, int], name: str = "restore") -> Restored:
        return self.checkpoints.restore(KEY, since, AFTER_ALL, (), name)


def settled() -> None:
    """Let a file's time be so old that a look believes it."""
    time.sleep(0.03)


def record_of(folder: Folder, call: str, place: tuple[int, int] = (1, 3)) -> Record:
    """That of a command which begins now."""
    return Record(*place, call, "run_command", str(folder.path), time.time())
