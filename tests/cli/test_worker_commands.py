"""Workers as operators see them, on the command line and over HTTP."""

import json
import re

import sqlalchemy as sa
from by_hand import Runtime, Served
from commands import Commands

from everturn.client import Client
from everturn_activities.store.schema import workers
from everturn_activities.store.workers import LEASE_SECONDS, Member, Work


async def a_fleet(runtime: Runtime) -> None:
    """One that works, one that drains, and one that was killed."""
    for instance, work in {
        "home-a": Work({"turns": 5, "inline": 9}, {"begin_step": 2, "fire": 1}),
        "home-b": Work({"tools": 4}, {"run_tools": 1}, draining=True),
        "home-c": Work({"tools": 4}),
    }.items():
        roles = "turns" if "turns" in work.slots else "tools"
        member = Member(instance, "home", "a.example", roles, "everturn-0.1.0", "/data")
        await runtime.workers.renew(member, work)
    await runtime.database.write(
        lambda tx: tx.connection.execute(
            sa.update(workers)
            .where(workers.c.instance == "home-c")
            .values(renewed_at=tx.now - LEASE_SECONDS - 300)
        )
    )


async def test_workers_are_listed_with_what_they_take_and_do_and_who_is_gone(
    runtime: Runtime, commands: Commands
) -> None:
    await a_fleet(runtime)

    listed = await commands("workers")

    lines = [" ".join(line.split()) for line in listed.out.splitlines()]
    assert any(
        "home-a works a.example home /data turns 5 turns, 9 inline 2 begin_step, 1 fire" in line
        for line in lines
    ), listed.out
    assert any(
        "home-b drains a.example home /data tools 4 tools 1 run_tools" in line for line in lines
    )
    assert any(
        "home-c gone a.example" in line and re.search(r" 5 min \d+ s ago 0\.1\.0$", line)
        for line in lines
    ), listed.out


async def test_the_same_words_are_told_as_json_and_over_http(
    runtime: Runtime, served: Served, commands: Commands
) -> None:
    await a_fleet(runtime)

    listed = await commands("workers", "--json")
    async with Client(served.url) as client:
        views = await client.workers()

    rows = [json.loads(line) for line in listed.out.splitlines()]
    assert [row["state"] for row in rows] == ["works", "drains", "gone"]
    # The clock has gone on between the two answers.
    assert [row | {"seconds_since": 0} for row in rows] == [
        view.model_dump(mode="json") | {"seconds_since": 0} for view in views
    ]
    assert rows[0]["slots"] == {"turns": 5, "inline": 9}
    assert 310 <= rows[2]["seconds_since"] < 370
