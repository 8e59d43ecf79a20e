"""Forks: what a session takes over of another, and that the other never hears of it."""

from dataclasses import replace

import pytest
import sqlalchemy as sa
from stories import ME, SPEC, Story

from everturn.budgets import Budget
from everturn.errors import IdempotencyConflict, UsageError
from everturn.forks import EditedResult, ForkedFrom, ForkSession
from everturn.mcp import Server, ServerConfig
from everturn.messages import AssistantMessage, Text, user_text
from everturn.session import SessionKey, TurnHead
from everturn_activities.store import ForkFolder, Wake, cuts, schema, snapshots
from everturn_activities.store.database import Tx
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.sql import SqlStore

SHARED = ForkFolder("shared", "/workspace")


def named(story: Story, name: str) -> Story:
    return replace(story, key=SessionKey(story.key.tenant, name))


async def fork(story: Story, name: str = "f", **wanted: object) -> Story:
    body = ForkSession.model_validate(wanted)
    made = named(story, name)
    await story.store.forks.fork(story.key, made.key, body, SHARED)
    return made


async def worked(story: Story, *texts: str) -> None:
    """A whole turn of one step for each text."""
    for text in texts:
        await story.send(text)
        turn = await story.begun(f"run-{text}")
        await story.step(turn)
        await story.finish(turn, f"run-{text}")


async def called(story: Story, result: str = "ok") -> TurnHead:
    """An open turn, whose one step has called a tool that gave `result`."""
    await story.send("go")
    turn = await story.begun("run-call")
    await story.step(turn, calls=["tool"])
    await story.begin_tool(turn)
    await story.end_tool(turn, text=result)
    return turn


async def in_session(story: Story, change: object) -> None:
    assert isinstance(story.store, SqlStore)
    database = story.store._database

    def changed(tx: Tx) -> None:
        session = LockedSession(tx, story.key)
        change(session)  # type: ignore[operator]
        session.save()

    await database.write(changed)


async def test_a_fork_begins_as_its_origin_did_and_goes_its_own_way(story: Story) -> None:
    await worked(story, "one", "two")
    before, events = await story.transcript(), await story.told()

    made = await fork(story, turn=1)

    assert await made.transcript() == before[:2]
    await made.send("other")
    turn = await made.begun()
    context = await made.prepare(turn)
    assert (turn.turn, context.upto, context.tokens) == (2, 3, 21)
    (told,) = await made.told("session_forked")
    assert (told.body["session"], told.body["at_turn"], told.body["messages"]) == ("s", 1, 2)
    assert (await story.store.session(made.key)).forked == ForkedFrom(session="s", turn=1)
    # Of all that the origin hears nothing.
    assert await story.transcript() == before
    assert await story.told() == events
    assert (await story.store.session(story.key)).forked is None


async def test_a_fork_has_spent_nothing_and_draws_on_no_budget_of_its_origin(story: Story) -> None:
    await worked(story, "one")
    await story.store.put_budget("default", "session", "s", Budget(steps=1))

    made = await fork(story)

    view = await story.store.session(made.key)
    assert (view.usage.model_calls, view.usage.cost_usd, view.title) == (0, 0.0, "one")
    await worked(made, "more")
    assert (await story.store.session(made.key)).usage.model_calls == 1
    assert (await story.store.session(story.key)).usage.model_calls == 1


async def test_a_fork_under_a_tenants_budget_is_held_to_it(story: Story) -> None:
    await worked(story, "one")
    await story.store.put_budget("default", "tenant", None, Budget(steps=100))
    made = await fork(story)
    await made.send("more")
    assert (await made.prepare(await made.begun())).budgeted


async def test_a_fork_from_a_step_has_its_results_and_nothing_behind_it(story: Story) -> None:
    turn = await called(story)
    await story.step(turn, 2)

    made = await fork(story, turn=1, step=1)

    assert await made.transcript() == ["user: go", "assistant: text of step 1", "tool: call-0=ok"]


