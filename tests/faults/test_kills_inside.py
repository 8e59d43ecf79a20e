"""SIGKILL while turns stand inside every kind of call: all end as if nothing had been."""

import pytest
from systems import Plan, StartSystem, System, Watched

PLANS = {
    "first-stream": Plan(held=frozenset({1})),
    "before-effect": Plan(gated=frozenset({"charge"})),
    "after-effect": Plan(gated=frozenset({"charged"})),
    "slow-tool": Plan(gated=frozenset({"slow"})),
    "second-stream": Plan(held=frozenset({2})),
    "last-stream": Plan(held=frozenset({3})),
}


async def inside_every_call(system: System) -> dict[str, Watched]:
    """A turn in the middle of each kind of call."""
    turns = {name: await system.send(name) for name in PLANS}
    await system.held("first-stream.1", "second-stream.2", "last-stream.3")
    await system.waits_in_tool("before-effect.charge", "after-effect.charged", "slow-tool.slow")
    return turns


async def release_all(system: System) -> None:
    for name, plan in PLANS.items():
        await system.release(*(f"{name}.{place}" for place in plan.held | plan.gated))


@pytest.mark.parametrize(
    ("victim", "placement"),
    [
        # The other three are killed between steps.
        ("api", "inline"),
        ("temporal", "queued"),
        ("worker", "inline"),
        pytest.param("api", "queued", marks=pytest.mark.long),
        pytest.param("temporal", "inline", marks=pytest.mark.long),
        pytest.param("worker", "queued", marks=pytest.mark.long),
    ],
)
async def test_turns_survive_a_kill_inside_every_call(
    start_system: StartSystem, victim: str, placement: str
):
    system = await start_system(PLANS, placement)
    turns = await inside_every_call(system)

    await system.kill(victim)
    await release_all(system)
    await system.restart(victim)

    problems = []
    for turn in turns.values():
        evidence = await system.evidence(turn)
        problems += evidence.problems()
        # Streams were held and tools gated: no reply was cut off after its last byte.
        if evidence.completed() != [1, 1, 1]:
            problems.append(f"{turn.name}: replies completed {evidence.completed()} times")
    assert problems == []
    assert system.socket_owners() == {system.worker.pid, system.api.pid}
