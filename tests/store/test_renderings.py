"""What servers made of a message: one row that the first writer wins, before any step reads it."""

import pytest
from stories import Story

from everturn.errors import StaleHost
from everturn.mcp_prompts import Due, Rendering
from everturn.messages import PromptInvocation, ResourceMention, Text, UserMessage
from everturn.session import GatherTools, Mode, TurnHead
from everturn_activities.store import Inbound
from everturn_activities.store.sql_renderings import SqlRenderings

ASKED = PromptInvocation(name="mcp_a_greet", arguments="me")


@pytest.fixture
def renderings(story: Story) -> SqlRenderings:
    return SqlRenderings(story.store._database, lambda message: 100)  # type: ignore[attr-defined]


async def ask(story: Story, id_: str, mode: Mode = "queue") -> None:
    await story.store.accept(story.key, Inbound(id_, "message", UserMessage(parts=(ASKED,)), mode))


def gathering(story: Story, turn: TurnHead) -> GatherTools:
    return GatherTools(*story.key, turn.turn, turn.epoch)


def rendered(due: Due, text: str) -> Rendering:
    return Rendering(due, UserMessage(parts=(ASKED.model_copy(update={"text": text}),)))


async def read(story: Story) -> list[str | None]:
    views = await story.store.messages(story.key, 0, 100)
    parts = [part for view in views for part in getattr(view.message, "parts", ())]
    return [part.text for part in parts if isinstance(part, PromptInvocation | Text)]


async def test_the_first_rendering_stands_and_its_tokens_count(
    story: Story, renderings: SqlRenderings
) -> None:
    await ask(story, "a1")
    turn = await story.begun()
    unprepared = await story.prepare(turn)
    [due] = await renderings.due(story.key, turn.turn)
    # Two workers asked the server, and it answered each with another text.
    request = gathering(story, turn)
    for answer in ("first", "second"):
        await renderings.settle(request, [rendered(due, answer)])
    prepared = await story.prepare(turn)

    assert (unprepared.renders, unprepared.ready, unprepared.upto) == (True, False, 0)
    assert (prepared.renders, prepared.ready, prepared.upto) == (False, True, 1)
    assert prepared.tokens == 100
    assert await read(story) == ["first"]
    assert await renderings.due(story.key, turn.turn) == []


async def test_who_no_longer_hosts_the_session_renders_nothing(
    story: Story, renderings: SqlRenderings
) -> None:
    await ask(story, "a1")
    turn = await story.begun()
    [due] = await renderings.due(story.key, turn.turn)
    old = GatherTools(*story.key, turn.turn, turn.epoch - 1)
    with pytest.raises(StaleHost):
        await renderings.settle(old, [rendered(due, "late")])
    assert await read(story) == [None]


async def test_one_that_steers_is_admitted_once_it_is_rendered(
    story: Story, renderings: SqlRenderings
) -> None:
    await story.send("start")
    turn = await story.begun()
    await story.step(turn, 1, calls=["tool"])
    await ask(story, "a2", "steer")
    await story.begin_tool(turn)
    await story.end_tool(turn)
    unprepared = await story.prepare(turn, 2)
    before = await read(story)
    [due] = await renderings.due(story.key, turn.turn)
    await renderings.settle(gathering(story, turn), [rendered(due, "Greet me.")])
    prepared = await story.prepare(turn, 2)

    assert (unprepared.renders, prepared.renders) == (True, False)
    assert before == ["start", "text of step 1"]
    assert (await read(story))[-1] == "Greet me."
    assert [event.type for event in await story.told("message_admitted")] == [
        "message_admitted"
    ] * 2


async def test_one_that_was_not_rendered_does_not_hold_up_the_turn_after_its_own(
    story: Story, renderings: SqlRenderings
) -> None:
    await ask(story, "a1")
    turn = await story.begun()
    await story.finish(turn, outcome="failed", step=0)
    await story.send("next")
    after = await story.begun("run-2")
    assert (await story.prepare(after)).ready
    assert await read(story) == [None, "next"]


async def test_a_cancelled_turn_asks_no_server(story: Story) -> None:
    await ask(story, "a1")
    turn = await story.begun()
    await story.cancel()
    context = await story.prepare(turn)
    assert (context.cancelled, context.renders) == (True, False)


async def test_the_same_message_again_is_no_conflict_though_servers_have_come_and_gone(
    story: Story,
) -> None:
    mentioned = UserMessage(
        parts=(Text(text="Read @a:note:///x"), ResourceMention(server="a", uri="note:///x"))
    )
    await story.store.accept(story.key, Inbound("m1", "message", mentioned))
    await ask(story, "m2")
    assert (await story.send("Read @a:note:///x", id_="m1")).view.duplicate
    assert (await story.send("/mcp_a_greet me", id_="m2")).view.duplicate
