"""Sending a report: something that must never happen twice."""

import asyncio
import os
from pathlib import Path

from everturn import ToolContext, tool

EFFECTS = "effects.log"
SECONDS = 3.0


def sent(context: ToolContext) -> str | None:
    """What became of a report whose sending was cut off: None if it was never sent."""
    log = context.working_dir / EFFECTS
    for line in log.read_text().splitlines() if log.exists() else ():
        key, _, title = line.partition(" ")
        if key == context.idempotency_key:
            return f"Sent the report {title!r}."
    return None


@tool(effect="once", verify=sent, timeout_seconds=60)
async def slow_report(title: str, context: ToolContext) -> str:
    """Send the shop a report, which takes some seconds."""
    # The log stands for the outside world: each line is one report that somebody received.
    _append(context.working_dir / EFFECTS, f"{context.idempotency_key} {title}\n")
    await asyncio.sleep(SECONDS)
    return f"Sent the report {title!r}."


def _append(path: Path, line: str) -> None:
    with path.open("a") as log:
        log.write(line)
        log.flush()
        os.fsync(log.fileno())
