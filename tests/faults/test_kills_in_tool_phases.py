"""SIGKILL of the worker in each phase of a tool call, for each effect and each way to run one.

One turn calls all of them in one step, and the worker is killed once all have come to their phases.
What they did is read from a log that they write themselves, outside of any store: it must be
what the effect promises.
"""

import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp_servers import table
from systems import Plan, StartSystem, System, final_text, until

from everturn.messages import ToolMessage
from everturn_activities.tools import UNKNOWN_OUTCOME

HERE = Path(__file__).parent
EFFECTS = ("pure", "idempotent", "keyed", "once", "verified")
WAYS = ("sync", "async", "child", "mcp")
BEFORE_INTENT, AFTER_RESULT = "before the intent", "after the result"
INSIDE = ("before the effect", "midst", "after the effect")

CUT_OFF = "was cut off before it had any effect, and was not run again"


@dataclass(frozen=True)
class AllAtOnce(Plan):
    """A turn whose first reply calls every tool once for each of `stops`, where it waits."""

    stops: tuple[str, ...] = ("",)

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        # A server has no probe that we could ask.
        return [
            (stop, effect, way)
            for stop in self.stops
            for effect in EFFECTS
            for way in WAYS
            if (effect, way) != ("verified", "mcp")
        ]

    def replies(self, session: str) -> list[dict[str, Any]]:
        calls = [
            {"name": named(effect, way), "arguments": {"stop": stop}}
            for stop, effect, way in self.calls
        ]
        return [
            {"text": "I do all of it.", "calls": calls},
            {"text": final_text(session), "calls": []},
        ]


def named(effect: str, way: str) -> str:
    """How the model calls the tool."""
    return f"mcp_phased_{effect}" if way == "mcp" else f"{effect}_{way}"


@dataclass(frozen=True)
class Did:
    """How often a call began and had its effect, and what the model was told of it."""

    began: int
    effects: int
    text: str
    failed: bool


async def began(start_system: StartSystem, plan: AllAtOnce, placement: str) -> System:
    """A system with all but its worker."""
    system = await start_system({"all": plan}, placement, parts=("model", "api"))
    command = [sys.executable, str(HERE / "phased_server.py"), str(system.workspace)]
    effects = {effect: effect for effect in EFFECTS if effect != "verified"}
    settings = table("phased", command, effects=effects)
    (system.workspace / "everturn.toml").write_text(settings)
    shutil.copy(HERE / "acting.py", system.workspace)
    shutil.copy(HERE / "phased_tools.py", system.workspace / "tools")
    return system


async def taken_over(system: System) -> list[tuple[str, str, str, Did]]:
    """What became of each call, once another worker has ended the turn."""
    (system.gates / "go").touch()
    # What a killed worker's children still do is done before anything is run again.
    children = {line["pid"] for line in acts(system) if line["tool"].endswith("child")}
    await until(lambda: not any(is_alive(pid) for pid in children))
    await system.restart("worker")
    (turn,) = system.watched
    await turn.finished()
    page = await system.client.messages(turn.name)
    (told,) = (v.message for v in page.messages if isinstance(v.message, ToolMessage))
    counts = Counter((line["tool"], line["stop"], line["what"]) for line in acts(system))
    plan = system.plans["all"]
    assert isinstance(plan, AllAtOnce)
    found = []
    for (stop, effect, way), result in zip(plan.calls, told.results, strict=True):
        assert result.name == named(effect, way)
        times = (counts[f"{effect}_{way}", stop, what] for what in ("began", "effect"))
        text = result.text
        if text.startswith("[Data "):
            # What a server says is framed.
            text = "\n".join(text.splitlines()[1:-1])
        found.append((stop, effect, way, Did(*times, text, result.failed)))
    return found


def acts(system: System) -> list[dict[str, Any]]:
    log = system.workspace / "acts.log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kept_inside(stop: str, effect: str, way: str, what: Did) -> bool:
    """Whether a call kept its effect's promise that was killed while it ran."""
    again, once = what.began == 2, what.began == 1
    # A child outlives its worker, and goes on when the gate opens.
    had = 1 if way == "child" or stop == "after the effect" else 0
    match effect:
        case "pure" | "idempotent":
            return again and what.effects == had + 1 and is_done(what)
        case "keyed":
            return again and what.effects == 1 and is_done(what)
        case "once":
            unknown = what.failed and what.text == UNKNOWN_OUTCOME
            return once and what.effects == had and unknown
        case _ if had:
            return once and what.effects == 1 and (what.text, what.failed) == ("verified", False)
        case _:
            return once and what.effects == 0 and what.failed and CUT_OFF in what.text


def is_done(what: Did) -> bool:
    return (what.text, what.failed) == ("done", False)


def broken(found: list[tuple[str, str, str, Did]], kept: Callable[..., bool]) -> list[str]:
    return [
        f"{effect} {way}, killed {stop}: {what}"
        for stop, effect, way, what in found
        if not kept(stop, effect, way, what)
    ]


async def killed_inside(start_system: StartSystem, plan: AllAtOnce, placement: str) -> System:
    system = await began(start_system, plan, placement)
    await system.restart("worker")
    await system.send("all")

    def waiting() -> int:
        return sum(line["what"] == "waits" for line in acts(system))

    await until(lambda: waiting() == len(plan.calls), 60)
    await system.kill("worker")
    return system


@pytest.mark.parametrize("placement", ["queued", pytest.param("inline", marks=pytest.mark.long)])
async def test_U2_a_kill_in_the_midst_of_a_tool_leaves_what_its_effect_promises(
    start_system: StartSystem, placement: str
):
    """Before the effect (the intent is recorded), half through it, and after it."""
    system = await killed_inside(start_system, AllAtOnce(stops=INSIDE), placement)
    assert broken(await taken_over(system), kept_inside) == []


@pytest.mark.parametrize("phase", [BEFORE_INTENT, AFTER_RESULT])
async def test_U2_a_kill_before_an_intent_or_after_a_result_leaves_one_run_of_any_tool(
    start_system: StartSystem, phase: str
):
    plan = AllAtOnce()
    system = await began(start_system, plan, "queued")
    sound = system.worker.module
    system.worker.module = (str(HERE / "killing_phases.py"),)
    system.worker.environment["EVERTURN_TEST_PHASE"] = f"{phase}:{len(plan.calls)}"
    await system.restart("worker")
    await system.send("all")
    await system.worker.ended(60)
    system.worker.module = sound

    found = await taken_over(system)

    def once(stop: str, effect: str, way: str, what: Did) -> bool:
        return (what.began, what.effects) == (1, 1) and is_done(what)

    assert broken(found, once) == []
