"""Turns that are worked again: the same calls get the recorded results, and no other runs."""

from dataclasses import replace

import pytest
from stories import Story
from test_forks import called, in_session

from everturn.errors import UsageError
from everturn.forks import EditedResult, ForkedFrom, ForkSession
from everturn.messages import ToolCall
from everturn.session import SessionKey, TurnHead
from everturn.tools import RESPONSE
from everturn.trajectories import difference
from everturn_activities.store import ForkFolder, cuts, trajectories
from everturn_activities.store.recordings import NEVER_MADE

SHARED = ForkFolder("shared", "/workspace")
CHANGING = frozenset({"write"})


def call(name: str, index: int = 0, **arguments: object) -> ToolCall:
    return ToolCall(id=f"call-{index}", name=name, arguments=arguments)


async def works(story: Story, run: str, *steps: tuple[ToolCall, str]) -> TurnHead:
    """A turn of a step for each call with its result, and one that ends it."""
    turn = await story.begun(run)
    for number, (made, text) in enumerate(steps, start=1):
        await story.step(turn, number, [made])
        assert not isinstance(await begin(story, turn, number), str)
        await story.end_tool(turn, step=number, text=text)
    await story.step(turn, len(steps) + 1)
    await story.finish(turn, run, step=len(steps) + 1)
    return turn


async def begin(story: Story, turn: TurnHead, step: int) -> object:
    from stories import ME

    return await story.store.begin_tool(story.key, turn.turn, step, 0, turn.epoch, ME, False)


async def worked(story: Story) -> None:
    """Two turns: one that reads, writes and reads again, one that reads."""
    await story.send("first")
    read = call("read", path="a", lines=3)
    await works(story, "run-1", (read, "old"), (call("write", path="a"), "ok"), (read, "new"))
    await story.send("second")
    await works(story, "run-2", (call("read", path="b"), "b"))


async def replayed(story: Story, name: str = "f", **wanted: object) -> Story:
    body = ForkSession.model_validate({"replay": "turn", **wanted})
    made = replace(story, key=SessionKey(story.key.tenant, name))
    await story.store.forks.fork(story.key, made.key, body, SHARED)
    return made


async def asks(story: Story, turn: TurnHead, step: int, *calls: ToolCall) -> list[str]:
    """The results that calls of a step get without being run, and which of them are to run."""
    context = await story.prepare(turn, step)
    head = await story.reply(context, await story.start(context), "", calls, changing=CHANGING)
    stored = await story.store.tool_calls(story.key, turn.turn, step)
    runs = {one.index for one in head.calls}
    return ["runs" if one.index in runs else one.result.text for one in stored]  # type: ignore[union-attr]


def never(name: str, more: str = "") -> str:
    return NEVER_MADE.format(name=name, more=more)


async def test_equal_calls_get_the_recorded_results_in_order_and_others_none(story: Story) -> None:
    await worked(story)
    made = await replayed(story, turn=1)
    turn = await made.begun()
    assert await made.transcript() == ["user: first"]

    # In whichever order the arguments are written.
    first = await asks(made, turn, 1, call("read", lines=3, path="a"), call("read", path="a"))
    second = await asks(made, turn, 2, call("read", path="a", lines=3), call("write", path="a"))
    third = await asks(made, turn, 3, call("read", path="a", lines=3), call("read", path="b"))

    assert first == ["old", never("read")]
    assert second == ["new", "ok"]
    assert third == [never("read", ", or not so often"), never("read")]
    results = [event.body for event in await made.told("tool_finished")]
    assert [body.get("recorded", False) for body in results] == [
        *(True, False, True, True, False, False)
    ]
    (message, *_) = [
        view.message
        for view in await made.store.messages(made.key, 0, 99)
        if view.message.role == "tool"
    ]
    assert [result.recorded for result in message.results] == [True, False]
    assert [result.failed for result in message.results] == [False, True]


