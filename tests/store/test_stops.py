"""Messages that stop the open turn, and messages that do not join as they ask."""

import pytest
from stories import SPEC, Story

from everturn.agents import Agent
from everturn.messages import AssistantMessage, Text, ToolMessage, UserMessage
from everturn_activities.store import Idle


async def started(story: Story) -> list[list[str]]:
    """The ids that each turn began with."""
    return [event.body["messages"] for event in await story.told("turn_started")]


async def test_an_interrupt_ends_the_open_turn_and_begins_the_next(story: Story) -> None:
    await story.send(id_="first")
    turn = await story.begun()
    accepted = await story.send("Stop\nhere. " * 9, "stop", mode="interrupt")
    assert (accepted.view.stops, accepted.view.queued, accepted.view.note) == (1, 1, None)
    assert (await story.check(turn.turn)).cancelled
    assert (await story.prepare(turn)).cancelled
    assert (await story.finish(turn, outcome="cancelled", reason="The turn was cancelled.")).more

    assert not (await story.begun("run-2", previous="run-1")).cancelled
    assert await started(story) == [["first"], ["stop"]]
    (finished,) = await story.told("turn_finished")
    assert finished.body["outcome"] == "cancelled"
    preview = "Stop here. " * 5 + "Stop…"
    assert finished.body["reason"] == f'Message "{preview}" interrupted the turn.'


async def test_messages_that_waited_before_an_interrupt_join_its_turn_in_order(
    story: Story,
) -> None:
    await story.send()
    turn = await story.begun()
    for name, mode in [("before", "queue"), ("stop", "interrupt"), ("after", "queue")]:
        await story.send(id_=name, mode=mode)
    await story.finish(turn, outcome="cancelled")
    await story.begun("run-2", previous="run-1")
    assert (await started(story))[1] == ["before", "stop", "after"]


async def test_an_interrupt_begins_the_next_turn_before_messages_for_other_agents(
    story: Story,
) -> None:
    await story.send()
    turn = await story.begun()
    await story.send(id_="other", agent="other")
    await story.send(id_="stop", mode="interrupt")
    await story.send(id_="after")
    await story.finish(turn, outcome="cancelled")

    assert (await story.store.assignment(story.key)).agent == "default"
    turn = await story.begun("run-2", previous="run-1")
    await story.finish(turn, run="run-2")
    # What came after it overtakes nobody.
    assert (await story.store.assignment(story.key)).agent == "other"
    turn = await story.begun("run-3", previous="run-2")
    await story.finish(turn, run="run-3")
    await story.begun("run-4", previous="run-3")
    assert (await started(story))[1:] == [["stop"], ["other"], ["after"]]


async def test_a_turn_that_ended_by_itself_before_the_interrupt_took_effect_stays_completed(
    story: Story,
) -> None:
    await story.send()
    turn = await story.begun()
    await story.step(turn)
    await story.send(id_="stop", mode="interrupt")
    await story.finish(turn)
    assert not (await story.begun("run-2", previous="run-1")).cancelled
    (finished,) = await story.told("turn_finished")
    assert (finished.body["outcome"], finished.body["reason"]) == ("completed", None)


async def test_a_cancel_that_came_before_the_interrupt_is_what_ended_the_turn(
    story: Story,
) -> None:
    await story.send()
    turn = await story.begun()
    await story.cancel()
    await story.send(mode="interrupt")
    await story.finish(turn, outcome="cancelled", reason="The turn was cancelled.")
    (finished,) = await story.told("turn_finished")
    assert finished.body["reason"] == "The turn was cancelled."


async def test_an_interrupt_sent_twice_leaves_the_turn_that_works_it_alone(story: Story) -> None:
    await story.send()
    turn = await story.begun()
    first = await story.send("stop", id_="stop", mode="interrupt")
    await story.finish(turn, outcome="cancelled")
    turn = await story.begun("run-2", previous="run-1")

    again = await story.send("stop", id_="stop", mode="interrupt")

    assert again.view.duplicate
    assert again.view.stops == first.view.stops == 1
    assert not (await story.check(turn.turn)).cancelled


@pytest.mark.parametrize(("mode", "does"), [("interrupt", "interrupt"), ("rollback", "roll back")])
async def test_what_finds_no_open_turn_to_stop_is_queued_and_says_so(
    story: Story, mode: str, does: str
) -> None:
    await story.send()
    await story.finish(await story.begun())
    accepted = await story.send(id_="late", mode=mode)  # type: ignore[arg-type]
    assert accepted.view.stops is None
    assert accepted.view.note == f"No turn is open that it could {does}; it is queued."
    assert not (await story.begun("run-2")).cancelled
    assert await started(story) == [["m1"], ["late"]]


async def test_what_is_accepted_tells_its_mode_and_its_place(story: Story) -> None:
    await story.send(id_="one")
    await story.send(id_="two")
    turn = await story.begun()
    await story.send(id_="three", mode="steer")
    await story.send(id_="four", mode="interrupt")
    told = await story.told("message_accepted")
    shown = [(e.turn, e.body["mode"], e.body["queued"], e.body["stops"]) for e in told]
    assert shown == [
        (0, "queue", 1, None),
        (0, "queue", 2, None),
        (turn.turn, "steer", 1, None),
        (turn.turn, "interrupt", 2, 1),
    ]


