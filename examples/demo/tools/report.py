"""Reaching the shop's owner: things that must never happen twice, kept so in two ways.

`effects.log` stands for the outside world: each line is something that reached the owner.
"""

import asyncio
import os
from pathlib import Path

from everturn import ToolContext, tool

EFFECTS = "effects.log"
SECONDS = 2.0


@tool(effect="keyed", timeout_seconds=60)
async def slow_report(title: str, context: ToolContext) -> str:
    """Send the shop a report, which takes some seconds."""
    # Who receives reports drops a second one with the same key: running this again is safe.
    if _found(context, "report") is None:
        _append(context, "report", title)
    await asyncio.sleep(SECONDS)
    return f"Sent the report {title!r}."


def called(context: ToolContext) -> str | None:
    """What became of a call that was cut off: None if the telephone never rang."""
    reason = _found(context, "call")
    return None if reason is None else f"The owner was called: {reason}"


@tool(effect="once", verify=called, timeout_seconds=60)
async def call_owner(reason: str, context: ToolContext) -> str:
    """Call the owner on the telephone, which takes some seconds."""
    # A telephone knows no keys: running this again would ring again. So it never starts
    # twice; where it was cut off, `called` looks up what became of it.
    _append(context, "call", reason)
    await asyncio.sleep(SECONDS)
    return f"The owner was called: {reason}"


def _found(context: ToolContext, kind: str) -> str | None:
    log = context.working_dir / EFFECTS
    for line in log.read_text().splitlines() if log.exists() else ():
        if line.startswith(f"{kind} {context.idempotency_key} "):
            return line.split(" ", 2)[2]
    return None


def _append(context: ToolContext, kind: str, text: str) -> None:
    path: Path = context.working_dir / EFFECTS
    with path.open("a") as log:
        log.write(f"{kind} {context.idempotency_key} {text}\n")
        log.flush()
        os.fsync(log.fileno())
