"""Rows B31, B32, B33, E13, E17, E24, R23, R24: agents that hand work to others."""

from typing import Any

from harness import Bench, calls, says
from plays import Play, play, system_of, tools_of

from everturn.messages import ToolMessage, ToolResult


def hand(tool: str, *tasks: str, **more: Any) -> dict[str, Any]:
    """A reply that hands each task on by the tool of that name."""
    return {"calls": [{"name": tool, "arguments": {"task": task, **more}} for task in tasks]}


def request_of(played: Play, task: str) -> dict[str, Any]:
    """The first request whose last message is `task`."""
    return next(
        request for request in played.requests if request["messages"][-1]["content"] == task
    )


async def results(played: Play) -> list[ToolResult]:
    found = await played.made.transcript(played.key)
    told = [one.results for one in found if isinstance(one, ToolMessage)]
    return [result for step in told for result in step]


KRILL = {
    "context/SOUL.md": "A soul.",
    "context/skills/tidy/SKILL.md": "---\nname: tidy\ndescription: Tidies up.\n---\nTidy.",
    "agents/default.md": "You are Krill.",
}


async def test_R23_a_subagent_is_told_a_few_rules_and_nothing_of_its_parents_prompt(made: Bench):
    """R24: it has the parent's tools without those that spawn and schedule."""
    script = {"^Remember": [calls("memory_save", text="Tea."), says("Kept.")], "^Sub": [says("D.")]}

    played = await play(
        made,
        "Remember tea.",
        "Now hand it on.",
        replies=[hand("spawn", "Sub task."), says("Done.")],
        by_last_user=script,
        files=KRILL,
        profile="krill",
    )

    parent, child = request_of(played, "Now hand it on."), request_of(played, "Sub task.")
    headings = ("## Workspace Bootstrap Docs", "## Available Skills", "## Session Memory")
    assert all(heading in system_of(parent) for heading in headings)
    assert not any(heading in system_of(child) for heading in headings)
    assert "## " not in system_of(child)
    # C16: one of the rules is that results are not to be trusted.
    assert "untrusted" in system_of(child)
    assert set(tools_of(parent)) - set(tools_of(child)) == {"spawn", "cron"}


async def test_E13_agents_of_three_levels_delegate_and_the_fourth_cannot(made: Bench):
    """E17: each is told its level. E24: each sees the last messages of the one above it."""
    script = {
        f"^Level {n}": [hand("call_subordinate", f"Level {n + 1}."), says(f"Done {n}.")]
        for n in (1, 2)
    }
    script["^Level 3"] = [says("Done 3.")]

    played = await play(
        made,
        "Earlier.",
        "Begin.",
        replies=[says("Yes."), says("Never.")],
        by_last_user={
            "^Begin": [hand("call_subordinate", "Level 1."), says("All done.")],
            **script,
        },
        profile="eggent",
    )

    primary = request_of(played, "Begin.")
    levels = [request_of(played, f"Level {n}.") for n in (1, 2, 3)]
    assert "call_subordinate" in tools_of(primary)
    assert ["call_subordinate" in tools_of(one) for one in levels] == [True, True, False]
    assert "You are Agent 0" in system_of(primary)
    for n, request in enumerate(levels, 1):
        assert f"You are a subordinate agent (level {n})" in system_of(request)
    said = [one["content"] for one in levels[0]["messages"] if one["role"] != "system"]
    assert said == ["Earlier.", "Yes.", "Begin.", "Level 1."]


MANAGER = """---
executors: {managed: true, model: hosted_vllm/cheap, steps_max: 7, concurrent_max: 2}
---
You are BoxAgnts."""


async def test_B31_a_manager_is_told_so_with_its_limits_and_may_only_delegate(made: Bench):
    """B32: what it tries to do itself is refused; its executors, of a cheaper model, do it.
    B33: as many as it is told work at once, and none sees what was said above."""
    write = calls("write", path="a.txt", content="x")

    played = await play(
        made,
        "Write five files.",
        replies=[write, hand("Agent", *(f"File {n}." for n in range(5))), says("All written.")],
        by_last_user={"^File": [write, says("Written.")]},
        files={"agents/default.md": MANAGER},
        profile="boxagnts",
    )

    manager, executor = played.requests[0], request_of(played, "File 0.")
    told = system_of(manager)
    assert "## Managed Agent Mode" in told
    assert "You are the MANAGER" in told
    for line in ("executor_model: hosted_vllm/cheap", "max_turns: 7", "max_concurrent: 2"):
        assert f"- {line}" in told
    assert [told.count(f"\n{n}. ") for n in range(1, 6)] == [1, 1, 1, 1, 0]
    assert tools_of(manager) == ["Agent"]
    refused = (await results(played))[0]
    assert refused.failed
    assert refused.text.startswith("Agent default may not call write: it manages executors")
    assert played.events[-1].body["text"] == "All written."

    assert "Managed Agent Mode" not in system_of(executor)
    assert (manager["model"], executor["model"]) == ("scripted", "cheap")
    assert {"write", "edit", "bash"} <= set(tools_of(executor))
    assert "Agent" not in tools_of(executor)
    assert "five files" not in str(executor["messages"])
    assert (made.workspace / "a.txt").read_text() == "x"

    working = most = 0
    for event in played.events:
        working += {"executor_started": 1, "executor_finished": -1}.get(event.type, 0)
        most = max(most, working)
    assert most == 2
