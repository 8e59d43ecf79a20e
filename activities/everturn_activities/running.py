"""Running a command to its end: within its limits, shown as it goes, leaving nothing behind."""

import asyncio
import codecs
import os
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from everturn.commands import CommandLimits
from everturn.errors import ToolFailed
from everturn.hosts import Reach
from everturn.tools import ToolContext
from everturn_activities.capped import WHOLE_BYTES_MAX, CappedOutput
from everturn_activities.egress_proxy import egress_proxy
from everturn_activities.sandbox import Invocation, can_have_network, probe, sandboxed
from everturn_activities.sandbox_watch import SandboxWatch
from everturn_activities.tool_output import UNTIL_THEN

WATCH_SECONDS = 0.1
_KEPT_VARIABLES = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "TZ")


@dataclass(frozen=True)
class Ended:
    """How a command ended. `output` is what it wrote to stdout and stderr, very long ones cut;
    `errors` is what it wrote to stderr, where that is kept apart."""

    code: int
    output: str
    errors: str = ""

    def __str__(self) -> str:
        return f"exit code: {self.code}\n{self.output}"


async def run(
    arguments: Sequence[str],
    context: ToolContext,
    timeout_seconds: float,
    stdin: bytes | None = None,
) -> Ended:
    """Run a program in the working folder. Raises ToolFailed where it does not come to its end.

    It is never run outside of the sandbox, unless the operator allows that. Of one that is
    given something to read, what it writes to stderr is kept apart.
    """
    limits = context.command_limits
    note = ""
    async with AsyncExitStack() as stack:
        status = probe()
        if status.available:
            proxy = None
            if context.allowed_hosts and can_have_network():
                reach = Reach.of(context.allowed_hosts)
                proxy = await stack.enter_async_context(egress_proxy(reach))
            elif context.allowed_hosts:
                note = "\n[There was no network: it needs a python3 below /usr, and there is none.]"
            invocation = stack.enter_context(
                sandboxed(
                    *(arguments, context.working_dir, context.protected, limits, proxy),
                    variables=context.command_secrets,
                )
            )
        elif context.unsafe_commands:
            invocation = Invocation(tuple(arguments), variables=context.command_secrets)
        else:
            raise ToolFailed(
                f"Commands cannot run here: there is no sandbox, because {status.reason}. The"
                " operator can mend that, or allow commands outside of any sandbox by"
                " EVERTURN_UNSAFE_COMMANDS=1."
            )
        output, errors = _Output(context), _Output(context)
        outputs = [output] if stdin is None else [output, errors]
        seconds = min(timeout_seconds, limits.seconds)
        code = await _code(invocation, context.working_dir, outputs, seconds, limits, stdin)
    return Ended(code, output.text() + _last_word(code, limits) + note, errors.text())


def _last_word(code: int, limits: CommandLimits) -> str:
    """Why the kernel ended the command, where it tells by a signal of its own."""
    # A shell reports the signal that ended a command as 128 and its number, as bwrap does.
    ended_by = code - 128
    if ended_by == signal.SIGXCPU:
        return f"\n[A process was ended: it used more than {limits.cpu_seconds} s of CPU time.]"
    if ended_by == signal.SIGXFSZ:
        return f"\n[A process was ended: its file grew beyond {limits.file_bytes} bytes.]"
    return ""


class _PassedError(Exception):
    """A limit of the command is passed; the text is the end of a sentence."""


class _Output(CappedOutput):
    """Output that is shown as it comes, and kept as far as it is not too long."""

    def __init__(self, context: ToolContext) -> None:
        super().__init__(WHOLE_BYTES_MAX)
        self._progress = context.progress
        self._clean = context.scrubber.stream()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        self._take(self._clean.feed(self._decoder.decode(data)))

    def text(self) -> str:
        self._take(self._clean.feed(self._decoder.decode(b"", final=True)))
        self._take(self._clean.rest())
        return super().text()

    def _take(self, text: str) -> None:
        if text:
            super().feed(text.encode())
            self._progress(text)


