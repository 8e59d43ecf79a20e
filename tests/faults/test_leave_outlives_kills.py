"""A call waits for a person's leave for as long as it takes, whatever is killed meanwhile."""

import asyncio
import sqlite3
from contextlib import closing

from systems import SHORT, Plan, StartSystem, System

from everturn.approvals import ToolVerdict

AGENT = "---\napprovals: {tools: [charge], expires_seconds: 8640000}\n---\nBe brief."
MONTH = 30 * 24 * 3600


def a_month_passes(system: System) -> None:
    """Everything that the store remembers of time lies a month further back."""
    moved = {
        "approvals": ("created_at", "expires_at"),
        "sessions": ("created_at", "updated_at", "wake_at"),
        "turns": ("started_at",),
        "steps": ("started_at", "ended_at"),
        "inbox": ("created_at",),
        "messages": ("created_at",),
        "events": ("time",),
    }
    with closing(sqlite3.connect(system.home / "everturn.db")) as store, store:
        for table, columns in moved.items():
            for column in columns:
                store.execute(f"UPDATE {table} SET {column} = {column} - {MONTH}")


async def test_leave_is_given_a_month_later_after_all_was_killed_and_one_of_two_verdicts_holds(
    start_system: StartSystem,
) -> None:
    system = await start_system({"asked": Plan(steps=SHORT)})
    (system.workspace / "agents").mkdir()
    (system.workspace / "agents" / "default.md").write_text(AGENT)
    turn = await system.send("asked")
    await turn.saw("approval_asked")

    for name in ("worker", "api", "temporal"):
        await system.kill(name)
    a_month_passes(system)
    for name in ("temporal", "api", "worker"):
        await system.restart(name)

    (asked,) = await system.client.approvals("asked")
    assert asked.tool == "charge"
    assert system.effects() == []
    yes = ToolVerdict(approval=1, verdict="approve", digest=asked.digest)
    no = ToolVerdict(approval=1, verdict="deny", reason="No.")
    said = await asyncio.gather(
        system.client.answer_approval("asked", yes), system.client.answer_approval("asked", no)
    )
    assert sorted(one.status for one in said) == ["accepted", "too_late"]
    approved = said[0].status == "accepted"
    (late,) = [one.note for one in said if one.status == "too_late"]
    assert late == f"Approval 1 was {'approved' if approved else 'denied'} before."

    events = await turn.finished()
    assert events[-1].body["outcome"] == "completed"
    assert [event.type for event in events].count("approval_asked") == 1
    effects = [line for line in system.effects() if line["what"] == "effect"]
    assert len(effects) == int(approved)
    assert [line["event"] for line in system.model_calls()].count("received") == 2


async def test_an_answer_is_given_a_month_later_after_all_was_killed(
    start_system: StartSystem,
) -> None:
    system = await start_system({"asking": Plan(steps=(("ask_user",), ()))})
    turn = await system.send("asking")
    assert (await turn.saw("approval_asked")).body["kind"] == "question"

    for name in ("worker", "api", "temporal"):
        await system.kill(name)
    a_month_passes(system)
    for name in ("temporal", "api", "worker"):
        await system.restart(name)

    (asked,) = await system.client.approvals("asking")
    assert (asked.question, asked.choices) == ("Which colour?", ())
    first = ToolVerdict(approval=1, verdict="answer", answer="Blue.")
    second = ToolVerdict(approval=1, verdict="answer", answer="Red.")
    assert (await system.client.answer_approval("asking", first)).status == "accepted"
    assert (await system.client.answer_approval("asking", second)).status == "too_late"

    events = await turn.finished()
    assert events[-1].body["outcome"] == "completed"
    (answered,) = [event for event in events if event.type == "tool_finished"]
    assert answered.body["text"] == "The user answers:\nBlue."
    assert [line["event"] for line in system.model_calls()].count("received") == 2