@pytest.mark.parametrize(
    ("unrecorded", "told"),
    [
        ("refuse", [never("look"), never("write"), "runs"]),
        ("pure", ["runs", never("write"), "runs"]),
        ("run", ["runs", "runs", "runs"]),
    ],
)
async def test_a_call_that_was_never_recorded_is_treated_as_was_asked_for(
    story: Story, unrecorded: str, told: list[str]
) -> None:
    await worked(story)
    made = await replayed(story, turn=1, unrecorded=unrecorded)
    turn = await made.begun()
    new = (call("look"), call("write", 1, path="z"), call(RESPONSE, 2, text="so"))
    assert await asks(made, turn, 1, *new) == told


async def test_an_edited_result_is_what_the_replayed_call_gets(story: Story) -> None:
    await worked(story)
    edit = EditedResult(turn=1, step=1, index=0, text="other")
    made = await replayed(story, turn=1, edits=[edit])
    turn = await made.begun()
    assert await asks(made, turn, 1, call("read", path="a", lines=3)) == ["other"]
    with pytest.raises(UsageError, match=r"no result 2\.1\.0 in the turns that are worked again"):
        await replayed(story, "g", turn=1, edits=[edit.model_copy(update={"turn": 2})])


async def test_a_session_that_replays_runs_nothing_for_later_messages_either(story: Story) -> None:
    await worked(story)
    made = await replayed(story)
    assert (await made.transcript())[-1] == "assistant: text of step 4"
    turn = await made.begun()
    assert turn.turn == 2
    assert await asks(made, turn, 1, call("read", path="b")) == ["b"]
    await made.step(turn, 2)
    await made.finish(turn, step=2)
    await made.send("and once more")
    turn = await made.begun("run-9")
    assert await asks(made, turn, 1, call("read", path="b")) == [never("read")]


async def test_all_turns_of_a_session_are_worked_again_one_after_the_other(story: Story) -> None:
    await worked(story)
    made = await replayed(story, replay="session", model="openai/other")
    turn = await made.begun()
    assert await made.transcript() == ["user: first"]
    # A call of a later turn is none of this one's.
    assert await asks(made, turn, 1, call("read", path="b")) == [never("read")]
    await made.step(turn, 2)
    assert (await made.finish(turn, step=2)).more

    turn = await made.begun("run-2", previous="run-1")
    assert (turn.turn, (await made.transcript())[-1]) == (2, "user: second")
    assert await asks(made, turn, 1, call("read", path="b")) == ["b"]
    await made.step(turn, 2)
    assert not (await made.finish(turn, "run-2", step=2)).more
    assert await made.told("status") == []


async def test_a_cancelled_turn_ends_the_replay_and_says_so(story: Story) -> None:
    await worked(story)
    made = await replayed(story, replay="session")
    turn = await made.begun()
    await made.cancel()
    assert not (await made.finish(turn, outcome="cancelled")).more
    (told,) = await made.told("status")
    assert told.body["text"] == (
        "Turns after 1 are not worked again, as this one ended: cancelled."
    )


async def test_a_steered_message_joins_at_the_step_at_which_it_did(story: Story) -> None:
    await story.send("first")
    turn = await story.begun("run-1")
    await story.step(turn, 1, [call("read")])
    await begin(story, turn, 1)
    await story.end_tool(turn)
    await story.send("rather so", mode="steer")
    await story.step(turn, 2)
    await story.finish(turn, "run-1", step=2)

    made = await replayed(story)
    turn = await made.begun()
    await asks(made, turn, 1, call("read"))
    assert "user: rather so" not in await made.transcript()
    await made.step(turn, 2)
    assert (await made.transcript())[3] == "user: rather so"


async def test_turns_that_were_rolled_back_are_worked_again_only_by_name(story: Story) -> None:
    await story.send("first")
    turn = await story.begun("run-1")
    await story.step(turn)
    await story.send("second", mode="rollback")
    await story.finish(turn, "run-1")
    turn = await story.begun("run-2", previous="run-1")
    await story.step(turn)
    await story.finish(turn, "run-2")

    made, named = await replayed(story, replay="session"), await replayed(story, "g", turn=1)
    await made.begun()
    await named.begun()
    assert await made.transcript() == ["user: second"]
    assert await named.transcript() == ["user: first"]
    # What a turn began with does not hold what had been taken back before it.
    third = await replayed(story, "h", turn=2)
    await third.begun()
    assert await story.store.context_tokens(third.key) == 7


