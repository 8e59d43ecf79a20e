"""Running a piece of code, where the workspace's settings allow it."""

from typing import Annotated, Literal

from pydantic import Field

from everturn.errors import ToolFailed
from everturn.tools import ToolContext, tool
from everturn_activities.builtin.command import COMMAND_SECONDS_MAX, TimeoutSeconds
from everturn_activities.running import run

CODE_BYTES_MAX = 100_000
"""What one argument of a command line may have, and a little less."""

_RUNS = {"python": ("python3", "-c"), "node": ("node", "-e"), "shell": ("/bin/sh", "-c")}


@tool(effect="once", timeout_seconds=COMMAND_SECONDS_MAX + 30)
async def code_execution(
    language: Literal["python", "node", "shell"],
    code: Annotated[str, Field(min_length=1, description="The whole program.")],
    context: ToolContext,
    timeout_seconds: TimeoutSeconds = 60.0,
) -> str:
    """Run a piece of code in the working folder; answers with its exit code and output.

    There is no input, and no network but to hosts that are allowed. Processes left in the
    background end with the code.
    """
    encoded = code.encode("utf-8", "replace")
    if b"\0" in encoded:
        raise ToolFailed("The code contains a NUL byte, which no program can.")
    if len(encoded) > CODE_BYTES_MAX:
        raise ToolFailed(
            f"The code has {len(encoded)} bytes, and the limit is {CODE_BYTES_MAX}; write it to a"
            " file and run that."
        )
    return str(await run((*_RUNS[language], encoded.decode()), context, timeout_seconds))
