"""Obtaining the Temporal server: from PATH, our cache, the SDK's download or Go, in this order."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from everturn.errors import RuntimeUnavailable, UsageError
from everturn_workers.locks import try_lock

GO_PACKAGE = "github.com/temporalio/cli/cmd/temporal@v1.5.1"
NEEDED_FLAG = "--sqlite-pragma"
SILENCE_SECONDS = 15.0
"""How long a download may bring nothing: in a closed network it would never end."""
BUILD_SECONDS = 1800.0
PROGRESS_SECONDS = 15.0
PART = ".fetching-"

# Run apart: the SDK downloads only on the way to starting a server, and cannot be told to stop.
DOWNLOAD = """\
import asyncio, sys
from temporalio.testing import WorkflowEnvironment
async def main():
    server = await WorkflowEnvironment.start_local(download_dest_dir=sys.argv[1])
    await server.shutdown()
asyncio.run(main())
"""


def cache_folder() -> Path:
    """Where binaries are kept for all homes of a person."""
    return Path(platformdirs.user_data_dir("everturn")) / "bin"


@dataclass(frozen=True)
class Sources:
    """Where a binary may come from; tests put their own in place."""

    cache: Path = field(default_factory=cache_folder)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    download: Sequence[str] = (sys.executable, "-c", DOWNLOAD)
    """A command that leaves a binary in the folder given as its last argument."""
    silence_seconds: float = SILENCE_SECONDS


def find(sources: Sources | None = None) -> Path | None:
    """The binary that stands ready on this machine, without fetching any.

    Raises UsageError where EVERTURN_TEMPORAL_BINARY names one that does not serve.
    """
    sources = sources or Sources()
    named = sources.environment.get("EVERTURN_TEMPORAL_BINARY")
    if named:
        if why := _unfit(Path(named)):
            raise UsageError(
                f"EVERTURN_TEMPORAL_BINARY names {named}, which {why}; name another or unset it."
            )
        return Path(named)
    on_path = shutil.which("temporal", path=sources.environment.get("PATH", ""))
    candidates = [Path(on_path)] if on_path else []
    candidates.append(sources.cache / "temporal")
    return next((path for path in candidates if _unfit(path) is None), None)


def fetch(say: Callable[[str], None], sources: Sources | None = None) -> Path:
    """The path of a Temporal binary, fetched first where there is none.

    `say` hears what is being done, with the time it has taken. Blocks for minutes where the
    binary must be built. Raises RuntimeUnavailable, in one sentence, where all ways failed.
    """
    sources = sources or Sources()
    if found := find(sources):
        return found
    with _fetching_alone(sources.cache, say):
        if found := find(sources):
            return found
        for left in sources.cache.glob(f"{PART}*"):
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=PART, dir=sources.cache) as folder:
            reasons = []
            for way in (_download, _build):
                try:
                    made = way(Path(folder), sources, say)
                except _FetchError as failed:
                    say(f"{failed}.")
                    reasons.append(str(failed))
                else:
                    made.replace(sources.cache / "temporal")
                    return sources.cache / "temporal"
    raise RuntimeUnavailable(
        f"No Temporal server could be obtained ({'; '.join(reasons)}); put the `temporal` command"
        " (docs.temporal.io/cli) or Go 1.25+ (go.dev/dl) on PATH, or set"
        " EVERTURN_TEMPORAL_ADDRESS to a server of yours."
    )


def version(binary: Path) -> str:
    """What the binary says of itself, on one line."""
    return _output([str(binary), "--version"]).strip()


class _FetchError(Exception):
    """Why one way gave no binary, without a full stop."""


def _download(folder: Path, sources: Sources, say: Callable[[str], None]) -> Path:
    target = folder / "download"
    target.mkdir()
    heard = _Heard(target)
    _run(
        [*sources.download, str(target)],
        sources.environment,
        "the download of the Temporal server",
        say,
        still_going=lambda: heard.seconds_of_silence() < sources.silence_seconds,
    )
    for made in target.iterdir():
        made.chmod(0o755)
        if _unfit(made) is None:
            return made
    raise _FetchError("the download of the Temporal server brought none that serves")


def _build(folder: Path, sources: Sources, say: Callable[[str], None]) -> Path:
    go = shutil.which("go", path=sources.environment.get("PATH", ""))
    if go is None:
        raise _FetchError("Go is not on PATH, so that the Temporal server cannot be built")
    target = folder / "go"
    give_up = time.monotonic() + BUILD_SECONDS
    _run(
        [go, "install", GO_PACKAGE],
        {**sources.environment, "GOBIN": str(target)},
        "building the Temporal server with Go (about 5 minutes on two cores)",
        say,
        still_going=lambda: time.monotonic() < give_up,
    )
    made = target / "temporal"
    if why := _unfit(made):
        raise _FetchError(f"the Temporal server that Go built {why}")
    return made


class _Heard:
    """How long nothing has arrived in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bytes = 0
        self._since = time.monotonic()

    def seconds_of_silence(self) -> float:
        now = sum(file.stat().st_size for file in self._folder.iterdir())
        if now != self._bytes:
            self._bytes, self._since = now, time.monotonic()
        return time.monotonic() - self._since


def _run(
    command: Sequence[str],
    environment: Mapping[str, str],
    what: str,
    say: Callable[[str], None],
    still_going: Callable[[], bool],
) -> None:
    """Run a command to its end, telling of `what` and the time; _FetchError where it fails."""
    began = told = time.monotonic()
    say(f"{what[0].upper()}{what[1:]} ...")
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(  # noqa: S603
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            while process.poll() is None:
                if not still_going():
                    raise _FetchError(f"{what} came to a stop")
                if time.monotonic() - told > PROGRESS_SECONDS:
                    told = time.monotonic()
                    say(f"{what[0].upper()}{what[1:]}: {told - began:.0f} s so far.")
                time.sleep(0.05)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode != 0:
            output.seek(0)
            raise _FetchError(f"{what} failed: {_last_line(output.read())}")


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines() or ["it said nothing"]
    return re.sub(r"\s+", " ", lines[-1])[-300:].rstrip(". ")


@contextmanager
def _fetching_alone(cache: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Wait until no other process fetches into `cache`."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = try_lock(cache / "fetch.lock")
        if lock is None:
            say("Another process obtains the Temporal server; waiting for it.")
        while lock is None:
            lock = try_lock(cache / "fetch.lock")
    except OSError as error:
        raise RuntimeUnavailable(
            f"The Temporal server cannot be kept in {cache}: {error.strerror}; make that folder"
            " writable, or set EVERTURN_TEMPORAL_BINARY to a `temporal` command."
        ) from None
    try:
        yield
    finally:
        os.close(lock)


def _unfit(binary: Path) -> str | None:
    """Why a file does not serve as our Temporal server, or None."""
    if not binary.is_file():
        return "is not there"
    if not os.access(binary, os.X_OK):
        return "cannot be executed"
    options = _output([str(binary), "server", "start-dev", "--help"])
    return None if NEEDED_FLAG in options else f"does not know {NEEDED_FLAG}"


def _output(command: list[str]) -> str:
    try:
        ran = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout


def main() -> int:
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:4.0f} s] {line}", file=sys.stderr, flush=True)

    try:
        binary = fetch(say)
    except (RuntimeUnavailable, UsageError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"Temporal server: {binary} ({version(binary)})", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
