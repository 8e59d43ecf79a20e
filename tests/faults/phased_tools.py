"""A tool for each effect and each way to run it: copied into the workspace under test."""

import asyncio
import json
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator

from everturn import Tool, ToolContext, tool

EFFECTS = ("pure", "idempotent", "keyed", "once", "verified")


def _acts(context: ToolContext, name: str, effect: str, stop: str) -> Iterator[None]:
    act = runpy.run_path(str(context.working_dir / "acting.py"))["act"]
    acts: Iterator[None] = act(context.working_dir, name, effect, context.idempotency_key, stop)
    return acts


def _verify(context: ToolContext) -> str | None:
    log = (context.working_dir / "acts.log").read_text()
    had = any(
        (line["key"], line["what"]) == (context.idempotency_key, "effect")
        for line in map(json.loads, log.splitlines())
    )
    return "verified" if had else None


def _made(effect: str, way: str) -> Tool:
    name = f"{effect}_{way}"

    def sync(context: ToolContext, stop: str = "") -> str:
        for _ in _acts(context, name, effect, stop):
            time.sleep(0.01)
        return "done"

    async def on_the_loop(context: ToolContext, stop: str = "") -> str:
        for _ in _acts(context, name, effect, stop):
            await asyncio.sleep(0.01)
        return "done"

    def child(context: ToolContext, stop: str = "") -> str:
        folder = context.working_dir
        given = [str(folder), name, effect, context.idempotency_key, stop]
        subprocess.run([sys.executable, "-S", str(folder / "acting.py"), *given], check=True)
        return "done"

    run = {"sync": sync, "async": on_the_loop, "child": child}[way]
    run.__doc__ = "Do it."
    if effect == "verified":
        return tool(name=name, effect="once", verify=_verify)(run)
    return tool(name=name, effect=effect)(run)  # type: ignore[call-overload, no-any-return]


globals().update(
    {
        f"{effect}_{way}": _made(effect, way)
        for effect in EFFECTS
        for way in ("sync", "async", "child")
    }
)
