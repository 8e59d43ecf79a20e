"""Which home has what a session works in, and which have file checkpoints of its turns."""

from dataclasses import replace

from stories import SPEC, Story

from everturn.mcp import Server, ServerConfig
from everturn.session import AwaitHome, FinishTurn, GatherTools, SessionKey
from everturn_activities.store import SessionSettings


async def test_each_home_is_said_once_a_turn_and_found_from_a_turn_on(story: Story):
    for turn, home in ((1, "one"), (1, "one"), (1, "two"), (3, "two")):
        await story.store.note_record(story.key, turn, home)
    assert await story.store.record_homes([(story.key, 1)]) == {"one", "two"}
    assert await story.store.record_homes([(story.key, 2)]) == {"two"}
    assert await story.store.record_homes([(story.key, 4)]) == frozenset()


async def test_the_homes_of_executors_are_found_with_the_sessions(story: Story):
    child = SessionKey(story.key.tenant, "child")
    await story.store.create_session(child, SessionSettings("/workspace", "/workspace"))
    await story.store.note_record(child, 1, "three")
    assert await story.store.record_homes([(story.key, 1), (child, 1)]) == {"three"}


async def test_a_folder_is_claimed_once_until_it_is_given_up(story: Story):
    key = SessionKey(story.key.tenant, "own")
    opened = SessionSettings("/workspace", "/workspace", folder="copy", own_dir="/a/folder")
    await story.store.create_session(key, opened)
    for home in ("one", "two"):
        known = await story.store.claim_folder(key, home, f"/{home}/folder")
        assert (known.home, known.own_dir, known.due) == ("one", "/one/folder", True)
    await story.store.release_folder(key)
    known = await story.store.claim_folder(key, "two", "/two/folder")
    assert (known.home, known.own_dir) == ("two", "/two/folder")


async def test_a_folder_that_is_given_up_takes_the_servers_that_worked_in_it_along(story: Story):
    own = replace(story, key=SessionKey(story.key.tenant, "own"))
    opened = SessionSettings("/workspace", "/workspace", folder="copy", own_dir="/a/folder")
    await own.store.create_session(own.key, opened)
    await own.store.claim_folder(own.key, "one", "/one/folder")
    server = Server(name="files", config=ServerConfig(command="x", stateful=True))
    spec = SPEC.model_copy(update={"servers": (server,)})
    await own.send()
    turn = await own.begun(spec=spec)
    await own.store.settle_servers(
        GatherTools(*own.key, turn.turn, turn.epoch), spec, [], "one-worker"
    )
    ending = FinishTurn(*own.key, own.key.workflow_id, "run-1", turn.turn, turn.epoch, 0, "failed")
    await own.store.finish_turn(ending)
    assert await own.store.home(own.key, "default", "files") == "one-worker"

    await own.store.release_folder(own.key)

    # Its worker may live on, at a home that has nothing of the session's.
    assert await own.store.home(own.key, "default", "files") is None


async def test_a_run_that_goes_on_with_a_turn_is_told_its_home(story: Story):
    own = replace(story, key=SessionKey(story.key.tenant, "own"))
    opened = SessionSettings("/workspace", "/workspace", folder="copy", own_dir="/a/folder")
    await own.store.create_session(own.key, opened)
    await own.store.claim_folder(own.key, "one", "/one/folder")
    await own.send()
    begun = await own.begun("run-1")
    went_on = await own.begun("run-2", previous="run-1")
    assert (begun.turn, begun.home) == (went_on.turn, went_on.home) == (1, "one")


async def test_a_session_without_a_folder_of_its_own_has_no_home(story: Story):
    known = await story.store.claim_folder(story.key, "one", "/one/folder")
    assert (known.home, known.own_dir) == (None, None)


async def test_that_nobody_works_at_a_home_is_told_once_a_step(story: Story):
    await story.send()
    turn = (await story.begun()).turn
    for at in ("1", "1", "2"):
        await story.store.home_away(AwaitHome(*story.key, turn, "one", at), f"away at {at}")
    told = [event.body["text"] for event in await story.told("status")]
    assert told == ["away at 1", "away at 2"]
