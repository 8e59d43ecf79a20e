"""Starts our processes by forking one that has imported all they need.

A worker or a command imports for a second, and tests start hundreds. Each fork runs a module as
`python -m` does, in a session of its own, and dies with us. Requests are JSON lines on
stdin; a status file tells the number of the process, and then how it ended.
"""

import ctypes
import gc
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

IMPORTED = (
    "everturn_workers.cli.main",
    "everturn_workers.cli.processes",
    "everturn_workers.cli.runtime",
    "everturn_workers.cli.show",
    "everturn_workers.cli.follow",
    "everturn.client",
    "everturn_workers.serving",
    "everturn_workers.api",
    "everturn_workers.scripted_model",
    "everturn_activities.workspaces",
    "everturn_activities.gateways.chat_completions",
    "everturn_activities.gateways.choose",
    "everturn_activities.prices",
    "alembic.context",
    "tiktoken",
)


class Forked:
    """A process that the preloaded one has started."""

    def __init__(self, status: Path) -> None:
        self._status = status

    @property
    def pid(self) -> int:
        return int(self._status.read_text().split()[0])

    @property
    def started(self) -> bool:
        return self._status.exists()

    @property
    def returncode(self) -> int | None:
        """As `subprocess` tells it: negative where a signal ended the process."""
        fields = self._status.read_text().split()
        return os.waitstatus_to_exitcode(int(fields[1])) if len(fields) > 1 else None

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)


class Preloaded:
    """The process that forks; ends with its stdin."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, text=True, bufsize=1
        )

    def spawn(
        self,
        module: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        errors: Path | None = None,
        stdin: Path = Path(os.devnull),
        folder: Path | None = None,
    ) -> Forked:
        """Run `module` (its name or file, then its arguments) in `folder`, its output appended to
        `log`, and what it writes to stderr to `errors`, if that is another file."""
        self._count += 1
        status = self._folder / f"{self._count}.status"
        request = {
            "argv": list(module),
            "environment": dict(environment),
            "log": str(log),
            "errors": str(errors or log),
            "stdin": str(stdin),
            "folder": str(folder or Path.cwd()),
            "status": str(status),
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        return Forked(status)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    for name in IMPORTED:
        __import__(name)
    # What is imported stays: no collection of a forked process need look through it.
    gc.collect()
    gc.freeze()
    status_of: dict[int, Path] = {}
    libc = ctypes.CDLL(None)
    unread = b""
    while True:
        readable, _, _ = select.select([0], [], [], 0.01)
        if readable:
            read = os.read(0, 1 << 16)
            if not read:
                break
            *lines, unread = (unread + read).split(b"\n")
            for line in lines:
                request = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    libc.prctl(1, signal.SIGKILL)
                    _become(request)
                status_of[pid] = Path(request["status"])
                _write(status_of[pid], f"{pid}")
        while status_of:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            _write(status_of.pop(pid), f"{pid} {status}")
    for pid in status_of:
        os.kill(pid, signal.SIGKILL)


def _become(request: dict[str, Any]) -> None:
    os.setsid()
    os.dup2(os.open(request["stdin"], os.O_RDONLY), 0)
    for number, path in ((1, request["log"]), (2, request["errors"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), number)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    module, *arguments = sys.argv = request["argv"]
    code = 0
    try:
        if module.endswith(".py"):
            runpy.run_path(module, run_name="__main__")
        else:
            sys.argv = [module, *arguments]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _write(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


if __name__ == "__main__":
    main()
