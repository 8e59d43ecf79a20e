"""What of earlier turns a step reads: all, the newest that fit, or only what was said."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from stories import SPEC, Open, Story

from everturn.agents import AgentSpec
from everturn.context.cuts import Extent
from everturn.context.window import Frame
from everturn.messages import AssistantMessage, ToolMessage, UserMessage
from everturn.profile import History
from everturn.session import ContextHead, PrepareStep, TurnHead
from everturn_activities.store import room
from everturn_activities.store.sql import SqlStore
from everturn_activities.store.statement import Statement

TAIL = History(load="tail_tokens")
SAID = History(project="user_and_final")


def window(tokens: int, rules: History = TAIL) -> Frame:
    return Frame(window=tokens, history=rules)


class Teller:
    """Tells turns of a session whose agent has these rules. Each message takes 7 tokens, but
    what stands for a call that did not run none."""

    def __init__(self, story: Story, rules: History, frame: Frame) -> None:
        self.story = story
        self.rules = rules
        self.frame = frame
        self.turns = 0

    async def begin(self, text: str) -> TurnHead:
        self.turns += 1
        await self.story.send(text)
        agent = SPEC.agent.model_copy(update={"history": self.rules})
        spec: AgentSpec = SPEC.model_copy(update={"agent": agent})
        return await self.story.begun(f"run-{self.turns}", spec=spec)

    async def prepare(self, turn: TurnHead, step: int = 1) -> ContextHead:
        request = PrepareStep(*self.story.key, turn.turn, step, turn.epoch)
        return await self.story.store.prepare_step(request, "inline", "m", self.frame)

    async def step(self, turn: TurnHead, step: int, text: str, *calls: str) -> ContextHead:
        context = await self.prepare(turn, step)
        attempt = await self.story.start(context)
        await self.story.reply(context, attempt, text, calls)
        return context

    async def turn(self, text: str, calls: int = 0) -> ContextHead:
        """A turn of `calls` steps with a tool and an answer; the context of its first step."""
        turn = await self.begin(text)
        for step in range(1, calls + 1):
            await self.step(turn, step, f"work {step}", "tool")
        await self.step(turn, calls + 1, f"answer to {text}")
        await self.story.finish(turn, f"run-{self.turns}", step=calls + 1)
        return await self.prepare(turn)

    async def told(self, count: int) -> None:
        for number in range(1, count + 1):
            await self.turn(f"question {number}")


async def lines(story: Story, extent: Extent) -> list[str]:
    """What is sent, each message as its text."""
    said = []
    for message in (await story.store.history(story.key, extent)).whole:
        match message:
            case UserMessage():
                said += [getattr(part, "text", "") for part in message.parts]
            case AssistantMessage():
                said.append(message.text)
            case ToolMessage():
                said += [f"result of {result.name}" for result in message.results]
    return said


@pytest.fixture
async def elsewhere(opened: Open, tmp_path: Path) -> AsyncIterator[Story]:
    """The session in another process."""
    async with opened(tmp_path) as story:
        yield story


async def test_T16_a_turn_begins_with_the_newest_messages_that_fit(
    story: Story, elsewhere: Story
) -> None:
    teller = Teller(story, TAIL, window(7 * 4))
    await teller.told(5)
    context = await teller.prepare(await teller.begin("now"))

    sent = await lines(story, context.extent)
    assert sent == ["answer to question 4", "question 5", "answer to question 5", "now"]
    assert await lines(elsewhere, context.extent) == sent
    assert context.sections is not None
    assert (context.sections.history, context.sections.memory) == (21, 7)
    assert context.tokens == 28


async def test_T19_the_history_is_reckoned_once_a_turn_and_the_memory_grows(
    story: Story,
) -> None:
    teller = Teller(story, TAIL, window(7 * 4))
    await teller.told(5)
    turn = await teller.begin("now")
    first = await teller.step(turn, 1, "work 1", "tool")
    second = await teller.prepare(turn, 2)
    assert (first.first, second.first) == (8, 8)
    assert second.sections is not None
    assert (second.sections.history, second.sections.memory) == (21, 14)


@pytest.mark.parametrize("retrim", ["never", "step"])
async def test_T19_a_turn_that_goes_on_in_a_wider_window_takes_nothing_back(
    story: Story, retrim: Any
) -> None:
    """Another model may answer in its place; what stands above the turn stays as it is."""
    rules = History(load="tail_tokens", retrim=retrim)
    teller = Teller(story, rules, window(7 * 4, rules))
    await teller.told(5)
    turn = await teller.begin("now")
    first = await teller.step(turn, 1, "work 1", "tool")
    teller.frame = window(7 * 40, rules)
    assert (await teller.prepare(turn, 2)).first == first.first == 8


async def test_with_retrim_the_history_makes_room_before_each_step(story: Story) -> None:
    rules = History(load="tail_tokens", retrim="step")
    teller = Teller(story, rules, window(7 * 4, rules))
    await teller.told(5)
    turn = await teller.begin("now")
    await teller.step(turn, 1, "work 1", "tool")
    context = await teller.prepare(turn, 2)
    assert await lines(story, context.extent) == [
        *("question 5", "answer to question 5", "now", "work 1", "result of tool")
    ]
    assert context.tokens == 28


async def test_a_wider_window_takes_back_what_a_narrow_one_left_out(story: Story) -> None:
    teller = Teller(story, TAIL, window(7 * 2))
    await teller.told(4)
    teller.frame = window(7 * 6)
    assert (await teller.turn("wider")).first == 4
    teller.rules, teller.frame = History(), window(10_000, History())
    context = await teller.turn("whole")
    assert (context.first, context.tokens) == (1, 11 * 7)
    assert len(await lines(story, context.extent)) == 11


async def test_K20_what_is_sent_never_begins_with_a_result_without_its_call(
    story: Story,
) -> None:
    teller = Teller(story, TAIL, window(7 * 3))
    await teller.turn("first", calls=2)
    context = await teller.prepare(await teller.begin("now"))
    # The result of the first call would have fitted, and the call itself does not.
    assert await lines(story, context.extent) == [
        *("work 2", "result of tool", "answer to first", "now")
    ]
    assert context.tokens == 21


async def test_a_history_without_room_is_left_out_and_the_turns_own_message_stays(
    story: Story,
) -> None:
    teller = Teller(story, TAIL, window(5))
    await teller.told(2)
    context = await teller.prepare(await teller.begin("now"))
    assert await lines(story, context.extent) == ["now"]


async def test_a_summary_is_the_oldest_that_a_turn_may_begin_with(story: Story) -> None:
    teller = Teller(story, TAIL, window(10_000))
    await teller.told(3)
    turn = await teller.begin("now")
    await teller.prepare(turn)
    await summarise(story, 4)
    # The summary takes 5, and what follows it 4 and 5 messages.
    for tokens, first in ((5 + 7 * 4, 1), (5 + 7 * 5 - 1, 5)):
        await teller.story.finish(turn, f"run-{teller.turns}")
        turn = await teller.begin("again")
        teller.frame = window(tokens)
        context = await teller.prepare(turn)
        assert context.first == first


async def summarise(story: Story, last: int) -> None:
    from everturn_activities.store import cuts
    from everturn_activities.store.locked import LockedSession

    def change(tx: Any) -> None:
        session = LockedSession(tx, story.key)
        cuts.cut(session, "compaction", 1, last, 4, "THE GIST", 5)
        session.save()

    await story.store._database.write(change)  # type: ignore[attr-defined]


async def test_E29_of_a_turn_that_is_over_only_what_was_said_is_sent(
    story: Story, elsewhere: Story
) -> None:
    """Four tool calls in turn 1, and turn 2 loads two messages more; all are stored (C5)."""
    teller = Teller(story, SAID, window(10_000, SAID))
    first = await teller.turn("first", calls=4)
    assert len(await lines(story, first.extent)) == 1

    turn = await teller.begin("now")
    context = await teller.step(turn, 1, "work", "tool")
    sent = await lines(story, context.extent)
    assert sent == ["first", "answer to first", "now"]
    assert await lines(elsewhere, context.extent) == sent
    assert context.tokens == 21
    # Of the turn itself all is.
    context = await teller.prepare(turn, 2)
    assert await lines(story, context.extent) == [*sent, "work", "result of tool"]
    assert len(await story.transcript()) == 13


async def test_E29_a_process_that_knows_the_work_of_a_turn_sends_only_what_was_said_of_it(
    story: Story,
) -> None:
    teller = Teller(story, SAID, window(10_000, SAID))
    for number in range(1, 4):
        context = await teller.turn(f"question {number}", calls=2)
        assert len(await lines(story, Extent(context.upto, 0, 1, context.since))) == 2 * number - 1
    # With another agent all of it is sent again.
    teller.rules, teller.frame = History(), window(10_000, History())
    context = await teller.prepare(await teller.begin("now"))
    assert len(await lines(story, context.extent)) == 3 * 6 + 1
    assert context.tokens == 7 * 13


async def test_C5_what_the_tool_response_gave_is_the_final_reply(story: Story) -> None:
    teller = Teller(story, SAID, window(10_000, SAID))
    turn = await teller.begin("first")
    await teller.step(turn, 1, "", "response")
    await story.begin_tool(turn)
    from everturn.messages import ToolResult
    from everturn_activities.store import CompletedTool

    result = ToolResult(call_id="call-0", name="response", text="42")
    done = CompletedTool(0, 1, result, 0.1)
    await story.store.complete_tools(story.key, 1, 1, turn.epoch, [done])
    await story.finish(turn, "run-1")
    context = await teller.prepare(await teller.begin("now"))
    assert await lines(story, context.extent) == ["first", "42", "now"]


async def test_the_newest_of_what_was_said_is_sent(story: Story, elsewhere: Story) -> None:
    """What is projected counts by what is sent of it."""
    rules = History(load="tail_tokens", project="user_and_final")
    teller = Teller(story, rules, window(7 * 4, rules))
    for number in range(1, 5):
        await teller.turn(f"question {number}", calls=3)
    context = await teller.prepare(await teller.begin("now"))
    sent = await lines(story, context.extent)
    assert sent == ["answer to question 3", "question 4", "answer to question 4", "now"]
    assert await lines(elsewhere, context.extent) == sent
    assert context.tokens == 28


async def test_T24_what_is_read_does_not_depend_on_what_is_stored(
    story: Story, elsewhere: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading reads backwards in pages, newest to oldest, until the budget is used."""
    teller = Teller(story, TAIL, window(7 * 41))
    await stored(story, 3_000)
    monkeypatch.setattr(room, "PAGE", 16)
    read: list[int] = []
    look = Statement.all

    def counted(self: Statement, *given: Any) -> list[Any]:
        rows = look(self, *given)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(Statement, "all", counted)
    turn = await teller.begin("now")
    context = await teller.prepare(turn)
    assert (context.upto, context.first) == (3_001, 2_961)
    assert len(await lines(elsewhere, context.extent)) == 41
    assert sum(read) < 400


async def test_T3_a_turn_reads_its_history_once(
    story: Story, elsewhere: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    teller = Teller(story, TAIL, window(10_000))
    await teller.told(3)
    turn = await teller.begin("now")
    read: list[tuple[int, int]] = []
    assert isinstance(elsewhere.store, SqlStore)
    look = elsewhere.store._sent

    async def counted(key: Any, extent: Extent, after: int) -> Any:
        read.append((after, extent.upto))
        return await look(key, extent, after)

    monkeypatch.setattr(elsewhere.store, "_sent", counted)
    for step in (1, 2, 3):
        context = await teller.step(turn, step, f"work {step}", "tool")
        await lines(elsewhere, context.extent)
    assert read == [(0, 7), (7, 9), (9, 11)]


async def stored(story: Story, count: int) -> None:
    """A conversation of so many messages, written without living it."""
    from everturn.messages import user_text
    from everturn_activities.store.locked import LockedSession

    def change(tx: Any) -> None:
        session = LockedSession(tx, story.key)
        for number in range(1, count + 1):
            session.append(user_text(f"message {number}"), 0, number, 0, 7)
        session.save()

    await story.store._database.write(change)  # type: ignore[attr-defined]