async def test_finished_steps_of_a_running_turn_are_forked_and_no_other(story: Story) -> None:
    await story.send("go")
    turn = await story.begun()
    with pytest.raises(UsageError, match="nothing yet to begin with"):
        await fork(story)
    await story.step(turn, calls=["tool", "tool"])
    await story.begin_tool(turn)
    await story.end_tool(turn)
    with pytest.raises(UsageError, match=r"1\.1 .*is not finished: 1 of its calls has"):
        await fork(story, turn=1, step=1)
    await story.begin_tool(turn, 1)
    await story.end_tool(turn, 1)
    with pytest.raises(UsageError, match=r"Turn 1 of session 's' is not over; name step 1\.1,"):
        await fork(story, turn=1)

    made = await fork(story)

    # Its results stand in no message of the origin yet.
    assert (await made.transcript())[2:] == ["tool: call-0=ok, call-1=ok"]
    assert (await story.store.session(made.key)).forked == ForkedFrom(session="s", turn=1, step=1)
    await story.prepare(turn, 2)
    with pytest.raises(UsageError, match=r"1\.2 of session 's' is not finished: it has no reply"):
        await fork(story, "g", turn=1, step=2)


async def test_steps_that_are_not_there_are_refused_by_name(story: Story) -> None:
    with pytest.raises(UsageError, match="nothing yet to begin with"):
        await fork(story)
    await worked(story, "one")
    with pytest.raises(UsageError, match="no turn 2; its newest is 1"):
        await fork(story, turn=2)
    with pytest.raises(UsageError, match=r"no step 1\.9 of its own; the last .* is 1\.1"):
        await fork(story, turn=1, step=9)


async def test_the_same_fork_again_is_the_same_session_and_another_is_refused(story: Story) -> None:
    await worked(story, "one")
    body = ForkSession(message="go on")

    async def again(wanted: ForkSession = body) -> Wake | None:
        made = SessionKey("default", "f")
        return await story.store.forks.fork(story.key, made, wanted, SHARED)

    assert (await again()) is not None
    # Nobody has looked yet, so whoever asks again wakes it again.
    assert (await again()) is not None
    made = named(story, "f")
    assert len(await made.told("message_accepted")) == 1
    await made.begun()
    assert (await again()) is None
    with pytest.raises(IdempotencyConflict, match="a session 'f' already, which is not this fork"):
        await again(ForkSession(message="go on", model="openai/other"))
    with pytest.raises(IdempotencyConflict):
        await story.store.forks.fork(story.key, story.key, body, SHARED)


async def test_a_compaction_that_came_later_is_not_in_a_fork_from_before(story: Story) -> None:
    await worked(story, "one", "two")
    await in_session(story, lambda s: cuts.cut(s, "compaction", 1, 2, 1, "the gist", 5))
    await worked(story, "three")

    later, earlier = await fork(story, "later"), await fork(story, "earlier", turn=2)

    for made, tokens in ((later, 5 + 4 * 7), (earlier, 4 * 7)):
        await made.send("on")
        context = await made.prepare(await made.begun())
        assert context.tokens == tokens + 7
    # Undone in the fork, it stands in the origin.
    await story.store.undo_compaction(later.key)
    assert await story.store.context_tokens(story.key) == 5 + 4 * 7


async def test_a_turn_that_was_rolled_back_is_in_no_fork_but_one_from_itself(story: Story) -> None:
    await worked(story, "one")
    await story.send("two")
    turn = await story.begun("run-2")
    await story.step(turn)
    await story.send("instead", mode="rollback")
    await story.finish(turn, "run-2", outcome="cancelled")
    turn = await story.begun("run-3", previous="run-2")
    await story.step(turn)
    await story.finish(turn, "run-3")
    assert turn.turn == 3

    counts = {}
    for name, at in (("whole", None), ("three", 3), ("two", 2), ("step", (2, 1)), ("one", 1)):
        turn_at, step = at if isinstance(at, tuple) else (at, None)
        made = await fork(story, name, turn=turn_at, step=step)
        counts[name] = await story.store.context_tokens(made.key) // 7

    assert counts == {"whole": 4, "three": 4, "two": 4, "step": 4, "one": 2}
    assert "user: two" in await named(story, "two").transcript()


async def test_a_fork_while_a_turn_has_no_step_yet_leaves_out_what_its_origin_does(
    story: Story,
) -> None:
    await worked(story, "one", "two", "three")
    await story.store.forks.rewind(story.key, 2, None)
    await story.send("four")
    turn = await story.begun("run-4")
    await story.prepare(turn)

    rewound = await fork(story, "rewound")

    assert await story.store.context_tokens(rewound.key) // 7 == 4
    await story.step(turn)
    await story.send("instead", mode="rollback")
    await story.finish(turn, "run-4", outcome="cancelled")
    await story.begun("run-5", previous="run-4")

    rolled_back = await fork(story, "rolled-back")

    assert await story.store.context_tokens(rolled_back.key) // 7 == 4


