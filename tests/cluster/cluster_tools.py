"""A tool of each effect, which writes down what it does: copied into a cluster's workspace."""

import asyncio
import json
import os
import time

from everturn import ToolContext, tool

LOG = "effects.log"


def note(context: ToolContext, name: str, what: str) -> None:
    line = {
        "tool": name,
        "what": what,
        "key": context.idempotency_key,
        "session": context.session,
        "time": time.time(),
    }
    path = context.working_dir / LOG
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, (json.dumps(line) + "\n").encode())
    os.close(descriptor)


async def _acted(context: ToolContext, name: str) -> str:
    note(context, name, "began")
    await asyncio.sleep(0.2)
    note(context, name, "effect")
    await asyncio.sleep(0.2)
    return f"{name} is done"


@tool(effect="pure", quick=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="idempotent")
async def stamp(context: ToolContext) -> str:
    """Put the stamp on it."""
    return await _acted(context, "stamp")


@tool(effect="keyed")
async def post(context: ToolContext) -> str:
    """Post it under its key."""
    return await _acted(context, "post")


@tool(effect="once")
async def charge(context: ToolContext) -> str:
    """Charge for it."""
    return await _acted(context, "charge")


def _was_paid(context: ToolContext) -> str | None:
    lines = map(json.loads, (context.working_dir / LOG).read_text().splitlines())
    had = any((line["key"], line["what"]) == (context.idempotency_key, "effect") for line in lines)
    return "pay is done" if had else None


@tool(effect="once", verify=_was_paid)
async def pay(context: ToolContext) -> str:
    """Pay for it, and know afterwards whether it was paid."""
    return await _acted(context, "pay")
