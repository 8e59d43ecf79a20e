"""Tools that write down what they do, outside of any store, and wait at gates.

Copied into the workspace of a system under test.
"""

import asyncio
import json
import os
import time
from contextlib import suppress

from everturn import ToolContext, tool


def note(context: ToolContext, name: str, what: str, gate: str = "") -> None:
    line = {
        "tool": name,
        "what": what,
        "key": context.idempotency_key,
        "session": context.session,
        "attempt": context.attempt,
        "gate": gate,
        "pid": os.getpid(),
        "time": time.time(),
    }
    descriptor = os.open(
        context.working_dir / "effects.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
    )
    os.write(descriptor, (json.dumps(line) + "\n").encode())
    os.close(descriptor)


async def passed(context: ToolContext, gate: str) -> None:
    """Wait until the file of the gate is there."""
    while gate and not (context.working_dir / "gates" / gate).exists():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@tool(effect="once")
async def charge(context: ToolContext, before: str = "", after: str = "") -> str:
    """Charge for the order."""
    note(context, "charge", "began", before)
    await passed(context, before)
    note(context, "charge", "effect", after)
    await passed(context, after)
    return "charged"


@tool(effect="idempotent")
async def slow(context: ToolContext, gate: str = "") -> str:
    """Take a while."""
    note(context, "slow", "began", gate)
    await passed(context, gate)
    await asyncio.sleep(0.05)
    note(context, "slow", "effect")
    return "slept"


@tool(effect="idempotent")
async def stubborn(context: ToolContext, gate: str = "") -> str:
    """Take a while, whoever says that it is to end."""
    note(context, "stubborn", "began", gate)
    waiting = asyncio.ensure_future(passed(context, gate))
    while not waiting.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(waiting)
    return "passed"


@tool(effect="pure", quick=True)
def add(context: ToolContext, a: int, b: int) -> int:
    """Add two numbers."""
    note(context, "add", "began")
    return a + b


@tool(effect="pure", quick=True)
def fatal() -> None:
    """End the process that runs this."""
    os._exit(3)


@tool(effect="pure")
async def interrupt() -> None:
    """Raise in a task of its own what ends an event loop."""

    async def raises() -> None:
        raise KeyboardInterrupt

    await asyncio.create_task(raises())
