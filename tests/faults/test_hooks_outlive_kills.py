"""Hooks beside a call whose worker is killed in each of them: they run again, the call does not."""

from pathlib import Path

from systems import SHORT, Plan, StartSystem, until

from everturn.messages import ToolMessage

WAITS = "echo {0} >> hooks.log; until [ -e gates/{0} ]; do sleep 0.05; done"
SETTINGS = f"""
[[hooks.pre_tool_use]]
matcher = "charge"
command = "{WAITS.format("before")}"

[[hooks.pre_tool_use]]
matcher = "*"
command = "echo second >> hooks.log"

[[hooks.post_tool_use]]
matcher = "charge"
command = "{WAITS.format("after")}; echo noted"

[[hooks.turn_end]]
command = "{WAITS.format("end")}"
"""


def lines(workspace: Path) -> list[str]:
    log = workspace / "hooks.log"
    return log.read_text().split() if log.exists() else []


async def test_a_worker_killed_in_a_hook_repeats_that_hook_and_nothing_that_had_ended(
    start_system: StartSystem,
) -> None:
    system = await start_system({"hooked": Plan(steps=SHORT)})
    (system.workspace / "everturn.toml").write_text(SETTINGS)
    turn = await system.send("hooked")

    await until(lambda: lines(system.workspace) == ["before"])
    await system.kill("worker")
    await system.restart("worker")
    await until(lambda: lines(system.workspace) == ["before"] * 2)
    assert system.effects() == []
    await system.release("before")

    await until(lambda: lines(system.workspace)[-1] == "after")
    await system.kill("worker")
    await system.restart("worker")
    await until(lambda: lines(system.workspace)[-2:] == ["after"] * 2)
    await system.release("after")
    evidence = await system.evidence(turn)

    # Once for each of the two calls.
    assert lines(system.workspace)[:6] == ["before"] * 2 + ["second"] * 2 + ["after"] * 2
    assert evidence.problems() == []
    hooks = [event for event in evidence.events if event.type == "hook_finished"]
    assert [(e.body["moment"], e.body["name"]) for e in hooks] == [
        ("PreToolUse", "charge"),
        ("PreToolUse", "charge"),
        ("PreToolUse", "add"),
        ("PostToolUse", "charge"),
    ]
    (results,) = [m for _, m in evidence.messages if isinstance(m, ToolMessage)]
    assert [result.text for result in results.results] == [
        "charged\n[Note of a hook, and not of the tool:]\nnoted",
        "3",
    ]

    await until(lambda: lines(system.workspace)[-1] == "end")
    for name in ("worker", "temporal"):
        await system.kill(name)
    for name in ("temporal", "worker"):
        await system.restart(name)
    await until(lambda: lines(system.workspace)[-2:] == ["end"] * 2)
    await system.release("end")
    async for event in system.client.events("hooked"):
        if event.type == "hook_finished" and event.body["moment"] == "TurnEnd":
            break
    assert lines(system.workspace)[6:] == ["end"] * 2
