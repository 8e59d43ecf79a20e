"""Changes whose COMMIT was not heard of: run again they change nothing, and answer as at first."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from stories import SPEC, Clock, Story, anew, count, price
from unheard import Unheard

from everturn.agents import Compaction
from everturn.budgets import Budget
from everturn.context.consolidation import Merged
from everturn.context.window import Frame
from everturn.errors import UnknownSchedule, UsageError
from everturn.mcp import Server, ServerConfig
from everturn.memory import FactSource, MemoryPlace, MemoryRules
from everturn.schedules import Definition
from everturn.session import Compact, Compacted, GatherTools, PrepareStep, SessionKey, TurnHead
from everturn.tasks import NewTask
from everturn_activities.event_log.sql import SqlEventLog
from everturn_activities.gateways import Usage
from everturn_activities.store import (
    AfterFailure,
    CallFailure,
    CompactionStarted,
    Rewound,
    SessionSettings,
)
from everturn_activities.store.database import SqliteDatabase
from everturn_activities.store.embeddings import Embedding, SqlEmbeddings
from everturn_activities.store.knowledge_bases import SqlKnowledgeBases
from everturn_activities.store.sql import SqlStore
from everturn_activities.store.sql_memories import SqlMemories
from everturn_activities.store.sql_schedules import Bounds, SqlSchedules
from everturn_activities.store.sql_tasks import SqlTasks
from everturn_activities.wakeups import WakeUps

KEY = SessionKey("default", "s")
FRAME = Frame(window=100, system=10, tools=5, compaction=Compaction(keep_last=2))
USED = Usage(input_tokens=70, output_tokens=5)


@dataclass
class Books:
    """A session, and the database below its store."""

    story: Story
    database: Unheard


@pytest.fixture
async def books(tmp_path: Path) -> AsyncIterator[Books]:
    clock, wakeups = Clock(), WakeUps(tmp_path)
    database = Unheard(SqliteDatabase(tmp_path / "store.db", lambda told: None, clock))
    store = SqlStore(database, count, price)
    await store.create_session(KEY, SessionSettings("/workspace", "/workspace"))
    yield Books(Story(store, SqlEventLog(database, wakeups), clock, KEY), database)
    await store.close()
    await wakeups.close()


async def worked(story: Story, *texts: str) -> None:
    for text in texts:
        await story.send(text)
        turn = await story.begun(f"run-{text}")
        await story.step(turn)
        await story.finish(turn, f"run-{text}")


async def tokens(story: Story) -> int:
    return await story.store.context_tokens(story.key) // 7


async def test_a_turn_is_worked_as_if_every_commit_had_been_heard(books: Books) -> None:
    story = books.story
    await story.send("hello")
    turn = await story.begun()
    context = await story.prepare(turn)
    failed = await story.start(context)
    failure = CallFailure("Overloaded.", tries_max=1, next_model="openai/other")
    after = await story.store.fail_model_call(context, failed, failure)
    assert after == AfterFailure("switch", 1)
    attempt = await story.start(context)
    assert attempt == 2
    await story.reply(context, attempt, "hi", ["tool"])
    await story.begin_tool(turn)
    await story.store.tell_output(KEY, 1, 1, 0, 1, 0, "working")
    await story.end_tool(turn)
    await story.step(turn, 2)
    await story.finish(turn, step=2)

    assert await story.transcript() == [
        "user: hello",
        "assistant: hi",
        "tool: call-0=ok",
        "assistant: text of step 2",
    ]
    told = [event.type for event in await story.told()]
    assert [told.count(kind) for kind in ("message_accepted", "superseded", "tool_output")] == [
        1,
        1,
        1,
    ]
    # What differs is that the first run was the first, and who is to be woken: the reconciler
    # wakes whom nobody has.
    assert books.database.changed <= {
        "SqlStore.accept",
        "SqlStore.prepare_step",
        "SqlStore.begin_tool",
        "SqlStore.finish_turn",
    }


@pytest.mark.parametrize(
    ("failure", "after"),
    [
        (CallFailure("Overloaded.", tries_max=2), AfterFailure("again", 1)),
        (CallFailure("Overloaded.", tries_max=1), AfterFailure("end", 1)),
        (CallFailure("It stalled.", tries_max=1, stalled=True), AfterFailure("end", 1)),
        (CallFailure("Overloaded.", 1, "openai/other"), AfterFailure("switch", 1)),
    ],
)
async def test_what_follows_a_failure_is_decided_once(
    books: Books, failure: CallFailure, after: AfterFailure
) -> None:
    story = books.story
    await story.send()
    context = await story.prepare(await story.begun())
    attempt = await story.start(context)
    assert await story.store.fail_model_call(context, attempt, failure) == after
    # One that another failed is nobody's to end.
    other = replace(failure, reason="Another.")
    assert await story.store.fail_model_call(context, attempt, other) == AfterFailure("again")


async def test_a_rewind_and_its_undoing_are_done_once_and_say_so(books: Books) -> None:
    story = books.story
    await worked(story, "one", "two", "three")
    for to, messages in ((2, 2), (1, 4)):
        assert await story.store.forks.rewind(KEY, to, None) == Rewound(to, None, messages)
    assert (await story.store.forks.undo_rewind(KEY)).first == 3
    # The earlier one stands.
    assert await tokens(story) == 4
    assert (await story.store.forks.undo_rewind(KEY)).first == 5
    assert await tokens(story) == 6
    assert len(await story.told("session_rewound")) == len(await story.told("rewind_undone")) == 2
    assert not {name for name in books.database.changed if "rewind" in name}


async def compacting(story: Story) -> tuple[TurnHead, Compact]:
    await worked(story, *"abcdef")
    await story.send("on")
    turn = await story.begun()
    request = PrepareStep(*KEY, turn.turn, 1, turn.epoch)
    context = await story.store.prepare_step(request, "inline", "openai/test", FRAME)
    return turn, Compact(*KEY, context.turn, context.step, context.epoch, context.compaction)


async def test_a_compaction_is_one_attempt_that_is_paid_once_and_undone_once(books: Books) -> None:
    story = books.story
    await story.store.put_budget("default", "tenant", None, Budget(tokens=100_000))
    _, request = await compacting(story)

    async def begun() -> int:
        made = await story.store.begin_compaction(request, FRAME, "openai/test", 3, anew())
        assert isinstance(made, CompactionStarted)
        return made.attempt

    assert await begun() == 1
    assert not await story.store.fail_compaction(request, 1, "No.", 2, 3, Usage(), None)
    assert await begun() == 2
    made = await story.store.complete_compaction(request, 2, "gist", "c", USED, 0.25, FRAME)
    assert made == Compacted(1)
    assert (await story.store.undo_compaction(KEY)).n == 1
    assert (await story.store.budgets("default"))[0].spent.tokens == 6 * 5 + 75
    kinds = ("compaction_started", "compacted", "compaction_undone")
    assert [event.type for event in await story.told(*kinds)] == list(kinds)
    assert not {name for name in books.database.changed if "compaction" in name}


async def test_a_compaction_is_cancelled_and_given_up_once(books: Books) -> None:
    story = books.story
    turn, request = await compacting(story)
    await story.store.begin_compaction(request, FRAME, "openai/test", 3, anew())
    await story.store.cancel_compaction(request, 1)
    again = PrepareStep(*KEY, turn.turn, 1, turn.epoch)
    context = await story.store.prepare_step(again, "inline", "openai/test", FRAME)
    request = replace(request, ordinal=context.compaction)
    await story.store.begin_compaction(request, FRAME, "openai/test", 3, anew())
    assert await story.store.fail_compaction(request, 1, "No.", 1, 3, Usage(), None)
    assert [told.body["text"] for told in await story.told("status")] == [
        "The conversation could not be summarised: No."
    ]


async def test_a_consolidation_is_one_attempt_whose_facts_are_put_in_place_once(
    books: Books,
) -> None:
    story = books.story
    rules = MemoryRules(scopes=("session",), consolidate_tokens=100)
    profile = SPEC.profile.model_copy(update={"memory": rules})
    memories = SqlMemories(books.database, lambda text: 10 * len(text.split()), price)
    place = MemoryPlace("default", "session", "s")
    for text in ("one two three four", "four five six seven", "eight nine ten"):
        await memories.save(place, text, text, FactSource(session="s", turn=1, step=1))
    await story.send()
    turn = await story.begun(spec=SPEC.model_copy(update={"profile": profile}))
    await story.step(turn)
    await story.finish(turn)
    (memory,) = await memories.due(10)
    due = await memories.due_for(memory.id)
    assert due is not None

    for attempt in (1, 2):
        begun = await memories.begin(due, 100, "openai/test", anew())
        assert begun is not None
        assert begun.attempt == attempt
        if attempt == 1:
            assert not await memories.fail(due, 1, "No.", 2, Usage(), None)
    merged = [Merged.model_validate({"text": "all", "from": [1, 2, 3]})]
    assert await memories.complete(due, 2, merged, "content", USED, None) == 1
    assert [fact.text for fact in await memories.facts((place,))] == ["all"]
    assert not {name for name in books.database.changed if "Memories" in name}


async def test_an_embedding_is_reserved_once(books: Books) -> None:
    ledger = SqlEmbeddings(books.database)
    await books.story.store.put_budget("t", "tenant", None, Budget(tokens=5_000))
    call = Embedding("t", "/w", "openai/embed", texts=64, tokens=1_000, usd=0.01)
    assert [await ledger.begin(call), await ledger.begin(call)] == [1, 2]
    await ledger.settle(1, 900, 0.009)
    (budget,) = await books.story.store.budgets("t")
    assert (budget.reserved.tokens, budget.spent.tokens) == (1_000, 900)


async def test_who_takes_a_server_over_is_told_that_it_has_it(books: Books) -> None:
    story, store = books.story, books.story.store
    config = ServerConfig(command="x", stateful=True)
    spec = SPEC.model_copy(update={"servers": (Server(name="files", config=config),)})
    await story.send()
    turn = await story.begun(spec=spec)
    await store.settle_servers(GatherTools(*KEY, turn.turn, turn.epoch), spec, [], "dead")
    assert await store.move_home(KEY, "default", "files", "dead", "worker-1")
    assert not await store.move_home(KEY, "default", "files", "dead", "worker-2")
    assert await store.home(KEY, "default", "files") == "worker-1"


async def test_what_was_removed_or_begun_anew_is_not_refused_as_if_another_had_done_it(
    books: Books, tmp_path: Path
) -> None:
    database = books.database
    bases = SqlKnowledgeBases(database)
    await bases.add("default", "/w", "docs", "/w/docs")
    assert (await bases.remove("default", "/w", "docs")).name == "docs"

    schedules = SqlSchedules(database, count, tmp_path, Bounds())
    every = {"prompt": "x", "every_seconds": 60, "session": "s", "made_by": "s"}
    for name in ("one", "two"):
        await schedules.add("default", name, Definition.model_validate(every))
    await schedules.remove("default", "one")
    await schedules.remove_own("default", "two", "s")
    with pytest.raises(UnknownSchedule):
        await schedules.remove("default", "one")

    tasks = SqlTasks(database, count)
    settings = SessionSettings("/workspace", "/workspace")
    await tasks.submit("default", [("t", NewTask(input="x"), settings)])
    await tasks.cancel("default", "t")
    await tasks.requeue("default", "t")
    with pytest.raises(UsageError, match="is under way"):
        await tasks.requeue("default", "t")
