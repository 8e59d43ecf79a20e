"""A call that fails for sure is refused, and one that polls waits."""

from dataclasses import dataclass, field

import pytest
from stories import Story

from everturn.messages import AssistantMessage, ToolCall, ToolResult
from everturn.session import StepHead, ToolHead, TurnHead
from everturn_activities.gateways import Usage
from everturn_activities.store import CompletedTool

CHANGING = frozenset({"edit"})


@dataclass
class Loop:
    """A turn whose every step asks for calls, each a name and an argument."""

    story: Story
    turn: TurnHead
    step: int = 0
    heads: list[ToolHead] = field(default_factory=list)

    async def ask(self, *calls: tuple[str, int | str]) -> list[ToolHead]:
        """The calls of the next step that are to run; a text is no JSON object."""
        self.step += 1
        context = await self.story.prepare(self.turn, self.step)
        attempt = await self.story.start(context)
        parts = tuple(
            ToolCall(id=f"{self.step}-{index}", name=name, malformed=number)
            if isinstance(number, str)
            else ToolCall(id=f"{self.step}-{index}", name=name, arguments={"n": number})
            for index, (name, number) in enumerate(calls)
        )
        asked = [ToolHead(i, name, "inline", 5.0) for i, (name, _) in enumerate(calls)]
        head = await self.story.store.complete_model_call(
            context,
            attempt,
            AssistantMessage(parts=parts),
            "tool_use",
            Usage(),
            None,
            StepHead(self.step, "tool_use", asked),
            (),
            CHANGING,
        )
        self.heads = head.calls
        return self.heads

    async def end(
        self, text: str, failed: bool = False, seconds: float = 0.1, but: str = ""
    ) -> None:
        """All the calls of the step end alike, `but` those of that name succeed."""
        done = [
            CompletedTool(
                head.index,
                0,
                ToolResult(call_id=f"{self.step}-{head.index}", name=head.name, text=text,
                           failed=failed and head.name != but),
                seconds,
            )
            for head in self.heads
        ]  # fmt: skip
        key, turn = self.story.key, self.turn
        await self.story.store.complete_tools(key, turn.turn, self.step, turn.epoch, done)

    async def results(self) -> list[str]:
        calls = await self.story.store.tool_calls(self.story.key, self.turn.turn, self.step)
        return [call.result.text if call.result else "" for call in calls]


@pytest.fixture
async def loop(story: Story) -> Loop:
    await story.send()
    return Loop(story, await story.begun())


async def test_the_third_call_that_would_fail_alike_is_refused_with_the_error(loop: Loop) -> None:
    for _ in range(2):
        assert await loop.ask(("send", 1))
        await loop.end("no such order", failed=True)

    for _ in range(2):  # The refusal does not count as a third, other result.
        assert await loop.ask(("send", 1)) == []
        (refusal,) = await loop.results()
        assert "failed 2 times with the same error" in refusal
        assert "no such order" in refusal
        finished = (await loop.story.told("tool_finished"))[-1]
        assert (finished.step, finished.body["failed"]) == (loop.step, True)

    assert len(await loop.ask(("send", 2), ("send", 1))) == 1


async def test_a_refused_call_is_recorded_and_a_resumed_turn_goes_on_behind_it(
    loop: Loop,
) -> None:
    for _ in range(2):
        await loop.ask(("send", 1))
        await loop.end("no", failed=True)
    await loop.ask(("send", 1))

    resumed = await loop.story.begun("run-2", previous="run-1")

    assert (resumed.step, resumed.stop) == (3, "tool_use")
    await loop.story.prepare(resumed, 4)
    assert "did not run" in (await loop.story.transcript())[-1]


@pytest.mark.parametrize(
    ("first", "second"),
    [(("no", True, 0.1), ("nay", True, 0.1)), (("late", True, 5.0), ("late", True, 5.0))],
    ids=["another error", "time-outs"],
)
async def test_a_call_that_need_not_fail_again_runs(
    loop: Loop, first: tuple[str, bool, float], second: tuple[str, bool, float]
) -> None:
    for ended in (first, second):
        await loop.ask(("send", 1))
        await loop.end(*ended)
    assert await loop.ask(("send", 1))


