"""Turns, models and tools worked by processes of their own."""

import asyncio

from systems import Plan, Program, StartSystem, System

SLOW = Plan(steps=(("slow", "add"), ("charge",), ()), gated=frozenset({"slow"}))


async def workers(system: System, *roles: str) -> list[Program]:
    """A worker for each of `roles`, ready to take work."""
    made = [
        system.program(
            f"worker-{number}-{role}",
            system.worker.module,
            {**system.worker.environment, "EVERTURN_ROLES": role},
        )
        for number, role in enumerate(roles, start=len(system.programs))
    ]
    await asyncio.gather(*(program.launch() for program in made))
    await asyncio.gather(*(program.ready() for program in made))
    return made


async def test_a_turn_outlives_the_process_of_its_tools(start_system: StartSystem):
    system = await start_system({"slow": SLOW}, "queued", ("model", "api"))
    _, _, tools = await workers(system, "turns", "models", "tools")
    turn = await system.send("slow")
    await system.waits_in_tool("slow.slow")

    await tools.kill()
    await system.release("slow.slow")
    await workers(system, "tools")

    evidence = await system.evidence(turn)
    assert evidence.problems() == []
    assert not evidence.unknown()
