"""Cuts: what is sent once a range of the transcript is left out, and what it takes."""

from pathlib import Path

import pytest
from stories import Open, Story

from everturn.context.cuts import Cut, CutKind, Extent
from everturn.context.summary import summary_message
from everturn.messages import AssistantMessage, UserMessage, user_text
from everturn.session import TurnHead
from everturn_activities.store import cuts
from everturn_activities.store.database import Database, Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.sql import SqlStore


def database(story: Story) -> Database:
    assert isinstance(story.store, SqlStore)
    return story.store._database


async def cut(
    story: Story, kind: CutKind, first: int, last: int, body: str | None = None, tokens: int = 0
) -> int:
    def change(tx: Tx) -> int:
        session = LockedSession(tx, story.key)
        n = cuts.cut(session, kind, first, last, 1, body, tokens)
        session.save()
        return n

    return await database(story).write(change)


async def undo(story: Story) -> Cut | None:
    def change(tx: Tx) -> Cut | None:
        session = LockedSession(tx, story.key)
        undone = cuts.undo(session)
        session.save()
        return undone

    return await database(story).write(change)


async def sent(story: Story, upto: int, n: int) -> list[str]:
    lines = []
    for message in (await story.store.history(story.key, Extent(upto, n))).whole:
        assert isinstance(message, UserMessage | AssistantMessage)
        lines.append("".join(getattr(part, "text", "") for part in message.parts))
    return lines


async def six_messages(story: Story) -> TurnHead:
    """Three turns of a message and a reply each, and a fourth turn that has begun."""
    for number in range(1, 4):
        await story.send(f"question {number}")
        turn = await story.begun(f"run-{number}")
        await story.step(turn)
        await story.finish(turn, f"run-{number}")
    await story.send("question 4")
    return await story.begun("run-4")


def summary(text: str) -> str:
    (part,) = summary_message(text).parts
    assert part.type == "text"
    return part.text


async def test_a_cut_changes_what_is_sent_and_nothing_of_the_transcript(story: Story) -> None:
    turn = await six_messages(story)
    whole = await story.transcript()
    before = await story.prepare(turn)
    assert (before.upto, before.cuts, before.tokens) == (7, 0, 49)

    assert await cut(story, "compaction", 1, 5, "the gist", 9) == 1

    assert await sent(story, 7, 1) == [summary("the gist"), "text of step 1", "question 4"]
    assert await story.transcript() == whole
    after = await story.prepare(turn, 2)
    assert (after.upto, after.cuts, after.tokens) == (7, 1, 7 + 7 + 9)


async def test_a_step_prepared_before_a_cut_is_composed_as_it_was(story: Story) -> None:
    turn = await six_messages(story)
    before = await story.prepare(turn)
    whole = await sent(story, before.upto, before.cuts)
    await cut(story, "compaction", 1, 5, "the gist", 9)
    assert len(await sent(story, 7, 1)) == 3
    assert await story.prepare(turn) != before  # It counts the re-run,
    assert (await story.prepare(turn)).cuts == before.cuts  # and reads what it read before.
    assert await sent(story, before.upto, before.cuts) == whole


async def test_undoing_a_cut_sends_again_what_it_left_out(story: Story) -> None:
    await six_messages(story)
    whole = await sent(story, 7, 0)
    await cut(story, "compaction", 1, 3, "the first gist", 9)
    await cut(story, "compaction", 1, 5, "the second gist", 9)
    assert (await sent(story, 7, 2))[0] == summary("the second gist")

    undone = await undo(story)

    assert undone is not None
    assert (undone.n, undone.last) == (2, 5)
    assert (await sent(story, 7, 3))[0] == summary("the first gist")
    assert (await sent(story, 7, 2))[0] == summary("the second gist")  # as of then
    assert await undo(story) is not None
    assert await sent(story, 7, 4) == whole
    assert await undo(story) is None


async def test_a_rollback_undoes_the_summary_that_tells_of_its_messages(story: Story) -> None:
    turn = await six_messages(story)
    await cut(story, "compaction", 1, 2, "an old gist", 9)
    await cut(story, "compaction", 1, 5, "the gist", 9)
    await cut(story, "rollback", 5, 6)
    assert await sent(story, 7, 3) == [
        summary("an old gist"),
        "question 2",
        "text of step 1",
        "question 4",
    ]
    assert (await story.prepare(turn)).tokens == 9 + 3 * 7


async def test_the_sum_of_tokens_counts_what_was_appended_in_the_same_transaction(
    story: Story,
) -> None:
    turn = await six_messages(story)

    def change(tx: Tx) -> int:
        session = LockedSession(tx, story.key)
        session.append(user_text("just now"), turn.turn, 0, 1, 100)
        cuts.cut(session, "rollback", 1, 6, turn.turn)
        session.save()
        return session.message_tokens

    assert await database(story).write(change) == 107
    assert (await story.prepare(turn)).tokens == 107


async def test_another_process_reads_the_same_and_keeps_nothing_that_is_cut(
    story: Story, opened: Open, tmp_path: Path
) -> None:
    await six_messages(story)
    async with opened(tmp_path) as other:
        assert len(await sent(other, 7, 0)) == 7
        await cut(story, "compaction", 1, 6, "the gist", 9)
        assert await sent(other, 7, 1) == await sent(story, 7, 1)
        assert isinstance(other.store, SqlStore)
        (kept,) = other.store._histories._kept.values()
        assert (len(kept.placed), other.store._histories._tokens) == (1, 16)


@pytest.mark.parametrize("n", [0, 1])
async def test_a_conversation_dropped_from_memory_meanwhile_is_read_whole(
    story: Story, n: int
) -> None:
    await six_messages(story)
    await cut(story, "compaction", 1, 5, "the gist", 9)
    whole = await sent(story, 7, n)
    assert isinstance(story.store, SqlStore)
    histories = story.store._histories
    assert histories.known(story.key).upto(Extent(7, n)) == 7
    histories._kept.clear()
    assert histories.add(story.key, Extent(7, n), 6, ()) is None
    assert await sent(story, 7, n) == whole
