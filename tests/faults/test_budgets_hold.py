"""A daily budget that a hundred sessions share, while their worker is killed.

The rule for calls that were cut off: an attempt whose worker died is spent at the input it
sent and what of its reply reached the event log, marked as estimated, once; what the
endpoint told of a whole reply is spent as told.
"""

import asyncio
import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from preloaded import Preloaded
from systems import System, until, until_async

from everturn.budgets import part, whole
from everturn.views import NewBudget
from everturn_activities import prices
from everturn_activities.gateways import Usage
from everturn_activities.gateways.scripted import place_of

MODEL = "openai/o1-pro"
"""Its price is high enough for short replies to spend a dollar."""
REPLY = " ".join(["word"] * 30)


def prompt(session: str) -> str:
    return f"Count for {session}."


def cost(usage: dict[str, int]) -> int:
    told = Usage(usage["prompt_tokens"], usage["completion_tokens"])
    usd = prices.cost_usd(MODEL, told)
    assert usd is not None
    return whole("usd", usd)


def spending(folder: Path, temporal: Path, preloaded: Preloaded, placement: str) -> System:
    # All call at once, so that the kill meets calls under way.
    limits = {"EVERTURN_PROVIDER_LIMITS": '{"*": {"careful": false}}'}
    system = System(folder, temporal, preloaded, {}, placement, limits)
    script = {"replies": [{"text": REPLY, "token_ms": 20}]}
    (system.folder / "script.json").write_text(json.dumps(script))
    (system.workspace / "agents").mkdir()
    (system.workspace / "agents" / "default.md").write_text(
        f"---\nmodel: {MODEL}\ntools: [add]\ntokens_max: 60\n---\nCount.\n"
    )
    for program in system.programs:
        program.environment["EVERTURN_MODEL"] = MODEL
    return system


def entries(system: System) -> list[Any]:
    with sqlite3.connect(system.home / "everturn.db") as connection:
        connection.row_factory = sqlite3.Row
        query = "SELECT e.*, s.id AS session FROM entries e JOIN sessions s ON s.sid = e.sid"
        return connection.execute(query).fetchall()


@pytest.mark.parametrize(
    ("sessions", "usd"), [(12, 0.15), pytest.param(100, 1.0, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("placement", ["inline", pytest.param("queued", marks=pytest.mark.long)])
async def test_sessions_never_pass_their_daily_budget_and_a_kill_leaves_the_ledger_true(
    tmp_path: Path, temporal: Path, preloaded: Preloaded, sessions: int, usd: float, placement: str
) -> None:
    system = spending(tmp_path, temporal, preloaded, placement)
    try:
        await system.start()
        await system.client.put_budget(NewBudget(scope="day", usd=usd))
        names = [f"s{number}" for number in range(sessions)]
        for name in names:
            await system.client.create_session(name, workspace=str(system.workspace))
        seen: list[float] = []
        watching = asyncio.create_task(watch_budget(system, seen))
        await asyncio.gather(
            *(system.client.send(name, prompt(name), id=f"to-{name}") for name in names)
        )
        await until(lambda: len(lines(system, "completed")) >= sessions // 8)
        await system.kill("worker")
        await system.restart("worker")
        await until_async(lambda: all_idle(system, sessions), 240)
        watching.cancel()

        assert max(seen) <= usd
        await check_ledger(system, names, usd)
    finally:
        await system.end()


async def watch_budget(system: System, seen: list[float]) -> None:
    while True:
        [day] = await system.client.budgets()
        seen.append(round(day.spent.usd + day.reserved.usd, 9))
        await asyncio.sleep(0.05)


async def all_idle(system: System, sessions: int) -> bool:
    found = (await system.client.sessions(200)).sessions
    return [view.status for view in found] == ["idle"] * sessions


def lines(system: System, event: str) -> list[dict[str, Any]]:
    return [line for line in system.model_calls() if line["event"] == event]


async def check_ledger(system: System, names: list[str], usd: float) -> None:
    """The ledger against the endpoint's own log, and against what users are told."""
    made = entries(system)
    received = Counter(line["key"] for line in lines(system, "received"))
    told = {line["key"]: line["usage"] for line in lines(system, "completed")}
    outcomes: Counter[str] = Counter()
    for name in names:
        [turn] = await system.client.turns(name)
        key = place_of([{"role": "user", "content": prompt(name)}]).key
        mine = [entry for entry in made if entry["session"] == name]
        settled = [entry for entry in mine if entry["state"] == "settled"]
        lost = [entry for entry in mine if entry["state"] == "lost"]
        assert len(settled) + len(lost) == len(mine), [entry["state"] for entry in mine]
        # Each request has an attempt of its own: none is dropped, and none counted twice.
        assert received[key] <= len(mine)
        assert {entry["attempt"] for entry in mine} == set(range(1, len(mine) + 1))
        assert len(settled) == (turn.outcome == "completed")
        for entry in settled:
            assert entry["usd"] == cost(told[key])
            assert entry["estimated"] == 0
        for entry in lost:
            usage = Usage(entry["input_tokens"], entry["output_tokens"])
            assert entry["usd"] == whole("usd", prices.cost_usd(MODEL, usage) or 0)
            assert entry["estimated"] == 1
            assert entry["output_tokens"] <= len(REPLY.split()) + 10
        outcomes[str(turn.outcome)] += 1
    assert set(outcomes) == {"completed", "budget_exceeded"}, outcomes
    [day] = await system.client.budgets()
    [row] = await system.client.usage("day")
    spent = sum(entry["usd"] for entry in made)
    assert day.spent.usd == row.cost_usd == part("usd", spent) <= usd
    assert day.reserved.usd == 0
    assert row.model_calls == outcomes["completed"]
    assert any(entry["state"] == "lost" for entry in made)
    # What is left is less than one more call was reserved.
    assert usd - day.spent.usd < max(entry["reserved_usd"] for entry in made) / 1e12
