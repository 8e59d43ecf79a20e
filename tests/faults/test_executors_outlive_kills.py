"""A fan-out whose worker or server is killed: every task is worked and reported once."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from systems import SHORT, Plan, StartSystem, final_text, prompt

from everturn_activities.gateways.scripted import place_of

AGENT = "---\nexecutors: {depth_max: 1, concurrent_max: 4}\n---\nBe brief."
CHILDREN = {
    "in-stream": Plan(held=frozenset({1}), steps=SHORT),
    "before-effect": Plan(gated=frozenset({"charge"}), steps=SHORT),
    "after-effect": Plan(gated=frozenset({"charged"}), steps=SHORT),
    "last-stream": Plan(held=frozenset({2}), steps=SHORT),
    # These wait for a place meanwhile.
    "later": Plan(steps=SHORT),
    "latest": Plan(steps=SHORT),
}


@dataclass(frozen=True)
class Fan(Plan):
    """A turn that hands on a task for each of `children`, in one reply."""

    children: tuple[str, ...] = ()

    def replies(self, session: str) -> list[dict[str, Any]]:
        tasks = [
            {"name": "delegate", "arguments": {"task": prompt(child)}} for child in self.children
        ]
        return [{"text": "I hand it on.", "calls": tasks}, {"text": final_text(session)}]


@pytest.mark.parametrize("victim", ["worker", "temporal"])
async def test_a_killed_fan_out_works_each_task_once_and_reports_each_once(
    start_system: StartSystem, victim: str
):
    system = await start_system({"fan": Fan(children=tuple(CHILDREN)), **CHILDREN})
    (system.workspace / "agents").mkdir()
    (system.workspace / "agents" / "default.md").write_text(AGENT)
    turn = await system.send("fan")
    await system.held("in-stream.1", "last-stream.2")
    await system.waits_in_tool("before-effect.charge", "after-effect.charged")

    await system.kill(victim)
    for name, plan in CHILDREN.items():
        await system.release(*(f"{name}.{place}" for place in plan.held | plan.gated))
    await system.restart(victim)

    events = await turn.finished()
    assert events[-1].body["outcome"] == "completed"
    told = Counter(event.type for event in events)
    assert told["executor_started"] == told["executor_finished"] == len(CHILDREN)
    ended = [event.body for event in events if event.type == "tool_finished"]
    reports = {body["index"]: body["text"] for body in ended}
    assert len(ended) == len(CHILDREN)
    for index, name in enumerate(CHILDREN):
        assert final_text(name) in reports[index]

    executors = (await system.client.sessions(parent="fan")).sessions
    assert [view.turn for view in executors] == [1] * len(CHILDREN)
    effects = Counter(line["session"] for line in system.effects() if line["what"] == "effect")
    assert max(effects.values()) == 1
    # The one that was killed before its effect has an unknown outcome, where it was killed.
    assert sum(effects.values()) >= len(CHILDREN) - (victim == "worker")
    # Streams were held and tools gated, so no reply was cut off after its last byte.
    asked: list[dict[str, Any]] = [{"role": "user", "content": prompt("fan")}]
    keys = [place_of(asked).key, place_of([*asked, {"role": "assistant"}]).key]
    completed = Counter(
        line["key"] for line in system.model_calls() if line["event"] == "completed"
    )
    assert [completed[key] for key in keys] == [1, 1]
    assert max(completed.values()) == 1
