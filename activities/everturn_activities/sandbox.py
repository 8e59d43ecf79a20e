"""Commands in bubblewrap: no network, no privileges, nothing of the host but one folder."""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from everturn.commands import NO_LIMITS_SET, CommandLimits
from everturn_activities import seccomp
from everturn_activities.masks import Bind, masked

INSIDE = "/work"
"""Where a command finds the working folder."""

_NOBODY = "65534"
# Folders of the sandbox, in memory, not of the host.
_HOME, _SCRATCH = "/tmp", ("/tmp", "/dev/shm")  # noqa: S108
_PROBE_SECONDS = 10.0
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
# Where a sandbox with a network finds our proxy: a socket, and a port that leads to it.
_PROXY, _PROXY_PORT = "/run/everturn-proxy", 3128
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
# What programs look up outside of /usr; the rest of /etc stays out of sight.
_ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime")


_CERTIFICATES = ("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki", "/etc/ca-certificates")


NO_VARIABLES: Mapping[str, str] = {}


@dataclass(frozen=True)
class SandboxStatus:
    """Whether commands can be run in the sandbox; if not, why, as the end of a sentence."""

    available: bool
    reason: str | None = None


@functools.cache
def probe() -> SandboxStatus:
    """Try the sandbox once a process, by running `true` in it."""
    if sys.platform != "linux":
        return SandboxStatus(False, "bubblewrap exists on Linux only")
    for program, package in (("bwrap", "bubblewrap"), ("prlimit", "util-linux")):
        if shutil.which(program) is None:
            return SandboxStatus(False, f"{program} is not on PATH (install {package})")
    arguments = _bwrap(NO_LIMITS_SET, binds=(), filtered=None)
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
    """A command line, and the descriptors that its process inherits.

    `about` is a file in which bwrap writes who runs in the sandbox; None outside of any.
    `variables` are those of the process beside what every command has.
    """

    arguments: tuple[str, ...]
    descriptors: tuple[int, ...] = ()
    about: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)


@contextmanager
def sandboxed(
    arguments: Sequence[str],
    working_dir: Path,
    protected: Sequence[Path] = (),
    limits: CommandLimits = NO_LIMITS_SET,
    proxy: Path | None = None,
    variables: Mapping[str, str] = NO_VARIABLES,
) -> Iterator[Invocation]:
    """How to run a program with its arguments in the sandbox; for the length of the block.

    There is no network but what the socket `proxy` leads to. `variables` are set inside.
    `protected` paths are read-only inside. One that does not exist would let a command create
    it, so an empty placeholder takes its place while commands run.
    """
    root = working_dir.resolve()
    with ExitStack() as stack:
        binds = stack.enter_context(masked(root, protected))
        about = _memory("everturn-about")
        stack.callback(os.close, about)
        descriptors = [about]
        filtered = None
        if (program := seccomp.program()) is not None:
            filtered = _memory("everturn-seccomp", program)
            stack.callback(os.close, filtered)
            descriptors.append(filtered)
        outer = _bwrap(limits, (("--bind", root, ""), *binds), filtered, proxy)
        if variables:
            # From a file in memory: every user of the machine can read a command line.
            told = _memory("everturn-variables", _settings_of(variables))
            stack.callback(os.close, told)
            descriptors.append(told)
            outer += ["--args", str(told)]
        inner = ["--info-fd", str(about), "prlimit", f"--nproc={limits.processes}", "--"]
        if proxy is not None:
            inner += ["python3", "-I", "-S", "-c", _forwarder(), _PROXY, str(_PROXY_PORT)]
        yield Invocation((*outer, *inner, *arguments), tuple(descriptors), about)


def _settings_of(variables: Mapping[str, str]) -> bytes:
    pieces = (piece for name, value in variables.items() for piece in ("--setenv", name, value))
    return "".join(f"{piece}\0" for piece in pieces).encode()


def can_have_network() -> bool:
    """Whether there is a Python in the sandbox, which leads a program to the proxy."""
    return shutil.which("python3", path=_PATH) is not None


@functools.cache
def _forwarder() -> str:
    return Path(__file__).with_name("forwarder.py").read_text()


def _bwrap(
    limits: CommandLimits,
    binds: Sequence[Bind],
    filtered: int | None,
    proxy: Path | None = None,
) -> list[str]:
    arguments = [
        "prlimit",
        # Of what can be written to, not of addresses: Node reserves those by the terabyte.
        f"--data={limits.memory_bytes}",
        # First a signal that says why, then the end.
        f"--cpu={limits.cpu_seconds}:{limits.cpu_seconds + 5}",
        f"--fsize={limits.file_bytes}",
        f"--nofile={limits.open_files}",
        "--core=0",
        "--",
        "bwrap",
        *("--unshare-user", "--unshare-all", "--uid", _NOBODY, "--gid", _NOBODY),
        *("--disable-userns", "--cap-drop", "ALL", "--die-with-parent", "--new-session"),
        *("--clearenv", "--setenv", "PATH", _PATH),
        *("--setenv", "HOME", _HOME, "--setenv", "LANG", "C.UTF-8", "--setenv", "TERM", "dumb"),
        *_system_binds(),
        *("--proc", "/proc", "--dev", "/dev"),
    ]
    for scratch in _SCRATCH:
        arguments += ["--size", str(limits.scratch_bytes), "--tmpfs", scratch]
    if proxy is not None:
        arguments += ["--ro-bind", str(proxy), _PROXY]
        for name in _PROXY_VARIABLES:
            arguments += ["--setenv", name, f"http://127.0.0.1:{_PROXY_PORT}"]
        for path in _CERTIFICATES:
            arguments += ["--ro-bind-try", path, path]
    for option, source, inside in binds:
        target = f"{INSIDE}/{inside}" if inside else INSIDE
        arguments += [option, str(source), target]
    arguments += ["--remount-ro", "/dev", "--remount-ro", "/"]
    if binds:
        arguments += ["--chdir", INSIDE]
    if filtered is not None:
        arguments += ["--seccomp", str(filtered)]
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


def _memory(name: str, content: bytes = b"") -> int:
    """A descriptor of a file in memory."""
    descriptor = os.memfd_create(name)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
