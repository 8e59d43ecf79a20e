"""`make demo` as a process: what it shows, and what it leaves behind."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from everturn_workers import fetch, processes

ROOT = Path(__file__).parents[2]
SECONDS = 90

Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the demo puts its temporary files: a short path, for sockets stand there too."""
    made = Path(tempfile.mkdtemp(prefix="demo-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    if fetch.find() is None:
        pytest.fail("There is no Temporal server; run `make temporal`.")
    started: list[subprocess.Popen[str]] = []

    def begin() -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "examples/demo.py"],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(folder), "EVERTURN_PORT": "nonsense"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def of_the_demo(folder: Path) -> list[str]:
    """Command lines of living processes that were started with `folder` for temporary files."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"TMPDIR={folder}\0".encode() not in environment.read_bytes():
                continue
            command = environment.with_name("cmdline").read_text().replace("\0", " ")
        except OSError:
            continue  # It ended meanwhile, or is another user's.
        if processes.identify(int(environment.parent.name)) is not None:
            found.append(command)
    return found


def test_the_demo_kills_a_worker_and_repeats_nothing(start: Start, folder: Path):
    before = subprocess.check_output(["git", "status", "--short", "examples"], cwd=ROOT)

    demo = start()
    shown, _ = demo.communicate(timeout=SECONDS)

    assert demo.returncode == 0, shown
    [killed] = re.findall(r"kill -9 +worker (\d+)", shown)
    [back] = re.findall(r"worker +(\d+) is back", shown)
    assert killed != back
    assert re.search(r"model calls answered, at the endpoint +4 +0\b", shown)
    assert re.search(r"tool effects, in effects.log +2 +0\b", shown)
    assert shown.index("again") > shown.index("kill -9")
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 100
    assert of_the_demo(folder) == []
    assert list(folder.glob("everturn-demo-*")) == []
    after = subprocess.check_output(["git", "status", "--short", "examples"], cwd=ROOT)
    assert after == before


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "running"),
        pytest.param(signal.SIGTERM, "kill -9", marks=pytest.mark.long),
    ],
)
def test_an_interrupted_demo_leaves_no_process_and_no_folder(
    start: Start, folder: Path, number: signal.Signals, moment: str
):
    demo = start()
    assert demo.stdout is not None
    while not demo.stdout.readline().startswith(moment):
        assert demo.poll() is None

    demo.send_signal(number)
    shown, _ = demo.communicate(timeout=SECONDS)

    assert demo.returncode == 130
    assert "Traceback" not in shown
    assert of_the_demo(folder) == []
    assert list(folder.glob("everturn-demo-*")) == []