async def _code(
    invocation: Invocation,
    working_dir: Path,
    outputs: Sequence[CappedOutput],
    seconds: float,
    limits: CommandLimits,
    stdin: bytes | None,
) -> int:
    """The exit code. Whatever ends the wait ends the whole process group. The first of `outputs`
    is of stdout, the last of stderr."""
    with ExitStack() as stack:
        # Pipes of our own: asyncio's count a process as running while anybody holds them.
        ends = [os.pipe() for _ in outputs]
        pipes = [stack.enter_context(os.fdopen(end, "rb", buffering=0)) for end, _ in ends]
        theirs = [end for _, end in ends]
        if stdin is not None:
            theirs.append(_written(stdin))
        try:
            process = await _start(invocation, theirs, len(outputs), working_dir)
        finally:
            for end in theirs:
                os.close(end)
        try:
            async with asyncio.timeout(seconds) as timeout:
                collecting = zip(pipes, outputs, strict=True)
                reading = [asyncio.create_task(_collect(*each)) for each in collecting]
                try:
                    code = await _watched(process, invocation, working_dir, limits)
                    # What was started in the background would hold the pipe open.
                    _kill_group(process.pid)
                    await asyncio.gather(*reading)
                finally:
                    for task in reading:
                        task.cancel()
                    await asyncio.wait(reading)
        except TimeoutError:
            if not timeout.expired():
                raise
            raise ToolFailed(
                f"The command was ended after {seconds:g} s, its time-out."
                f" {UNTIL_THEN}\n{outputs[0].text()}"
            ) from None
        except _PassedError as error:
            raise ToolFailed(
                f"The command was ended, because {error}. {UNTIL_THEN}\n{outputs[0].text()}"
            ) from None
        finally:
            _kill_group(process.pid)
            if process.returncode is None:
                await _reaped(process)
    return code


def _written(stdin: bytes) -> int:
    """A descriptor from which `stdin` is read: unlike a pipe it takes any length at once."""
    descriptor = os.memfd_create("everturn-stdin")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(stdin)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


async def _watched(
    process: asyncio.subprocess.Process,
    invocation: Invocation,
    working_dir: Path,
    limits: CommandLimits,
) -> int:
    """Wait for the process; raises _PassedError once it passes a limit."""
    if invocation.about is None:
        return await process.wait()
    watch = SandboxWatch(invocation.about, working_dir, limits)
    waiting = asyncio.ensure_future(process.wait())
    try:
        while not (await asyncio.wait({waiting}, timeout=WATCH_SECONDS))[0]:
            if (reason := watch.exceeded()) is not None:
                raise _PassedError(reason)
        return waiting.result()
    finally:
        waiting.cancel()


async def _start(
    invocation: Invocation, theirs: Sequence[int], outputs: int, working_dir: Path
) -> asyncio.subprocess.Process:
    """`theirs` are the descriptors of its `outputs`, then that of its stdin if it has one."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *invocation.arguments,
            cwd=working_dir,
            # No secret of ours may reach a command, inside a sandbox or outside.
            env={
                **{name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
                **invocation.variables,
            },
            stdin=theirs[outputs] if len(theirs) > outputs else asyncio.subprocess.DEVNULL,
            stdout=theirs[0],
            stderr=theirs[outputs - 1],
            pass_fds=invocation.descriptors,
            # A group of its own. The death of the worker's thread ends bwrap, and with bwrap
            # its process namespace; so this runs on the event loop's thread.
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Cancelled in its midst, asyncio would end the process, and leave what that has started.
        await asyncio.wait({starting})
        if starting.exception() is None:
            _kill_group(starting.result().pid)
            await _reaped(starting.result())
        raise
    except OSError as error:
        raise ToolFailed(f"The command could not be started: {error.strerror}.") from None


async def _collect(pipe: IO[bytes], output: CappedOutput) -> None:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        while chunk := await reader.read(1 << 16):
            output.feed(chunk)
    finally:
        transport.close()


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


async def _reaped(process: asyncio.subprocess.Process) -> None:
    """Wait for a killed process, though the wait itself is cancelled meanwhile."""
    waiting = asyncio.ensure_future(process.wait())
    with suppress(asyncio.CancelledError):
        await asyncio.wait({waiting}, timeout=5)
