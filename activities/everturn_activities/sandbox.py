"""Commands in bubblewrap: no network, no privileges, nothing of the host but one folder."""

import fcntl
import functools
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from everturn.errors import ToolFailed
from everturn_activities import seccomp
from everturn_activities.paths import protected_parts

INSIDE = "/work"
"""Where a command finds the working folder."""

_NOBODY = "65534"
# Folders of the sandbox, in memory, not of the host.
_HOME, _SCRATCH = "/tmp", ("/tmp", "/dev/shm")  # noqa: S108
_PROBE_SECONDS = 10.0
# What programs look up outside of /usr; the rest of /etc stays out of sight.
_ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime")
# Which protected paths are files; any other that does not exist is masked as a folder.
_FILES = ("everturn.toml", ".mcp.json", "config")
_LOCK_TRIES = 50


@dataclass(frozen=True)
class SandboxStatus:
    """Whether commands can be run in the sandbox; if not, why, as the end of a sentence."""

    available: bool
    reason: str | None = None


@dataclass(frozen=True)
class CommandLimits:
    """What one command may use; memory, file size and CPU time hold for each process.

    The kernel does not count the processes of root, so a worker should not run as root.
    """

    memory_bytes: int = 4 << 30
    file_bytes: int = 1 << 30
    cpu_seconds: int = 600
    processes: int = 256
    open_files: int = 1024
    scratch_bytes: int = 256 << 20


