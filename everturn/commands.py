"""What a command that an agent runs may use, and what it leaves."""

from collections.abc import Callable

from pydantic import Field

from everturn.messages import Frozen


class CommandLimits(Frozen):
    """What one command may use, with all the processes that it starts.

    `memory_bytes`, `cpu_seconds`, `file_bytes` and `open_files` hold for each process at once,
    by the kernel. The sums of memory, CPU time, processes and of what is written (`disk_bytes`)
    are looked at ten times a second. `scratch_bytes` is the size of /tmp. `seconds` is the
    longest time, whatever the model asks for.
    """

    memory_bytes: int = Field(default=2 << 30, ge=64 << 20)
    cpu_seconds: int = Field(default=600, ge=1)
    processes: int = Field(default=256, ge=8)
    file_bytes: int = Field(default=1 << 30, ge=1 << 20)
    disk_bytes: int = Field(default=4 << 30, ge=1 << 20)
    scratch_bytes: int = Field(default=256 << 20, ge=1 << 20)
    open_files: int = Field(default=1024, ge=32)
    seconds: float = Field(default=600.0, gt=0, le=600)


NO_LIMITS_SET = CommandLimits()

Progress = Callable[[str], None]
"""Shows a piece of output to whoever watches, while the call that made it runs."""


def unseen(text: str) -> None:
    """The `Progress` of a call that nobody watches."""
