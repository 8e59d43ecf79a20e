"""Running a command in the working folder."""

import asyncio
import os
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Annotated

from pydantic import Field

from everturn.errors import ToolFailed
from everturn.tools import ToolContext, tool
from everturn_activities.capped import CappedOutput
from everturn_activities.sandbox import Invocation, probe, sandboxed

COMMAND_SECONDS_MAX = 600.0
_KEPT_VARIABLES = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "TZ")


@tool(effect="once", timeout_seconds=COMMAND_SECONDS_MAX + 30)
async def run_command(
    command: Annotated[str, Field(min_length=1, description="What sh -c runs.")],
    context: ToolContext,
    timeout_seconds: Annotated[
        float, Field(gt=0, le=COMMAND_SECONDS_MAX, description="When it is ended, in seconds.")
    ] = 60.0,
) -> str:
    """Run a shell command in the working folder; answers with its exit code and output.

    There is no network and no input. Processes left in the background end with the command.
    """
    if "\0" in command:
        raise ToolFailed("The command contains a NUL byte, which no command line can.")
    command = command.encode("utf-8", "replace").decode()
    code, output = await ended(command, context, timeout_seconds)
    return f"exit code: {code}\n{output}"


async def ended(command: str, context: ToolContext, timeout_seconds: float) -> tuple[int, str]:
    """The exit code and the output of a command. Raises ToolFailed where it does not end."""
    with ExitStack() as stack:
        status = probe()
        if status.available:
            invocation = stack.enter_context(
                sandboxed(command, context.working_dir, context.protected)
            )
        elif context.unsafe_commands:
            invocation = Invocation(("/bin/sh", "-c", command), ())
        else:
            raise ToolFailed(
                f"Commands cannot run here: there is no sandbox, because {status.reason}. The"
                " operator can mend that, or allow commands outside of any sandbox by"
                " EVERTURN_UNSAFE_COMMANDS=1."
            )
        return await _output(invocation, context.working_dir, timeout_seconds)


async def _output(
    invocation: Invocation, working_dir: Path, timeout_seconds: float
) -> tuple[int, str]:
    """Run it to its end. Whatever ends the wait ends the whole process group."""
    output = CappedOutput()
    # A pipe of our own: asyncio's counts a process as running while anybody holds its pipe.
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb", buffering=0) as pipe:
        try:
            process = await _start(invocation, write_end, working_dir)
        finally:
            os.close(write_end)
        try:
            async with asyncio.timeout(timeout_seconds) as timeout:
                reading = asyncio.create_task(_collect(pipe, output))
                try:
                    code = await process.wait()
                    # What was started in the background would hold the pipe open.
                    _kill_group(process.pid)
                    await reading
                finally:
                    reading.cancel()
                    await asyncio.wait({reading})
        except TimeoutError:
            if not timeout.expired():
                raise
            raise ToolFailed(
                f"The command was ended after {timeout_seconds:g} s, its time-out."
                f" Its output until then:\n{output.text()}"
            ) from None
        finally:
            _kill_group(process.pid)
            if process.returncode is None:
                await _reaped(process)
    return code, output.text()


async def _start(
    invocation: Invocation, write_end: int, working_dir: Path
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *invocation.arguments,
            cwd=working_dir,
            # No secret of ours may reach a command, inside a sandbox or outside.
            env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=write_end,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=invocation.descriptors,
            # A group of its own. The death of the worker's thread ends bwrap, and with bwrap
            # its process namespace; so this runs on the event loop's thread.
            start_new_session=True,
        )
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
