"""git, run for us: no hook, filter or other program that a repository names, and no network."""

import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from everturn.errors import ToolFailed

# No settings of the user's or the machine's, and none of ours: only the repository's own.
_ENVIRONMENT = {
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
}
_OVERRULED = (
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("core.sshCommand", "false"),
    ("core.alternateRefsCommand", "true"),
    ("protocol.allow", "never"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("advice.detachedHead", "false"),
)
# Programs that a filter of a repository's settings would have run on checkout and comparison.
_FILTER_PROGRAMS = (("smudge", ""), ("clean", ""), ("process", ""), ("required", "false"))
_POLL_SECONDS = 0.05
OUTPUT_CHARACTERS = 300


def top_of(folder: Path) -> Path | None:
    """The working tree that `folder` lies in, by its files alone; None where there is none."""
    for place in (folder, *folder.parents):
        if (place / ".git").exists():
            return place
    return None


class Git:
    """The repository of the working tree `top`. Raises ToolFailed with what git says.

    `git_dir` is named where a working tree was in an agent's hands: what it says of itself is
    not believed. Once `stop` is set, what runs is ended.
    """

    def __init__(
        self,
        top: Path,
        git_dir: Path | None = None,
        stop: threading.Event | None = None,
        kept_open: Sequence[int] = (),
    ) -> None:
        self._top = top
        self._git_dir = git_dir
        self._stop = stop or threading.Event()
        self._kept_open = kept_open
        self._filters: list[tuple[str, str]] | None = None

    def run(self, *arguments: str) -> str:
        """What a git command prints."""
        code, out, said = self._ran(self._filterless(), *arguments)
        if code != 0:
            raise ToolFailed(f"git {arguments[0]} failed: {_last_line(said or out)}")
        return out

    def holds(self, *arguments: str) -> bool:
        """Whether a git command ends well."""
        return self._ran(self._filterless(), *arguments)[0] == 0

    def _filterless(self) -> list[tuple[str, str]]:
        """Settings that take the programs from each filter that the repository has."""
        if self._filters is None:
            _, listed, _ = self._ran(
                (), "config", "--null", "--name-only", "--get-regexp", r"^filter\..*\."
            )
            named = {key.rpartition(".")[0] for key in listed.split("\0") if key}
            self._filters = [
                (f"{name}.{program}", value)
                for name in sorted(named)
                for program, value in _FILTER_PROGRAMS
            ]
        return self._filters

    def _ran(self, settings: Sequence[tuple[str, str]], *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        program = shutil.which("git")
        if program is None:
            raise ToolFailed("git is not on PATH; install it, or use another kind of folder.")
        named = [] if self._git_dir is None else [f"--git-dir={self._git_dir}", "--work-tree=."]
        process = subprocess.Popen(  # noqa: S603
            [program, *named, *arguments],
            cwd=self._top,
            env=_environment((*_OVERRULED, *settings)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A git that outlives us keeps its lock: nobody else works beside it.
            pass_fds=self._kept_open,
            start_new_session=True,
        )
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    out, said = process.communicate(timeout=_POLL_SECONDS)
                    break
                if self._stop.is_set():
                    raise ToolFailed("git was ended with its turn.")
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()
        return process.returncode, _text(out), _text(said)


def _environment(settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    # By variables: on the command line a name with a '=' in it would be read as another.
    numbered = {}
    for n, (key, value) in enumerate(settings):
        numbered[f"GIT_CONFIG_KEY_{n}"], numbered[f"GIT_CONFIG_VALUE_{n}"] = key, value
    path = os.environ.get("PATH", os.defpath)
    return {**_ENVIRONMENT, "PATH": path, "GIT_CONFIG_COUNT": str(len(settings)), **numbered}


def _text(said: bytes) -> str:
    return said.decode("utf-8", "surrogateescape")


def _last_line(said: str) -> str:
    lines = [line for line in said.strip().splitlines() if line] or ["it gave no reason"]
    return lines[-1].removeprefix("fatal: ").removeprefix("error: ")[:OUTPUT_CHARACTERS]
