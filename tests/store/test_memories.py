"""Facts are kept once, with where they come from, and few are put in place of many."""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from databases import Databases
from stories import SPEC, Story, anew, price
from temporalio.testing import ActivityEnvironment

from everturn.agents import AgentSpec
from everturn.budgets import Budget
from everturn.context.consolidation import Merged
from everturn.errors import Fenced, IdempotencyConflict, UsageError
from everturn.memory import FACTS_MAX, FactSource, MemoryPlace, MemoryRules
from everturn.session import Consolidate, SessionKey
from everturn_activities.consolidation import ConsolidationActivities
from everturn_activities.gateways import Usage
from everturn_activities.store import schema
from everturn_activities.store.consolidations import ATTEMPTS_MAX, ConsolidationStarted, Due
from everturn_activities.store.database import Database
from everturn_activities.store.sql_memories import SqlMemories

OURS = MemoryPlace("default", "session", "s")
SOURCE = FactSource(session="s", turn=1, step=1)
RULES = MemoryRules(scopes=("session",), consolidate_tokens=100)
FORGETFUL = SPEC.model_copy(update={"profile": SPEC.profile.model_copy(update={"memory": RULES})})
ASKED = Usage(input_tokens=50, output_tokens=5)


class Opened(SqlMemories):
    """With the database at hand, to look into its tables."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, lambda text: 10 * len(text.split()), price)
        self.database = database


@pytest.fixture
async def memories(story: Story, databases: Databases) -> AsyncIterator[Opened]:
    database = await databases.open(clock=story.clock)
    yield Opened(database)
    await database.close()


async def keep(memories: SqlMemories, *texts: str, at: MemoryPlace = OURS) -> None:
    for number, text in enumerate(texts):
        source = SOURCE.model_copy(update={"step": number + 1})
        await memories.save(at, text, f"key of {text}", source)


async def texts(memories: SqlMemories, *places: MemoryPlace) -> list[str]:
    return [fact.text for fact in await memories.facts(places or (OURS,))]


async def ended_turn(story: Story) -> None:
    await story.send()
    run = f"run-{len(await story.told())}"
    turn = await story.begun(run, spec=FORGETFUL)
    await story.step(turn)
    await story.finish(turn, run)


async def begun(
    memories: SqlMemories, worker: str = "worker-1"
) -> tuple[Due, ConsolidationStarted]:
    (memory,) = await memories.due(10)
    due = await memories.due_for(memory.id)
    assert due is not None
    caller = replace(anew(), worker=worker)
    started = await memories.begin(due, 100, "openai/test", caller)
    assert started is not None
    return due, started


async def test_E6_a_memory_is_seen_by_its_own_tenant_session_user_and_project_only(
    memories: Opened,
) -> None:
    others = [
        MemoryPlace("other", "session", "s"),
        MemoryPlace("default", "session", "s2"),
        MemoryPlace("default", "user", "s"),
        MemoryPlace("default", "project", "s"),
    ]
    for n, at in enumerate([OURS, *others]):
        await keep(memories, f"fact {n}", at=at)
    assert await texts(memories) == ["fact 0"]
    for n, at in enumerate(others, start=1):
        assert await texts(memories, at) == [f"fact {n}"]
    with pytest.raises(UsageError, match="no fact 2"):
        await memories.forget(others[0], 2)


async def test_a_fact_is_saved_once_for_each_key_and_each_text(memories: Opened) -> None:
    first = await memories.save(OURS, "tea", "k1", SOURCE)
    assert await memories.save(OURS, "tea", "k1", SOURCE) == first
    assert (await memories.save(OURS, "tea", "k2", None)).n == first.n
    with pytest.raises(IdempotencyConflict, match="another text"):
        await memories.save(OURS, "coffee", "k1", SOURCE)
    assert await texts(memories) == ["tea"]
    assert first.sources == (SOURCE,)


async def test_a_fact_that_is_forgotten_leaves_no_text_and_is_not_saved_again_by_a_rerun(
    memories: Opened,
) -> None:
    await keep(memories, "a secret", "tea")
    await memories.forget(OURS, 1)
    await memories.forget(OURS, 1)
    assert await texts(memories) == ["tea"]
    await keep(memories, "a secret")
    assert await texts(memories) == ["tea"]
    rows = await memories.database.read(lambda c: c.execute(sa.select(schema.facts.c.text)).all())
    assert sorted(row.text for row in rows) == ["", "tea"]


async def test_a_full_memory_says_what_to_do(memories: Opened) -> None:
    def fill(tx: object) -> None:
        tx.connection.execute(sa.update(schema.memories).values(facts=FACTS_MAX))  # type: ignore[attr-defined]

    await keep(memories, "one")
    await memories.database.write(fill)
    with pytest.raises(UsageError, match=r"has 1,000 facts, which is the limit; forget some"):
        await keep(memories, "two")


async def test_who_consolidates_knows_the_secrets_of_the_workspace_before_it_asks_for_leave(
    memories: Opened, story: Story
) -> None:
    class LearntError(Exception):
        pass

    def know(spec: AgentSpec) -> None:
        raise LearntError(spec.working_dir)

    await keep(memories, "one " * 20, "two " * 20)
    await ended_turn(story)
    (due,) = await memories.due(10)
    nothing: Any = None
    activities = ConsolidationActivities(
        story.store, memories, nothing, price, len, nothing, "worker", know
    )
    request = Consolidate("default", due.id)
    with pytest.raises(LearntError, match=re.escape(FORGETFUL.working_dir)):
        await ActivityEnvironment().run(activities.consolidate, request)


async def test_R17_a_memory_over_the_threshold_is_due_when_a_turn_ends(
    story: Story, memories: Opened
) -> None:
    await keep(memories, "one two three", "four five six")
    await ended_turn(story)
    assert await memories.due(10) == []
    await keep(memories, "seven eight nine ten eleven")
    assert await memories.due(10) == []
    await ended_turn(story)
    (due,) = await memories.due(10)
    assert due.tenant == "default"
    # Whoever begins it keeps others from it for a while, and not for ever.
    await memories.begun(due.id)
    assert await memories.due(10) == []
    story.clock.now += 31
    assert await memories.due(10) == [due]


async def test_R17_a_smaller_set_replaces_the_facts_and_keeps_where_they_come_from(
    story: Story, memories: Opened
) -> None:
    await keep(memories, "one two three", "four five six", "seven eight", "nine ten eleven")
    await ended_turn(story)
    due, started = await begun(memories)
    assert [fact.n for fact in started.facts] == [1, 2, 3, 4]

    merged = Merged.model_validate({"text": "one to six", "from": [1, 2]})
    assert await memories.complete(due, 1, [merged], "content", ASKED, 0.25) == 3

    facts = await memories.facts([OURS])
    assert [fact.text for fact in facts] == ["seven eight", "nine ten eleven", "one to six"]
    assert [source.step for source in facts[-1].sources] == [1, 2]
    assert await memories.due(10) == []
    # What was replaced is there for who asks, until the fact in its place is forgotten.
    replaced = await memories.all_facts([OURS])
    assert [(fact.text, fact.replaced_by) for fact in replaced[:2]] == [
        ("one two three", 5),
        ("four five six", 5),
    ]
    with pytest.raises(UsageError, match="become part of fact 5"):
        await memories.forget(OURS, 1)
    await memories.forget(OURS, 5)
    assert [fact.text for fact in await memories.all_facts([OURS])] == [
        "seven eight",
        "nine ten eleven",
    ]
    assert await memories.known_reply("default", "content") is None
    (usage,) = await story.store.usage("default", "session", 0)
    assert (usage.side_calls, usage.cost_usd) == (1, 0.75)
    told = (await story.told())[-1]
    assert (told.type, told.turn) == ("memory_consolidated", 1)
    assert told.body == {
        "scope": "session",
        "facts_before": 4,
        "facts_after": 3,
        "tokens_before": 110,
        "tokens_after": 80,
        "cost_usd": 0.25,
    }


async def test_a_consolidation_is_paid_for_once_and_an_overtaken_attempt_writes_nothing(
    story: Story, memories: Opened
) -> None:
    await keep(memories, "one two three four", "four five six seven", "eight nine ten")
    await ended_turn(story)
    due, _ = await begun(memories, "killed")
    _, second = await begun(memories)
    assert second.attempt == 2
    merged = [Merged.model_validate({"text": "all", "from": [1, 2, 3]})]
    with pytest.raises(Fenced):
        await memories.complete(due, 1, merged, "content", ASKED, None)
    await memories.complete(due, 2, merged, "content", ASKED, None)
    assert await memories.begin(due, 100, "openai/test", anew()) is None
    assert json.loads(await memories.known_reply("default", "content") or "")[0]["from"] == [
        1,
        2,
        3,
    ]
    assert await memories.known_reply("other", "content") is None


async def test_a_fact_that_is_forgotten_meanwhile_comes_back_by_no_consolidation(
    story: Story, memories: Opened
) -> None:
    await keep(memories, "one two three four", "a secret of mine", "eight nine ten")
    await ended_turn(story)
    due, started = await begun(memories)
    await memories.forget(OURS, 2)
    merged = Merged.model_validate({"text": "four and a secret", "from": [1, 2]})
    await memories.complete(due, started.attempt, [merged], "content", ASKED, None)
    assert await texts(memories) == ["one two three four", "eight nine ten"]


async def test_a_failed_consolidation_keeps_all_facts_and_is_not_due_at_once(
    story: Story, memories: Opened
) -> None:
    await keep(memories, "one two three four", "four five six seven", "eight nine ten")
    await ended_turn(story)
    due, started = await begun(memories)
    assert not await memories.fail(due, started.attempt, "overloaded", 3, Usage(), None)
    _, again = await begun(memories)
    assert await memories.fail(due, again.attempt, "rubbish", 1, ASKED, 0.5)
    assert len(await texts(memories)) == 3
    told = (await story.told())[-1]
    assert (told.type, told.body["text"]) == (
        "status",
        "The memory of this session could not be made smaller, and stays: rubbish",
    )
    await ended_turn(story)
    assert await memories.due(10) == []
    # A quarter more of it is worth another look.
    await keep(memories, "eleven twelve thirteen")
    await ended_turn(story)
    assert len(await memories.due(10)) == 1


async def test_an_attempt_whose_worker_died_is_spent_by_what_it_was_asked(
    story: Story, memories: Opened
) -> None:
    await story.store.put_budget("default", "tenant", None, Budget(tokens=100_000))
    await keep(memories, "one two three four", "four five six seven", "eight nine ten")
    await ended_turn(story)
    (before,) = await story.store.budgets("default")
    await begun(memories, "killed")
    (held,) = await story.store.budgets("default")
    assert (held.spent.tokens, held.reserved.tokens) == (before.spent.tokens, 110 + 400 + 110)

    due, again = await begun(memories)
    merged = [Merged.model_validate({"text": "all", "from": [1, 2, 3]})]
    await memories.complete(due, again.attempt, merged, "content", ASKED, None)

    (after,) = await story.store.budgets("default")
    assert after.reserved.tokens == 0
    assert after.spent.tokens == before.spent.tokens + (110 + 600) + 55


async def test_an_attempt_that_failed_is_spent_by_what_it_was_answered(
    story: Story, memories: Opened
) -> None:
    await story.store.put_budget("default", "tenant", None, Budget(tokens=100_000))
    await keep(memories, "one two three four", "four five six seven", "eight nine ten")
    await ended_turn(story)
    (before,) = await story.store.budgets("default")
    for usage in (Usage(), ASKED):
        due, started = await begun(memories)
        await memories.fail(due, started.attempt, "overloaded", 3, usage, None)
        (after,) = await story.store.budgets("default")
        assert after.reserved.tokens == 0
        assert after.spent.tokens - before.spent.tokens == usage.input_tokens + usage.output_tokens


async def test_a_consolidation_that_ends_its_worker_each_time_is_given_up(
    story: Story, memories: Opened
) -> None:
    await keep(memories, "one two three four", "four five six seven", "eight nine ten")
    await ended_turn(story)
    due, started = await begun(memories, "killed")
    # An attempt that failed has ended no worker.
    assert not await memories.fail(due, started.attempt, "overloaded", 3, Usage(), None)
    for _ in range(ATTEMPTS_MAX):
        await begun(memories, "killed")

    assert await memories.begin(due, 100, "openai/test", anew()) is None

    assert len(await texts(memories)) == 3
    assert await memories.due(10) == []
    told = (await story.told("status"))[-1]
    assert told.body["text"] == (
        "The memory of this session could not be made smaller, and stays:"
        " Its workers ended while it ran."
    )


async def test_a_memory_that_was_made_small_meanwhile_is_asked_about_no_more(
    story: Story, memories: Opened
) -> None:
    await keep(memories, "one two three four", "four five six seven", "eight nine ten")
    await ended_turn(story)
    (memory,) = await memories.due(10)
    due = await memories.due_for(memory.id)
    assert due is not None
    await memories.forget(OURS, 1)
    assert await memories.begin(due, 100, "openai/test", anew()) is None
    assert await memories.due_for(memory.id) is None


async def test_a_memory_of_one_fact_cannot_be_made_of_fewer(story: Story, memories: Opened) -> None:
    await keep(memories, "one two three four five six seven eight nine ten eleven")
    await ended_turn(story)
    (memory,) = await memories.due(10)
    due = await memories.due_for(memory.id)
    assert due is not None
    assert await memories.begin(due, 100, "openai/test", anew()) is None
    assert await memories.due_for(memory.id) is None


async def test_a_budget_in_the_way_leaves_the_memory_as_it_is_and_asks_nobody(
    story: Story, memories: Opened
) -> None:
    await keep(memories, "one two three four", "four five six seven", "eight nine ten")
    await ended_turn(story)
    await story.store.put_budget("default", "session", "s", Budget(tokens=400, soft=0.9))
    (memory,) = await memories.due(10)
    due = await memories.due_for(memory.id)
    assert due is not None
    assert await memories.begin(due, 100, "openai/test", anew()) is None
    assert await memories.due(10) == []
    assert (await story.store.session(SessionKey("default", "s"))).asked == ()
    assert len(await texts(memories)) == 3