async def test_a_success_that_may_mend_the_failure_lets_it_run_again(loop: Loop) -> None:
    for name, failed in (("send", True), ("send", True), ("read", False)):
        await loop.ask((name, 1))
        await loop.end("x", failed)
    assert await loop.ask(("send", 1)) == []
    await loop.ask(("edit", 1))
    await loop.end("edited")
    assert await loop.ask(("send", 1))


async def test_a_success_between_the_failures_may_mend_them(loop: Loop) -> None:
    for name, failed in (("send", True), ("edit", False), ("send", True)):
        await loop.ask((name, 1))
        await loop.end("no", failed)
    assert await loop.ask(("send", 1))


async def test_a_result_of_the_same_words_that_was_no_failure_is_another(loop: Loop) -> None:
    for failed in (False, True):
        await loop.ask(("send", 1))
        await loop.end("no", failed)
    assert await loop.ask(("send", 1))


async def test_malformed_calls_are_equal_where_they_were_written_alike(loop: Loop) -> None:
    for _ in range(2):
        await loop.ask(("send", "{n: 1"))
        await loop.end("no JSON", failed=True)
    runs = await loop.ask(("send", "{n: 1"), ("send", "{n: 2"))
    assert [head.index for head in runs] == [1]


async def test_a_refusal_quotes_the_beginning_of_the_error(loop: Loop) -> None:
    for _ in range(2):
        await loop.ask(("send", 1))
        await loop.end("no " * 5000, failed=True)
    await loop.ask(("send", 1))
    (refusal,) = await loop.results()
    assert "no no no" in refusal
    assert len(refusal) < 1000


async def test_a_success_before_the_failures_mends_nothing(loop: Loop) -> None:
    await loop.ask(("edit", 1))
    await loop.end("edited")
    for _ in range(2):
        await loop.ask(("send", 1))
        await loop.end("no", failed=True)
    assert await loop.ask(("send", 1)) == []


async def test_a_success_beside_the_first_failure_may_have_come_after_it(loop: Loop) -> None:
    await loop.ask(("send", 1), ("edit", 1))
    await loop.end("no", failed=True, but="edit")
    await loop.ask(("send", 1))
    await loop.end("no", failed=True)
    assert await loop.ask(("send", 1))


async def test_a_change_that_failed_or_has_not_run_yet_mends_nothing(loop: Loop) -> None:
    for name in ("send", "send", "edit"):
        await loop.ask((name, 1))
        await loop.end("no", failed=True)
    runs = await loop.ask(("edit", 2), ("send", 1))
    assert [head.name for head in runs] == ["edit"]


async def test_two_equal_calls_of_a_step_that_poll_both_wait(loop: Loop) -> None:
    for _ in range(16):
        await loop.ask(("look", 1))
        await loop.end("still running")
    heads = await loop.ask(("look", 1), ("look", 1), ("look", 2))
    assert [head.delay_seconds for head in heads] == [5.0, 5.0, 0.0]


async def test_a_call_of_another_turn_is_another_call(loop: Loop) -> None:
    for _ in range(2):
        await loop.ask(("send", 1))
        await loop.end("no", failed=True)
    await loop.story.finish(loop.turn, step=2)
    await loop.story.send()
    loop.turn, loop.step = await loop.story.begun("run-2", previous="run-1"), 0
    assert await loop.ask(("send", 1))


async def test_polling_waits_longer_after_each_of_many_equal_results(loop: Loop) -> None:
    waits = []
    for _ in range(21):
        (head,) = await loop.ask(("look", 1))
        waits.append(head.delay_seconds)
        assert head.placement == ("queued" if head.delay_seconds else "inline")
        await loop.end("still running")
    assert waits == [0.0] * 16 + [5.0, 10.0, 30.0, 60.0, 60.0]
    told = [event.body["text"] for event in await loop.story.told("status")]
    assert told[0] == (
        "The last 16 results of this call of look were the same; it waits 5 s before it is"
        " made again."
    )
    assert len(told) == 5

    await loop.ask(("look", 1))
    await loop.end("done")
    (head,) = await loop.ask(("look", 1))
    assert head.delay_seconds == 0.0