async def test_forks_of_forks_and_of_conversations_from_elsewhere(story: Story) -> None:
    other = named(story, "i")
    await story.store.create_session(other.key, await settings(story))
    said = [user_text("long ago"), AssistantMessage(parts=(Text(text="yes"),))]
    await story.store.import_messages(other.key, said)
    await worked(other, "one", "two")

    made = await fork(other, turn=2, step=1)
    await worked(made, "three")
    again = await fork(made, "ff", turn=1, step=1)

    assert len(await made.transcript()) == 8
    assert await again.transcript() == (await other.transcript())[:4]
    assert (await story.store.session(again.key)).forked == ForkedFrom(session="f", turn=1, step=1)
    with pytest.raises(UsageError, match=r"no step 1\.2 of its own; there are none"):
        await fork(made, "gg", turn=1, step=2)
    assert len(await (await fork(made, "hh", turn=3)).transcript()) == 8


async def settings(story: Story):  # type: ignore[no-untyped-def]
    from everturn_activities.store import SessionSettings

    return SessionSettings("/workspace", "/workspace")


async def test_an_edited_result_stands_in_the_fork_alone(story: Story) -> None:
    turn = await called(story, "the sun")
    await story.step(turn, 2)
    await story.finish(turn, "run-call", step=2)
    edit = EditedResult(turn=1, step=1, index=0, text="the moon")

    made = await fork(story, edits=[edit])

    assert "tool: call-0=the moon" in await made.transcript()
    assert "tool: call-0=the sun" in await story.transcript()
    (told,) = await made.told("session_forked")
    assert told.body["edits"] == ["1.1.0"]
    for wrong in ({"index": 1}, {"step": 2}, {"turn": 2}):
        with pytest.raises(UsageError, match="There is no result"):
            await fork(story, "g", edits=[edit.model_copy(update=wrong)])
    with pytest.raises(UsageError, match="There is no result"):
        await fork(story, "g", turn=1, step=1, edits=[edit.model_copy(update={"step": 2})])


async def test_a_result_that_only_a_summary_tells_of_cannot_be_edited(story: Story) -> None:
    turn = await called(story)
    await story.step(turn, 2)
    await story.finish(turn, "run-call", step=2)
    await in_session(story, lambda s: cuts.cut(s, "compaction", 1, 3, 1, "the gist", 5))
    edit = EditedResult(turn=1, step=1, index=0, text="x")
    with pytest.raises(UsageError, match=r"1\.1\.0 is no longer sent: a compaction left it out"):
        await fork(story, edits=[edit])


async def test_what_was_cut_of_a_result_can_be_read_in_the_fork(story: Story) -> None:
    await story.send("go")
    turn = await story.begun()
    await story.step(turn, calls=["tool"])
    await story.begin_tool(turn)
    await story.end_tool(turn, text="the beg...", whole="the beginning and the end")
    await story.step(turn, 2, ["tool"])
    at = (turn.turn, 2, 0, turn.epoch, ME, False)
    await story.store.begin_tool(story.key, *at)
    await story.end_tool(turn, step=2, text="the beg...", whole="another")
    made = await fork(story, turn=1, step=1)
    whole = await story.store.whole_result(made.key, 1, 1, 0)
    assert whole == "the beginning and the end"
    assert await story.store.whole_result(made.key, 1, 2, 0) is None
    # Nothing of it is counted as work of the fork's.
    assert await story.store.durations("tool", "tool", 10) == [0.1, 0.1]


async def test_a_fork_answers_with_other_agent_and_model_where_these_are_named(
    story: Story,
) -> None:
    await worked(story, "one")
    made = await fork(story, model="openai/other")
    view = await story.store.session(made.key)
    assert (view.agent, view.model) == ("default", "openai/other")
    assert SPEC.agent.model != "openai/other"


async def test_what_a_model_is_told_after_a_cut_reply_is_no_part_of_that_step(story: Story) -> None:
    await story.send("go")
    turn = await story.begun()
    context = await story.prepare(turn)
    await story.reply(context, await story.start(context), "half", stop="max_tokens")
    await story.prepare(turn, 2)
    assert len(await story.transcript()) == 3
    made = await fork(story, turn=1, step=1)
    assert await made.transcript() == ["user: go", "assistant: half"]


