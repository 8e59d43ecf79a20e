"""run_command: commands see one folder, and nothing of them outlives the call."""

import asyncio
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from everturn import ToolFailed
from everturn_activities import running, seccomp
from everturn_activities.capped import WHOLE_BYTES_MAX
from everturn_activities.sandbox import SandboxStatus, probe, sandboxed

needs_sandbox = pytest.mark.skipif(not probe().available, reason=str(probe().reason))


@pytest.fixture(params=["sandboxed", "unsafe"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict]:
    """Changes of the context under which a command runs in the sandbox, or outside of any."""
    if request.param == "unsafe":
        monkeypatch.setattr(running, "probe", lambda: SandboxStatus(False, "a test"))
        yield {"unsafe_commands": True}
    elif probe().available:
        yield {}
    else:
        pytest.skip(str(probe().reason))


def processes_with(marker: str) -> list[int]:
    """Processes, in any namespace, whose command line has the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in line and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def eventually(state: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not state():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


async def test_a_command_works_on_the_working_folder_and_tells_exit_code_and_output(
    call, folder, mode
):
    (folder / "in.txt").write_text("b\na\n")

    result = await call(
        "run_command",
        {"command": "sort in.txt > out.txt; echo said; echo wrong >&2; exit 3"},
        **mode,
    )

    assert (result.text, result.failed) == ("exit code: 3\nsaid\nwrong\n", False)
    assert (folder / "out.txt").read_text() == "a\nb\n"
    assert sorted(os.listdir(folder)) == ["in.txt", "out.txt"]


async def test_a_command_never_sees_the_variables_of_the_worker(call, mode, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    assert "canary" not in (await call("run_command", {"command": "env"}, **mode)).text


async def test_a_flood_of_output_is_cut_while_it_is_read(call, mode):
    flood = "echo first; head -c 30000000 /dev/zero | tr '\\0' x; echo last"

    result = await call("run_command", {"command": flood}, **mode)

    assert result.text.startswith("exit code: 0\nfirst\nxxx")
    assert result.text.endswith("xxxlast\n")
    assert len(result.text) < 70_000


async def test_no_more_of_a_flood_is_kept_than_can_be_read_on(context, mode):
    flood = ["sh", "-c", "head -c 30000000 /dev/zero | tr '\\0' x"]

    ended = await running.run(flood, replace(context, **mode), 60)

    assert WHOLE_BYTES_MAX - 200 < len(ended.output) < WHOLE_BYTES_MAX + 200


@needs_sandbox
async def test_a_command_without_the_network_that_it_may_have_is_told_why(call, monkeypatch):
    monkeypatch.setattr(running, "can_have_network", lambda: False)

    result = await call("run_command", {"command": "echo said"}, allowed_hosts=("example.com",))

    assert result.text == (
        "exit code: 0\nsaid\n\n"
        "[There was no network: it needs a python3 below /usr, and there is none.]"
    )
    assert (await call("run_command", {"command": "echo"}, allowed_hosts=())).text.endswith("0\n\n")


async def test_a_program_that_is_not_there_is_told(context, monkeypatch):
    monkeypatch.setattr(running, "probe", lambda: SandboxStatus(False, "a test"))

    with pytest.raises(ToolFailed, match=r"could not be started: No such file or directory\."):
        await running.run(["nothing-of-this-name"], replace(context, unsafe_commands=True), 5)


@pytest.mark.parametrize("ending", ["exit", "time-out", "cancel"])
async def test_the_whole_process_tree_ends_with_the_call(call, folder, mode, ending):
    marker = f"sleep {os.getpid()}.{time.monotonic_ns()}"
    tree = f"{marker} & (trap '' TERM HUP; {marker} & {marker}) & touch began; "
    command = tree + {"exit": "exit 0", "time-out": "wait", "cancel": "wait"}[ending]
    seconds = 0.5 if ending == "time-out" else 60

    task = asyncio.create_task(
        call("run_command", {"command": command, "timeout_seconds": seconds}, **mode)
    )
    await created(folder / "began")
    if ending == "cancel":
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        text = (await task).text
        assert text.startswith("exit code: 0" if ending == "exit" else "The command was ended")

    assert eventually(lambda: not processes_with(marker.removeprefix("sleep ")))


async def test_a_command_that_is_cancelled_while_it_starts_leaves_nothing(
    call, folder, mode, monkeypatch
):
    """On a busy worker it can have started others before we know that it has started."""
    marker = f"{os.getpid()}.{time.monotonic_ns()}"
    start, known = asyncio.create_subprocess_exec, asyncio.Event()

    async def started(*arguments, **options):
        process = await start(*arguments, **options)
        await known.wait()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", started)
    command = f"sleep {marker} & touch began; wait"
    task = asyncio.create_task(call("run_command", {"command": command}, **mode))
    await created(folder / "began")
    task.cancel()
    await asyncio.sleep(0)
    known.set()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert eventually(lambda: not processes_with(marker))


async def test_what_a_command_says_is_told_as_it_comes(call, folder, mode):
    said = []
    command = (
        "printf 'one \\303'; touch began; until [ -e end ]; do sleep 0.01; done; printf '\\244 two'"
    )

    task = asyncio.create_task(
        call("run_command", {"command": command}, progress=said.append, **mode)
    )
    await created(folder / "began")
    async with asyncio.timeout(10):
        while not said:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    until_then = "".join(said)
    (folder / "end").touch()
    result = await task

    # A sign that came in two pieces is told once it is whole.
    assert until_then == "one "
    assert "".join(said) == "one ä two"
    assert result.text == "exit code: 0\none ä two"


async def created(path: Path) -> None:
    assert await asyncio.to_thread(eventually, path.exists)


WORKER = """
import asyncio, sys
from pathlib import Path
from everturn import ToolContext
from everturn_activities.builtin import builtins
context = ToolContext("t", "s", Path(sys.argv[1]), "k", (Path(sys.argv[1]) / "agents",))
asyncio.run(builtins()["run_command"].run(command=sys.argv[2], context=context))
"""


@needs_sandbox
def test_the_whole_process_tree_ends_when_the_worker_is_killed(folder):
    marker = f"{os.getpid()}.{time.monotonic_ns()}"
    command = f"setsid sleep {marker} & nohup sleep {marker} & sleep {marker}"
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(folder), command])
    try:
        # Three sleeps, the shell that has them in its line, and what leads to it.
        assert eventually(lambda: len(processes_with(marker)) >= 5)
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()

    assert eventually(lambda: not processes_with(marker))


@needs_sandbox
@pytest.mark.parametrize(
    "command",
    [
        "touch everturn.toml",
        "mkdir tools/x",
        "echo x > tools/x.py",
        "echo x > agents/default.md",
        "rm -r agents",
        "mv agents away",
        "ln -s /tmp prompts",
        "echo x > .git/hooks/pre-commit",
        "echo x > .git/config",
        "mv .git away && mkdir -p .git/hooks",
        "touch .mcp.json",
    ],
)
async def test_a_command_cannot_change_what_configures_the_runtime(call, folder, command):
    (folder / "agents").mkdir()
    (folder / "agents/default.md").write_text("mine")
    (folder / ".git").mkdir()
    (folder / ".git/config").write_text("mine")

    result = await call("run_command", {"command": command})

    assert not result.text.startswith("exit code: 0")
    assert sorted(os.listdir(folder)) == [".git", "agents"]
    assert os.listdir(folder / ".git") == ["config"]
    assert (folder / "agents/default.md").read_text() == "mine"
    assert (folder / ".git/config").read_text() == "mine"


@needs_sandbox
async def test_placeholders_stay_while_another_command_needs_them(call, folder):
    long = asyncio.create_task(
        call("run_command", {"command": "touch began; until [ -e end ]; do sleep 0.01; done;"
                                        " mkdir tools/x"})
    )  # fmt: skip
    await created(folder / "began")

    await call("run_command", {"command": "true"})
    still = (folder / "tools").is_dir()
    (folder / "end").touch()

    assert still
    assert "Read-only file system" in (await long).text
    assert sorted(os.listdir(folder)) == ["began", "end"]


@needs_sandbox
async def test_commands_are_refused_where_a_protected_path_is_a_link(call, folder):
    (folder / "elsewhere").mkdir()
    (folder / "agents").symlink_to("elsewhere")

    result = await call("run_command", {"command": "true"})

    assert result.failed
    assert "while agents is a symbolic link" in result.text


@needs_sandbox
@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("ls -d /etc/passwd /root /home /var", "No such file"),
        ("touch /usr/x", "Read-only file system"),
        ("touch /x", "Read-only file system"),
        ("cat /proc/net/dev | tail -n +3 | grep -v lo: || echo none", "none"),
        ("grep CapEff /proc/self/status", "CapEff:\t0000000000000000"),
        ("grep NoNewPrivs /proc/self/status", "NoNewPrivs:\t1"),
        ("unshare -r true", "Operation not permitted"),
        ("mount -t tmpfs x /tmp", "mount"),
        ("id -u", "65534"),
        ("prlimit --core --noheadings --output HARD", "0"),
        ("head -c 300000000 /dev/zero > /tmp/x", "No space left"),
    ],
)
async def test_the_sandbox_holds(call, command, answer):
    assert answer in (await call("run_command", {"command": command})).text


@needs_sandbox
async def test_refused_system_calls_answer_that_they_are_not_permitted(call):
    if seccomp.program() is None:
        pytest.skip("no filter for this machine")
    # 425 is io_uring_setup everywhere.
    program = (
        "import ctypes; c = ctypes.CDLL(None, use_errno=True);"
        " print(c.syscall(425, 1, None), ctypes.get_errno(), c.getpid() > 0)"
    )
    if shutil.which("python3", path="/usr/local/bin:/usr/bin") is None:
        pytest.skip("no Python below /usr")

    result = await call("run_command", {"command": f'python3 -c "{program}"'})

    assert result.text == "exit code: 0\n-1 1 True\n"


async def test_without_a_sandbox_commands_are_refused_with_the_reason_and_the_way(
    call, monkeypatch
):
    probe.cache_clear()
    monkeypatch.setenv("PATH", "/nonexistent")
    try:
        result = await call("run_command", {"command": "true"})
    finally:
        probe.cache_clear()

    assert result.failed
    assert result.text == (
        "Commands cannot run here: there is no sandbox, because bwrap is not on PATH (install"
        " bubblewrap). The operator can mend that, or allow commands outside of any sandbox by"
        " EVERTURN_UNSAFE_COMMANDS=1."
    )


def test_the_filter_is_made_for_known_machines_only():
    assert seccomp.program("riscv64") is None
    for machine in ("x86_64", "aarch64"):
        program = seccomp.program(machine)
        assert program is not None
        assert len(program) % 8 == 0


def test_a_command_is_refused_where_it_could_not_keep_its_placeholders(folder):
    holder = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with (
            pytest.raises(ToolFailed, match="holds a lock on the working folder"),
            sandboxed(("true",), folder),
        ):
            pass
    finally:
        os.close(holder)


async def test_a_command_that_ends_with_what_may_begin_a_secret_shows_it(call, context, mode):
    context.scrubber.learn("TOKEN", "canary-0123456789")
    command = "printf canary-; sleep 0.3; printf '0123456789 and can'"
    ran = await call("run_command", {"command": command}, **mode)
    assert ran.text == "exit code: 0\n[secret TOKEN] and can"


async def test_a_command_finds_its_secrets_and_no_command_line_shows_them(call, mode):
    secrets = {"TOKEN": "canary-0123456789"}
    command = "sleep 0.5; printf %s $TOKEN | wc -c"
    running = asyncio.create_task(
        call("run_command", {"command": command}, command_secrets=secrets, **mode)
    )
    while not processes_with("sleep 0.5"):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert processes_with("canary-0123456789") == []
    assert (await running).text == "exit code: 0\n17\n"
