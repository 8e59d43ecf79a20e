"""The limits of a command: each is held, and each is told in a sentence."""

import asyncio
import gc
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from everturn.commands import CommandLimits
from everturn_activities.sandbox import probe
from everturn_activities.sandbox_watch import SandboxWatch

needs_sandbox = pytest.mark.skipif(not probe().available, reason=str(probe().reason))

MIB = 1 << 20
HOLD = "python3 -c 'x = bytearray({} << 20); import time; time.sleep(20)'"


@needs_sandbox
@pytest.mark.parametrize(
    ("limits", "command", "sentence"),
    [
        (
            {"processes": 40},
            "for i in $(seq 200); do sleep 20 & done; wait",
            "it had more than 40 processes",
        ),
        (
            {"processes": 20},
            "python3 -c 'import threading, time\nfor i in range(60):"
            " threading.Thread(target=time.sleep, args=(20,)).start()'",
            "it had more than 20 processes and threads",
        ),
        (
            {"memory_bytes": 100 * MIB},
            " & ".join([HOLD.format(60)] * 3) + "; wait",
            "it used more than 100 MiB of memory",
        ),
        (
            {"cpu_seconds": 1},
            "(while :; do :; done) & (while :; do :; done) & wait",
            "it used more than 1 s of CPU time",
        ),
        (
            {"disk_bytes": 20 * MIB},
            "for i in 1 2 3 4 5; do head -c 9000000 /dev/zero > $i; done; sleep 20",
            "it wrote more than 20 MiB",
        ),
    ],
    ids=["processes", "threads", "memory", "cpu", "disk"],
)
async def test_a_command_ends_where_its_processes_pass_a_limit_together(
    call, limits, command, sentence
):
    told = "echo said; " + command

    result = await call("run_command", {"command": told}, command_limits=CommandLimits(**limits))

    assert result.failed
    assert result.text.startswith(
        f"The command was ended, because {sentence}. Its output until then:\nsaid\n"
    )


@needs_sandbox
async def test_what_is_written_to_a_folder_in_memory_is_counted_too(call):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        result = await call(
            "run_command",
            {"command": "for i in 1 2 3 4 5; do head -c 9000000 /dev/zero > $i; done; sleep 20"},
            working_dir=Path(name),
            command_limits=CommandLimits(disk_bytes=20 * MIB),
        )

    assert result.text.startswith("The command was ended, because it wrote more than 20 MiB.")


@needs_sandbox
@pytest.mark.parametrize(
    ("limits", "command", "sentence"),
    [
        ({"memory_bytes": 64 * MIB}, "python3 -c 'bytearray(200 << 20)'", "MemoryError"),
        ({"scratch_bytes": MIB}, "head -c 2000000 /dev/zero > /tmp/x", "No space left"),
        (
            {"file_bytes": MIB},
            "head -c 2000000 /dev/zero > x",
            "[A process was ended: its file grew beyond 1048576 bytes.]",
        ),
        ({"open_files": 40}, "python3 -c '[open(\"/dev/null\") for i in range(50)]'", "Too many"),
        (
            {"cpu_seconds": 1},
            "python3 -c 'import signal\nwhile True: pass'",
            "s of CPU time",
        ),
    ],
    ids=["memory", "scratch", "file", "files", "cpu"],
)
async def test_the_kernel_holds_each_process_to_its_limits(call, limits, command, sentence):
    result = await call("run_command", {"command": command}, command_limits=CommandLimits(**limits))

    assert sentence in result.text


@needs_sandbox
async def test_no_command_runs_longer_than_the_operator_allows(call):
    limits = CommandLimits(seconds=0.3)

    result = await call("run_command", {"command": "echo a; sleep 9"}, command_limits=limits)

    assert result.text == (
        "The command was ended after 0.3 s, its time-out. Its output until then:\na\n"
    )


@needs_sandbox
async def test_memory_that_processes_share_is_counted_once(call):
    fork = (
        "import os, time\nx = bytearray(60 << 20)\n"
        "for i in range(4):\n  if not os.fork(): time.sleep(0.5); os._exit(0)\n"
        '[os.wait() for i in range(4)]; print("whole")'
    )

    result = await call(
        "run_command",
        {"command": f"python3 -c '{fork}'"},
        command_limits=CommandLimits(memory_bytes=150 * MIB),
    )

    assert result.text == "exit code: 0\nwhole\n"


@needs_sandbox
def test_the_processes_of_the_machine_are_not_taken_for_the_commands(folder):
    about = os.memfd_create("about")
    # A sandbox that still has the machine's root, as each has for a moment.
    early = ["bwrap", "--die-with-parent", "--bind", "/", "/", "--unshare-pid"]
    early += ["--info-fd", str(about), "sleep", "61.7"]
    with subprocess.Popen(early, pass_fds=(about,), start_new_session=True) as process:
        try:
            while not os.fstat(about).st_size:
                assert process.poll() is None
            watch = SandboxWatch(about, folder, CommandLimits(processes=8))
            assert watch.exceeded() is None
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            os.close(about)


@needs_sandbox
async def test_node_runs_within_the_limits(call):
    result = await call("run_command", {"command": "command -v node || echo none"})
    if "none" in result.text:
        pytest.skip("no node below /usr")

    result = await call(
        "run_command",
        {"command": "node -e 'console.log(6 * 7)'"},
        command_limits=CommandLimits(memory_bytes=512 * MIB),
    )

    assert result.text == "exit code: 0\n42\n"


async def test_output_is_shown_while_the_command_runs(call, folder):
    shown: list[str] = []

    def progress(text: str) -> None:
        shown.append(text)
        (folder / "seen").touch()

    # The command ends only once its first words were shown.
    command = "printf 'caf\\303'; printf '\\251\\n'; until [ -e seen ]; do sleep 0.01; done; echo b"
    result = await asyncio.wait_for(
        call("run_command", {"command": command}, progress=progress, unsafe_commands=True), 20
    )

    assert result.text == "exit code: 0\ncafé\nb\n"
    assert "".join(shown) == "café\nb\n"


async def test_a_command_that_is_cut_off_leaves_nothing_for_the_log_to_find(call, caplog):
    """What nobody looks at is logged when it is collected: in whatever runs just then, such as a
    workflow."""
    limits = CommandLimits(seconds=0.2)

    result = await call(
        "run_command",
        {"command": "echo a; sleep 60"},
        command_limits=limits,
        unsafe_commands=True,
    )
    gc.collect()

    assert "its time-out" in result.text
    assert caplog.records == []