async def test_there_must_be_a_turn_to_work_again(story: Story) -> None:
    with pytest.raises(UsageError, match="no turn that is over and could be worked again"):
        await replayed(story)
    await story.send("first")
    await story.begun("run-1")
    with pytest.raises(UsageError, match="no turn that is over"):
        await replayed(story, replay="session")
    with pytest.raises(UsageError, match="Turn 1 of session 's' is not over"):
        await replayed(story, turn=1)


async def test_a_replay_is_compared_with_what_it_repeats(story: Story) -> None:
    await worked(story)
    made = await replayed(story, turn=1)
    turn = await made.begun()
    await asks(made, turn, 1, call("read", path="a", lines=3))
    await asks(made, turn, 2, call("look"))
    await made.step(turn, 3)
    await made.finish(turn, step=3)

    traces = [await story.store.forks.trajectory(each.key, None) for each in (story, made)]
    found = difference(*traces)

    assert [
        (one.how, one.a and one.a.place, one.b and one.b.place) for one in found.turns[0].steps
    ][:2] == [("changed", "1.1", "1.1"), ("changed", "1.2", "1.2")]
    (same,) = found.turns[0].steps[0].calls
    assert (same.how, same.recorded_a, same.recorded_b) == ("same", False, True)
    assert traces[0].turns[0].said == "first"
    assert (found.totals_b.recorded_calls, found.totals_b.failed_calls) == (1, 1)
    # Its other turns were not worked again.
    assert len(found.turns) == 1
    assert (await story.store.session(made.key)).forked == ForkedFrom(
        session="s", turn=0, turns=(1,), unrecorded="refuse"
    )
    only = await story.store.forks.trajectory(story.key, 2)
    assert [one.turn for one in only.turns] == [2]
    with pytest.raises(UsageError, match="'s' has worked no turn 9 itself; its newest is 2"):
        await story.store.forks.trajectory(story.key, 9)


async def test_a_turn_of_more_steps_than_can_be_compared_is_refused_in_words_of_its_own(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = await called(story)
    await story.step(turn, 2)
    await story.finish(turn, "run-call", step=2)
    monkeypatch.setattr(trajectories, "STEPS_MAX", 1)
    for named, told in (
        (None, "Session 's' has 2 steps and 1 can be compared; name a turn."),
        (1, "Turn 1 of 's' has 2 steps and 1 can be compared; name another."),
    ):
        with pytest.raises(UsageError) as refused:
            await story.store.forks.trajectory(story.key, named)
        assert str(refused.value) == told


async def test_a_result_before_the_turn_that_is_worked_again_can_be_edited_too(
    story: Story,
) -> None:
    await worked(story)
    edit = EditedResult(turn=1, step=1, index=0, text="other")
    made = await replayed(story, turn=2, edits=[edit])
    assert "tool: call-0=other" in await made.transcript()


async def test_a_turn_is_worked_again_by_who_worked_it_unless_another_is_named(
    story: Story,
) -> None:
    await story.send("first", agent="named", model="openai/named")
    await works(story, "run-1")
    found = {}
    for name, wanted in (
        ("same", {}),
        ("model", {"model": "openai/other"}),
        ("agent", {"agent": "other"}),
    ):
        made = await replayed(story, name, **wanted)
        assignment = await story.store.assignment(made.key)
        assert assignment is not None
        found[name] = (assignment.agent, assignment.model)
    assert found == {
        "same": ("named", "openai/named"),
        "model": ("named", "openai/other"),
        "agent": ("other", None),
    }


async def test_turns_that_a_summary_stands_for_are_worked_again_like_others(story: Story) -> None:
    await worked(story)
    await in_session(story, lambda s: cuts.cut(s, "compaction", 1, s.message_pos, 2, "gist", 5))
    made = await replayed(story, replay="session")
    await made.begun()
    assert await made.transcript() == ["user: first"]
