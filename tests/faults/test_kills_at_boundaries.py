"""SIGKILL where one step ends and the next begins: one turn that loses a process at each."""

import pytest
from systems import Plan, StartSystem, System, Watched

PLAN = Plan(held=frozenset({1, 2, 3}), gated=frozenset({"charged", "slow"}))
BOUNDARIES = (
    # What the turn waits for until it is released, what is then seen, and in which step.
    (None, "turn_started", 0),
    ("order.1", "step_finished", 1),
    ("order.charged", "tool_finished", 1),
    ("order.slow", "step_started", 2),
    ("order.2", "step_finished", 2),
    (None, "step_started", 3),
    ("order.3", "turn_finished", 0),
)


async def killed_at_each(system: System, victim: str) -> Watched:
    turn = await system.send("order")
    for gate, kind, step in BOUNDARIES:
        if gate is not None:
            await system.release(gate)
        await turn.saw(kind, step=step)
        await system.kill(victim)
        await system.restart(victim)
    return turn


@pytest.mark.parametrize(
    ("victim", "placement"),
    [
        # The others are killed inside of calls, and inline a worker at its every commit.
        ("temporal", "inline"),
        ("worker", "queued"),
        pytest.param("api", "queued", marks=pytest.mark.long),
        pytest.param("api", "inline", marks=pytest.mark.long),
        pytest.param("temporal", "queued", marks=pytest.mark.long),
        pytest.param("worker", "inline", marks=pytest.mark.long),
    ],
)
async def test_a_turn_survives_a_kill_at_each_of_its_boundaries(
    start_system: StartSystem, victim: str, placement: str
):
    system = await start_system({"order": PLAN}, placement)

    turn = await killed_at_each(system, victim)

    evidence = await system.evidence(turn)
    assert evidence.problems() == []
    # A reply that was on its way when its worker died is not paid for, and asked again.
    assert victim == "worker" or evidence.completed() == [1, 1, 1]