@functools.cache
def probe() -> SandboxStatus:
    """Try the sandbox once a process, by running `true` in it."""
    if sys.platform != "linux":
        return SandboxStatus(False, "bubblewrap exists on Linux only")
    for program, package in (("bwrap", "bubblewrap"), ("prlimit", "util-linux")):
        if shutil.which(program) is None:
            return SandboxStatus(False, f"{program} is not on PATH (install {package})")
    arguments = _bwrap(CommandLimits(), binds=(), filter_descriptor=None)
    try:
        done = subprocess.run(  # noqa: S603
            [*arguments, "/bin/sh", "-c", ":"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return SandboxStatus(False, f"bwrap does not start ({error})")
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        return SandboxStatus(False, f"bwrap does not work here ({lines[-1]})")
    return SandboxStatus(True)


@dataclass(frozen=True)
class Invocation:
    """A command line, and the descriptors that its process inherits."""

    arguments: tuple[str, ...]
    descriptors: tuple[int, ...]


@contextmanager
def sandboxed(
    command: str,
    working_dir: Path,
    protected: Sequence[Path] = (),
    limits: CommandLimits = CommandLimits(),
) -> Iterator[Invocation]:
    """How to run `command` by `sh -c` in the sandbox; for the length of the block.

    `protected` paths are read-only inside. One that does not exist would let a command create
    it, so an empty placeholder takes its place while commands run.
    """
    root = working_dir.resolve()
    with _filter_descriptor() as filter_descriptor, _masked(root, protected) as binds:
        arguments = _bwrap(limits, (("--bind", root, ""), *binds), filter_descriptor)
        inner = ("prlimit", f"--nproc={limits.processes}", "--", "/bin/sh", "-c", command)
        yield Invocation(
            (*arguments, *inner), () if filter_descriptor is None else (filter_descriptor,)
        )


Bind = tuple[str, Path, str]
"""A bwrap option, the host's path, and the path below the working folder."""


def _bwrap(
    limits: CommandLimits, binds: Sequence[Bind], filter_descriptor: int | None
) -> list[str]:
    arguments = [
        "prlimit",
        f"--as={limits.memory_bytes}",
        f"--cpu={limits.cpu_seconds}",
        f"--fsize={limits.file_bytes}",
        f"--nofile={limits.open_files}",
        "--core=0",
        "--",
        "bwrap",
        *("--unshare-user", "--unshare-all", "--uid", _NOBODY, "--gid", _NOBODY),
        *("--disable-userns", "--cap-drop", "ALL", "--die-with-parent", "--new-session"),
        *("--clearenv", "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"),
        *("--setenv", "HOME", _HOME, "--setenv", "LANG", "C.UTF-8", "--setenv", "TERM", "dumb"),
        *_system_binds(),
        *("--proc", "/proc", "--dev", "/dev"),
    ]
    for scratch in _SCRATCH:
        arguments += ["--size", str(limits.scratch_bytes), "--tmpfs", scratch]
    for option, source, inside in binds:
        target = f"{INSIDE}/{inside}" if inside else INSIDE
        arguments += [option, str(source), target]
    arguments += ["--remount-ro", "/dev", "--remount-ro", "/"]
    if binds:
        arguments += ["--chdir", INSIDE]
    if filter_descriptor is not None:
        arguments += ["--seccomp", str(filter_descriptor)]
    return arguments


@functools.cache
def _system_binds() -> tuple[str, ...]:
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/") / name
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    for etc in _ETC:
        arguments += ["--ro-bind-try", etc, etc]
    return tuple(arguments)


@contextmanager
def _filter_descriptor() -> Iterator[int | None]:
    """A descriptor from which bwrap reads the system call filter."""
    program = seccomp.program()
    if program is None:
        yield None
        return
    descriptor = os.memfd_create("everturn-seccomp")
    try:
        os.write(descriptor, program)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


_placeholders: set[Path] = set()
"""Placeholders that this process created and has not removed."""


@contextmanager
def _masked(root: Path, protected: Sequence[Path]) -> Iterator[list[Bind]]:
    """Binds that make the protected paths below `root` read-only.

    The folder is locked by every command that runs in it, in any process, and placeholders
    are removed by one that finds itself alone: removing one that is in use would unmask it.
    """
    paths = sorted(set(protected_parts(root, tuple(protected))[0]), key=len)
    lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock_shared(lock)
        yield _binds(root, paths)
    finally:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_placeholders(root)
        os.close(lock)


def _lock_shared(lock: int) -> None:
    for _ in range(_LOCK_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return
        # Another command is removing placeholders, which takes microseconds.
        time.sleep(0.001)
    raise ToolFailed(
        "Commands are refused while another process holds a lock on the working folder;"
        " end it, or try again later."
    )


def _binds(root: Path, paths: Sequence[tuple[str, ...]]) -> list[Bind]:
    binds: list[Bind] = []
    bound: set[tuple[str, ...]] = set()
    for parts in paths:
        if any(bind == "--ro-bind" and parts[: len(Path(at).parts)] == Path(at).parts
               for bind, _, at in binds):  # fmt: skip
            continue
        for length in range(1 if parts else 0, len(parts) + 1):
            prefix = parts[:length]
            path = root.joinpath(*prefix)
            mode = _mode(path, length == len(parts))
            if mode is None:
                break
            if stat.S_ISLNK(mode):
                raise ToolFailed(
                    f"Commands are refused while {'/'.join(prefix)} is a symbolic link: the"
                    " sandbox cannot protect it; put the real file or folder there."
                )
            final = length == len(parts) or path in _placeholders or not stat.S_ISDIR(mode)
            if final:
                binds.append(("--ro-bind", path, "/".join(prefix)))
                break
            if prefix not in bound:
                # A mount point of its own: else the folder around the protected path could be
                # renamed, and another put in its place.
                binds.append(("--bind", path, "/".join(prefix)))
                bound.add(prefix)
    return binds


def _mode(path: Path, last: bool) -> int | None:
    """The mode of what is at `path`, after putting a placeholder where nothing is.

    None where nothing is and nothing can be created, by a command neither.
    """
    with suppress(FileNotFoundError):
        return path.lstat().st_mode
    try:
        if last and path.name in _FILES:
            path.touch(mode=0o444, exist_ok=False)
        else:
            path.mkdir(mode=0o555)
        _placeholders.add(path)
    except FileExistsError:
        pass
    except OSError:
        return None
    return path.lstat().st_mode


def _remove_placeholders(root: Path) -> None:
    ours = [path for path in _placeholders if path.is_relative_to(root)]
    for path in sorted(ours, key=lambda path: len(path.parts), reverse=True):
        _placeholders.discard(path)
        with suppress(OSError):
            if path.is_dir():
                path.rmdir()
            elif path.stat().st_size == 0:
                path.unlink()
