"""Workers with homes of their own, as on machines of their own, on one store."""

import json
from pathlib import Path

import pytest
from systems import Plan, Program, StartSystem, System, prompt, until

from everturn_workers.home import home_id, prepare

SLOW = Plan(steps=(("slow",), ()), gated=frozenset({"slow"}))
CHARGE = Plan(steps=(("charge",), ()), gated=frozenset({"charged"}))


async def elsewhere(system: System, **variables: str) -> Program:
    """A worker on another home, with the same store."""
    home = prepare(system.folder / "homes" / "other")
    store = f"sqlite:///{system.home / 'everturn.db'}"
    environment = {
        **system.worker.environment,
        "EVERTURN_HOME": str(home),
        "EVERTURN_DATABASE_URL": store,
        **variables,
    }
    program = system.program("worker-elsewhere", system.worker.module, environment)
    await program.launch()
    await program.ready()
    return program


def attempts(system: System, tool: str) -> set[int]:
    return {line["attempt"] for line in system.effects() if line["tool"] == tool}


@pytest.mark.long
async def test_calls_of_a_worker_that_was_killed_on_another_machine_go_on_by_its_lease(
    start_system: StartSystem,
):
    system = await start_system({"slow": SLOW, "charge": CHARGE}, "queued")
    turns = [await system.send("slow"), await system.send("charge")]
    await system.waits_in_tool("slow.slow", "charge.charged")
    other = await elsewhere(system)

    await system.worker.kill()

    await until(lambda: attempts(system, "slow") == {1, 2})
    await system.release("slow.slow", "charge.charged")
    for turn in turns:
        evidence = await system.evidence(turn)
        assert evidence.problems() == []
    # Not once the call's own time is up, which is minutes.
    assert evidence.unknown()
    # A call may see that its worker is dead before the lease is looked at.
    await until(lambda: any("workers that are gone" in line for line in other.log.lines()))


@pytest.mark.long
async def test_a_turn_whose_home_is_killed_says_so_and_goes_on_there_once_it_is_back(
    start_system: StartSystem,
):
    system = await start_system({"slow": SLOW}, "queued", parts=("model", "api"))
    system.worker.environment |= {
        "EVERTURN_DATABASE_URL": f"sqlite:///{system.home / 'everturn.db'}",
        "EVERTURN_ROLES": "turns,models",
    }
    other = await elsewhere(system, EVERTURN_ROLES="tools")
    await system.restart("worker")
    await system.client.create_session("slow", workspace=str(system.workspace), folder="copy")
    await system.client.send("slow", prompt("slow"), id="to-slow")
    turn = system.watch("slow")

    def began() -> list[int]:
        logs = [log.read_text().splitlines() for log in folders(system)]
        lines = [json.loads(line) for log in logs for line in log]
        return [line["attempt"] for line in lines if line["what"] == "began"]

    await until(lambda: began() == [1])
    await other.kill()
    told = await turn.saw("status")
    assert f"the home with the id {home_id(system.folder / 'homes' / 'other')}" in told.body["text"]

    await other.launch()
    await other.ready()
    await until(lambda: began() == [1, 2])
    (log,) = folders(system)
    (log.parent / "gates" / "slow.slow").touch()
    assert (await turn.finished())[-1].body["outcome"] == "completed"


def folders(system: System) -> list[Path]:
    """What calls have written in own folders, which only the other home has."""
    found = [*system.folder.glob("homes/other/folders/*/*/effects.log")]
    assert not (system.home / "folders").exists()
    return found