async def test_every_admitted_message_tells_at_which_step_it_joined(story: Story) -> None:
    await story.send(id_="one")
    turn = await story.begun()
    await story.step(turn, calls=["t"])
    await story.send(id_="two", mode="steer")
    await story.prepare(turn, step=2)
    told = await story.told("message_admitted")
    assert [(e.body["message_id"], e.turn, e.step) for e in told] == [("one", 1, 1), ("two", 1, 2)]


@pytest.mark.parametrize("names", [{"agent": "other"}, {"model": "openai/other"}])
async def test_a_steered_message_for_another_agent_or_model_waits_for_a_turn_of_its_own(
    story: Story, names: dict[str, str]
) -> None:
    await story.send(id_="one")
    turn = await story.begun()
    accepted = await story.send(id_="two", mode="steer", **names)  # type: ignore[arg-type]
    assert accepted.view.note == (
        "Turn 1 runs another agent or model than it names; it is queued for a turn of its own."
    )
    await story.step(turn)
    assert await story.transcript() == ["user: hello", "assistant: text of step 1"]
    assert (await story.finish(turn)).more
    await story.begun("run-2", previous="run-1")
    assert await started(story) == [["one"], ["two"]]


async def test_a_steered_message_that_names_the_turns_own_agent_and_model_joins_it(
    story: Story,
) -> None:
    await story.send(id_="one", agent="other", model="openai/one")
    spec = SPEC.model_copy(update={"agent": Agent(name="other", model="openai/one")})
    turn = await story.begun(spec=spec)
    for name, more in [
        ("two", {"agent": "other", "model": "openai/one"}),
        ("three", {"model": "openai/one"}),
        ("four", {}),
    ]:
        accepted = await story.send(name, id_=name, mode="steer", **more)
        assert accepted.view.note is None
    await story.prepare(turn)
    assert await story.transcript() == ["user: hello", "user: two", "user: three", "user: four"]


async def rolled_back(story: Story) -> None:
    """A turn that was rolled back in its second step, after one that stands."""
    await story.send("stands", id_="a")
    first = await story.begun()
    await story.step(first)
    await story.finish(first)
    await story.send("falls", id_="b")
    turn = await story.begun("run-2")
    await story.step(turn, calls=["t"])
    await story.send("falls too", id_="c", mode="steer")
    await story.prepare(turn, step=2)
    accepted = await story.send("instead", id_="d", mode="rollback")
    assert accepted.view.stops == 2
    assert (await story.check(turn.turn)).cancelled
    await story.finish(turn, run="run-2", outcome="cancelled", step=1)


async def test_a_rolled_back_turn_leaves_the_context_and_says_what_it_had_admitted(
    story: Story,
) -> None:
    await rolled_back(story)
    turn = await story.begun("run-3", previous="run-2")
    context = await story.prepare(turn)

    assert turn.turn == 3
    sent = (await story.store.history(story.key, context.extent)).whole
    assert [said(message) for message in sent] == ["stands", "text of step 1", "instead"]
    assert context.tokens == 7 * len(sent)
    assert (await started(story))[2] == ["d"]
    told = await story.told("message_rolled_back")
    assert [(e.turn, e.body["message_id"]) for e in told] == [(2, "b"), (2, "c")]
    assert [e.body["text"] for e in told] == ["falls", "falls too"]
    finished = (await story.told("turn_finished"))[1].body
    assert (finished["outcome"], finished["text"]) == ("rolled_back", "")
    assert finished["reason"] == (
        'Message "instead" rolled the turn back; files that its tools changed are put back,'
        " all else that they did stands."
    )
    assert [t.outcome for t in await story.store.turns(story.key)][:2] == [
        "completed",
        "rolled_back",
    ]


async def test_a_message_that_was_rolled_back_answers_so_and_is_not_worked_again(
    story: Story,
) -> None:
    await rolled_back(story)
    again = await story.send("falls", id_="b")
    assert (again.view.duplicate, again.view.status) == (True, "rolled_back")
    assert (await story.send("stands", id_="a")).view.status == "accepted"
    turn = await story.begun("run-3", previous="run-2")
    await story.finish(turn, run="run-3")
    assert isinstance(await story.begin("run-4"), Idle)


async def test_a_rollback_holds_though_the_turn_ended_by_itself_meanwhile(story: Story) -> None:
    await story.send(id_="a")
    turn = await story.begun()
    await story.step(turn)
    await story.send(id_="b", mode="interrupt")
    await story.send(id_="c", mode="rollback")
    assert (await story.finish(turn)).more
    assert (await story.finish(turn)).more
    (finished,) = await story.told("turn_finished")
    assert finished.body["outcome"] == "rolled_back"
    assert len(await story.told("message_rolled_back")) == 1
    await story.begun("run-2", previous="run-1")
    assert (await started(story))[1] == ["b", "c"]


async def test_a_rollback_can_be_rolled_back_itself(story: Story) -> None:
    await rolled_back(story)
    turn = await story.begun("run-3", previous="run-2")
    await story.send("once more", id_="e", mode="rollback")
    await story.finish(turn, run="run-3", outcome="cancelled")
    turn = await story.begun("run-4", previous="run-3")
    context = await story.prepare(turn)
    sent = (await story.store.history(story.key, context.extent)).whole
    assert [said(message) for message in sent] == ["stands", "text of step 1", "once more"]
    told = await story.told("message_rolled_back")
    assert [e.body["message_id"] for e in told] == ["b", "c", "d"]


def said(message: UserMessage | AssistantMessage | ToolMessage) -> str:
    assert not isinstance(message, ToolMessage)
    return "".join(part.text for part in message.parts if isinstance(part, Text))