async def test_calls_that_a_turns_end_left_are_answered_and_their_step_can_be_forked(
    story: Story,
) -> None:
    await story.send("go")
    turn = await story.begun()
    await story.step(turn, calls=["tool"])
    await story.begin_tool(turn)
    await story.cancel()
    await story.finish(turn, outcome="cancelled")
    made = await fork(story, turn=1, step=1)
    assert (await made.transcript())[-1] == "tool: call-0=The call did not run to its end."


async def test_a_step_whose_hooks_have_not_spoken_is_not_finished(story: Story) -> None:
    await called(story)
    waits = sa.update(schema.tool_calls).values(followed=1)
    await in_session(story, lambda s: s.tx.connection.execute(waits))
    with pytest.raises(UsageError, match="1 of its calls has no result"):
        await fork(story, turn=1, step=1)


async def test_summaries_count_for_turns_without_steps_and_for_those_that_came_along(
    story: Story,
) -> None:
    await worked(story, "one")
    await in_session(story, lambda s: cuts.cut(s, "compaction", 1, 2, 1, "the gist", 5))
    await story.send("two")
    await story.finish(await story.begun("run-2"), "run-2", outcome="failed")
    made = await fork(story, turn=2)
    assert await story.store.context_tokens(made.key) == 5 + 7
    again = await fork(made, "ff", turn=1)
    assert await story.store.context_tokens(again.key) == 5


async def test_a_fork_has_the_tools_and_the_texts_that_stand_for_its_origin(story: Story) -> None:
    await worked(story, "one")

    def stand(session: LockedSession) -> None:
        session.served, session.useful = '{"default": 1}', "search"
        connection = session.tx.connection
        digest = snapshots.keep(connection, "The folder is /workspace.")
        own = {"sid": session.sid, "agent": "default"}
        layer = {**own, "layer": "folder", "digest": digest}
        connection.execute(sa.insert(schema.session_layers), layer)
        server = Server(name="files", config=ServerConfig(command="x"))
        pinned = {**own, "server": "files", "body": server.model_dump_json(), "home": "w"}
        connection.execute(sa.insert(schema.served_tools), pinned)

    await in_session(story, stand)
    made, own = await fork(story), named(story, "own")
    folder = ForkFolder("copy", "/workspace", "/own")
    await story.store.forks.fork(story.key, own.key, ForkSession(), folder)

    for each in (made, own):
        assert [s.name for s in await story.store.served_tools(each.key, "default")] == ["files"]
        assert await story.store.home(each.key, "default", "files") is None
        await each.send("on")
        assignment = await story.store.assignment(each.key)
        assert assignment is not None
        assert (assignment.served, assignment.useful) == ({"default": 1}, ("search",))
    # In another folder they are gathered anew.
    layers = [await story.store.session_layers(each.key, "default") for each in (made, own)]
    assert layers == [{"folder": "The folder is /workspace."}, {}]


async def test_a_fork_has_the_cuts_that_were_in_force_and_keeps_them(story: Story) -> None:
    await worked(story, "one", "two")
    await in_session(story, lambda s: cuts.cut(s, "compaction", 1, 2, 1, "the gist", 5))
    await worked(story, "three")
    await story.store.undo_compaction(story.key)
    now, then = await fork(story, "now"), await fork(story, "then", turn=3)
    assert await story.store.context_tokens(now.key) == 6 * 7
    assert await story.store.context_tokens(then.key) == 5 + 4 * 7
    # What was undone there later is none of its own changes.
    await story.store.forks.rewind(then.key, 2, None)
    assert await story.store.context_tokens(then.key) == 5 + 2 * 7


async def test_a_fork_has_no_summary_of_what_it_has_not(story: Story) -> None:
    await worked(story, "one", "two")
    await in_session(story, lambda s: cuts.cut(s, "compaction", 1, 4, 1, "the gist", 5))
    made = await fork(story)
    assert await story.store.context_tokens(made.key) == 5
    assert await story.store.context_tokens((await fork(made, "ff", turn=1)).key) == 2 * 7


async def test_what_a_forks_folder_holds_is_told_once(story: Story) -> None:
    await worked(story, "one")
    own = named(story, "own")
    folder = ForkFolder("copy", "/workspace", "/own")
    await story.store.forks.fork(story.key, own.key, ForkSession(message="on"), folder)
    turn = await own.begun()
    for _ in range(2):
        await own.store.folder_made(own.key, turn.turn, turn.epoch, "Files are as at 1.")
    assert [event.body["text"] for event in await own.told("status")] == ["Files are as at 1."]
