"""What the processes of a sandbox take together, which no limit of the kernel's counts."""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from everturn.commands import CommandLimits

DISK_FREE_BYTES_MIN = 256 << 20
"""What a command must leave of the disk, however little of it is its own."""

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Fields of /proc/PID/stat, counted from behind the name, which may contain anything.
_CPU, _THREADS, _RESIDENT = slice(11, 15), 17, 21
_IN_MEMORY = ("tmpfs", "ramfs")


class SandboxWatch:
    """Looks at a sandbox through its own /proc, which shows its processes and no others.

    The kernel holds each process to its limits. Their sums are looked at here, and so is the
    number of processes, which the kernel does not count where the worker runs as root.
    """

    def __init__(self, about: int, working_dir: Path, limits: CommandLimits) -> None:
        self._about = about
        self._working_dir = working_dir
        self._limits = limits
        self._proc: str | None = None
        # The kernel counts as written what goes to a disk, and a folder in memory is none.
        self._taken_before = _taken(working_dir) if _is_in_memory(working_dir) else None

    def exceeded(self) -> str | None:
        """The limit that is passed, as the end of a sentence, or None."""
        limits = self._limits
        proc = self._found()
        pids = [] if proc is None else [name for name in _listed(proc) if name.isdigit()]
        # The first is bwrap's own. To read about thousands takes longer than to make them.
        if len(pids) - 1 > limits.processes:
            return f"it had more than {limits.processes} processes"
        seconds, threads, memory, written, handed = 0.0, -1, 0, 0, 0
        for pid in pids:
            fields = _read(f"{proc}/{pid}/stat").rpartition(")")[2].split()
            if len(fields) <= _RESIDENT:
                continue
            seconds += sum(int(field) for field in fields[_CPU]) / _TICKS
            threads += int(fields[_THREADS])
            memory += int(fields[_RESIDENT]) * _PAGE
            counts = _read(f"{proc}/{pid}/io")
            written += _field(counts, "write_bytes")
            handed += _field(counts, "wchar")
        if threads > limits.processes:
            return f"it had more than {limits.processes} processes and threads"
        if seconds > limits.cpu_seconds:
            return f"it used more than {limits.cpu_seconds} s of CPU time"
        # Pages that several share were counted several times.
        if memory > limits.memory_bytes and self._memory(pids) > limits.memory_bytes:
            return f"it used more than {_megabytes(limits.memory_bytes)} of memory"
        if self._taken_before is not None:
            written = min(handed, _taken(self._working_dir) - self._taken_before)
        if written > limits.disk_bytes:
            return f"it wrote more than {_megabytes(limits.disk_bytes)}"
        free = os.statvfs(self._working_dir)
        if free.f_bavail * free.f_frsize < DISK_FREE_BYTES_MIN and written:
            return f"less than {_megabytes(DISK_FREE_BYTES_MIN)} of the disk are free"
        return None

    def _memory(self, pids: list[str]) -> int:
        texts = (_read(f"{self._proc}/{pid}/smaps_rollup") for pid in pids)
        return sum(_field(text, "Pss") * 1024 for text in texts)

    def _found(self) -> str | None:
        """Where the sandbox's /proc is seen from here, once bwrap has said who runs in it.

        Until its root is its own, what is seen is this machine's, with everybody's processes.
        """
        if self._proc is None:
            size = os.fstat(self._about).st_size
            with suppress(ValueError, KeyError, OSError):
                child = f"/proc/{int(json.loads(os.pread(self._about, size, 0))['child-pid'])}"
                proc = f"{child}/root/proc"
                if os.path.samefile(f"{child}/ns/pid", f"{proc}/1/ns/pid"):
                    self._proc = proc
        return self._proc


def _is_in_memory(folder: Path) -> bool:
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = (line.split() for line in _read("/proc/self/mountinfo").splitlines())
    kinds = {mount[mount.index("-") + 1] for mount in mounts if mount[2] == number}
    return not kinds.isdisjoint(_IN_MEMORY)


def _taken(folder: Path) -> int:
    """Bytes of its file system that are in use, by whomever."""
    space = os.statvfs(folder)
    return (space.f_blocks - space.f_bfree) * space.f_frsize


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(path: str) -> str:
    """The file's text, or none: its process may have ended just now."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _field(text: str, name: str) -> int:
    return next(_numbers(text, name), 0)


def _numbers(text: str, name: str) -> Iterator[int]:
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == name:
            yield int(value.split()[0])


def _megabytes(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MiB"
