"""A fork of an executor is held to its rules, and reports to nobody."""

from dataclasses import replace

from stories import Story
from test_forks import fork
from test_rewinds import delegates, ends

from everturn.budgets import Budget
from everturn.session import SessionKey


async def test_a_fork_of_an_executor_works_by_its_rules_for_nobody(story: Story) -> None:
    await story.store.put_budget("default", "session", "s", Budget(steps=5))
    parent = await delegates(story, "run-1", "c")
    child = replace(story, key=SessionKey("default", "c"))
    turn = await child.begun("run-c")
    await child.step(turn)
    await ends(child, turn, "run-c")

    made = await fork(child)
    await made.send("and else?")
    assignment = await story.store.assignment(made.key)
    turn = await made.begun("run-f")
    await made.step(turn)
    await ends(made, turn, "run-f")

    assert assignment is not None
    assert assignment.rules is not None
    assert assignment.rules.level == 1
    assert (await story.store.session(made.key)).parent is None
    assert len(await story.told("executor_finished")) == 1
    # It draws on no budget of the parent's: that has paid for one step of its executor's.
    (of_parent,) = [b for b in await story.store.budgets("default") if b.session == "s"]
    assert of_parent.spent.steps == 2
    assert [one.key.session for one in await story.store.forks.executor_turns(story.key)] == ["c"]
    assert parent.turn == 1
