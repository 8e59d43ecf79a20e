"""A swarm whose workers and server are killed again and again: one result an item."""

import asyncio
import random
import sqlite3
from collections import defaultdict

import pytest
from systems import SHORT, Plan, StartSystem, System, final_text, prompt

from everturn.session import SessionKey
from everturn.swarm_views import ItemView, SwarmView
from everturn.swarms import SwarmSpec
from everturn_activities.gateways.scripted import place_of
from everturn_activities.store import SessionSettings
from everturn_activities.store.sql_swarms import SqlSwarms
from everturn_workers.runtime import open_runtime
from everturn_workers.settings import Settings
from everturn_workers.temporal import TemporalWaker, connect

KEY = SessionKey("default", "w")
WIDTH = 15
SAID = f"{prompt('item')} Number {{n}}."


@pytest.mark.parametrize(
    ("count", "kills"),
    [
        pytest.param(40, ["worker", "temporal"], id="sample"),
        pytest.param(2_000, ["worker", "temporal"] * 4, id="whole", marks=pytest.mark.long),
    ],
)
async def test_a_killed_swarm_has_one_result_an_item_and_pays_once(
    start_system: StartSystem, count: int, kills: list[str]
):
    system = await start_system({"item": Plan(token_ms=1, steps=SHORT)})
    assert system.temporal is not None
    settings = Settings(home=system.home, temporal_address=system.temporal.address)
    dice = random.Random(count)
    async with open_runtime(settings) as runtime:
        folder = str(system.workspace)
        items = [{"n": n, "id": f"i{n}"} for n in range(1, count + 1)]
        spec = SwarmSpec(prompt=SAID, width=WIDTH)
        swarms = runtime.swarms
        await swarms.create(KEY, spec, SessionSettings(folder, folder), items, True)
        await TemporalWaker(await connect(settings), settings).wake_swarm(KEY)
        for number, victim in enumerate(kills):
            share = (number + dice.random()) / len(kills)
            await settled(swarms, round(share * count))
            await system.kill(victim)
            await system.restart(victim)
        view = await settled(swarms, count)
        ended = await swarms.items(KEY, 0, count, None)

    assert (view.state, view.counts.done) == ("done", count)
    assert {(item.text, item.attempts, item.steps) for item in ended} == {
        (final_text("item"), 1, 2)
    }
    assert sorted(item.settled or 0 for item in ended) == list(range(1, count + 1))
    charged = [line["session"] for line in system.effects() if line["what"] == "effect"]
    assert len(charged) == len(set(charged))
    # One that was killed between its intent and its effect has an unknown outcome.
    assert len(charged) >= count - WIDTH * kills.count("worker")
    assert asked_again(system, ended) == []


async def settled(swarms: SqlSwarms, count: int) -> SwarmView:
    """The swarm once so many of its items have ended; done once all have."""
    async with asyncio.timeout(600):
        while True:
            view = await swarms.swarm(KEY)
            if view.counts.done >= count and (count < view.items or view.state == "done"):
                return view
            await asyncio.sleep(0.05)


def asked_again(system: System, ended: list[ItemView]) -> list[str]:
    """The steps whose model was asked after their reply was journaled."""
    received = defaultdict(list)
    for line in system.model_calls():
        if line["event"] == "received":
            received[line["key"]].append(line["time"])
    with sqlite3.connect(system.home / "everturn.db") as store:
        done = {
            (session, step): time
            for session, step, time in store.execute(
                "SELECT id, step, time FROM events JOIN sessions USING (sid)"
                " WHERE type = 'step_finished'"
            )
        }
    late = []
    for item in ended:
        said: list[dict[str, object]] = [{"role": "user", "content": SAID.format(n=item.n)}]
        for step in (1, 2):
            times = received[place_of(said).key]
            assert times, f"{item.session} was never asked for step {step}"
            if max(times) > done[(item.session, step)]:
                late.append(f"{item.session} step {step}")
            said.append({"role": "assistant"})
    return late
