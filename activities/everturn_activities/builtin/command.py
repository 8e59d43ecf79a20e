"""Running a command in the working folder."""

from typing import Annotated

from pydantic import Field

from everturn.errors import ToolFailed
from everturn.tools import ToolContext, tool
from everturn_activities.running import run

COMMAND_SECONDS_MAX = 600.0
TimeoutSeconds = Annotated[
    float, Field(gt=0, le=COMMAND_SECONDS_MAX, description="When it is ended, in seconds.")
]


@tool(effect="once", timeout_seconds=COMMAND_SECONDS_MAX + 30)
async def run_command(
    command: Annotated[str, Field(min_length=1, description="What sh -c runs.")],
    context: ToolContext,
    timeout_seconds: TimeoutSeconds = 60.0,
) -> str:
    """Run a shell command in the working folder; answers with its exit code and output.

    There is no input, and no network but to hosts that are allowed. Processes left in the
    background end with the command.
    """
    return str(await run(in_shell(command), context, timeout_seconds))


def in_shell(command: str) -> tuple[str, ...]:
    """The command line of `sh` that runs `command`."""
    if "\0" in command:
        raise ToolFailed("The command contains a NUL byte, which no command line can.")
    return ("/bin/sh", "-c", command.encode("utf-8", "replace").decode())
