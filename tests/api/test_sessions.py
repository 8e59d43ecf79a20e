"""Sessions, messages and cancels over HTTP."""

import asyncio

import httpx
import pytest

from everturn.client import Client
from everturn.errors import (
    IdempotencyConflict,
    TooLarge,
    UnknownAgent,
    UnknownModel,
    UnknownSession,
    UsageError,
    WorkspaceError,
)
from everturn.executors import Delegation, ExecutorRules
from everturn.inputs import TEXT_BYTES_MAX
from everturn.messages import Image, Text, UserMessage
from everturn.session import SessionKey
from everturn_activities.store import Handed
from everturn_workers import front


async def test_a_session_is_created_in_the_servers_workspace_and_listed(client, runtime):
    created = await client.create_session("s")

    assert created.workspace == str(runtime.workspace)
    assert (await client.session("s")).status == "idle"
    assert [view.id for view in (await client.sessions()).sessions] == ["s"]


async def test_the_same_session_id_again_answers_with_the_same_session(client):
    first = await client.create_session("s", agent="default")
    again = await client.create_session("s")

    assert again == first


async def test_a_known_session_id_with_other_settings_is_a_conflict_that_names_them(
    served, client, runtime
):
    elsewhere = runtime.folder / "elsewhere"
    elsewhere.mkdir()
    made = await client.create_session("s", model="openai/gpt-5-mini")
    # The same folder by another name is no difference.
    link = runtime.folder / "link"
    link.symlink_to(runtime.workspace)
    assert await client.create_session("s", workspace=str(link)) == made

    other = {"id": "s", "model": "openai/gpt-5", "working_dir": str(elsewhere)}
    async with httpx.AsyncClient(base_url=served.url) as http:
        answer = await http.post("/v1/sessions", json=other)

    assert answer.status_code == 409
    assert answer.json()["detail"] == (
        "Session 's' was created with model 'openai/gpt-5-mini', not 'openai/gpt-5', and with"
        f" working_dir {str(runtime.workspace)!r}, not {str(elsewhere)!r}; leave model and"
        " working_dir out, or use another session."
    )
    assert await client.session("s") == made


async def test_pages_of_sessions_lead_through_all_of_them(client):
    made = [f"s{number}" for number in range(5)]
    for name in made:
        await client.create_session(name)

    found, before = [], None
    while True:
        page = await client.sessions(limit=2, before=before)
        found += [view.id for view in page.sessions]
        if (before := page.before) is None:
            break

    assert sorted(found) == made


async def test_a_message_is_committed_and_wakes_its_session(client, runtime):
    await client.create_session("s")

    accepted = await client.send("s", "hello", id="m1")

    assert (accepted.id, accepted.duplicate, accepted.turn) == ("m1", False, 0)
    assert [wake.key.session for wake in runtime.waker.woken] == ["s"]
    assert (await client.session("s")).waiting == 1


async def test_a_message_is_accepted_while_temporal_is_away(served, client, runtime):
    await client.create_session("s")
    runtime.waker.reachable = False

    async with httpx.AsyncClient(base_url=served.url) as http:
        answer = await http.post("/v1/sessions/s/messages", json={"text": "hello"})

    assert answer.status_code == 202
    assert (await client.session("s")).waiting == 1


async def test_a_wake_up_that_is_late_goes_on_after_its_sender_was_answered(
    client, runtime, monkeypatch
):
    monkeypatch.setattr(front, "WAKE_SECONDS", 0.01)
    await client.create_session("s")
    runtime.waker.busy = asyncio.Event()

    await client.send("s", "hello", id="m1")
    assert runtime.waker.woken == []

    runtime.waker.busy.set()
    async with asyncio.timeout(5):
        while not runtime.waker.woken:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_the_same_message_id_again_changes_nothing(client):
    await client.create_session("s")
    first = await client.send("s", "hello", id="m1")

    again = await client.send("s", "hello", id="m1")

    assert again.duplicate
    assert again.position == first.position
    assert (await client.session("s")).waiting == 1


async def test_one_id_with_two_texts_is_a_conflict(client):
    await client.create_session("s")
    await client.send("s", "hello", id="m1")

    with pytest.raises(IdempotencyConflict):
        await client.send("s", "good bye", id="m1")


async def test_messages_and_turns_are_read_back(client, runtime):
    await client.create_session("s")
    await client.send("s", "hello")
    await runtime.work("s", "good ", "day")

    messages = (await client.messages("s")).messages
    [turn] = await client.turns("s")

    assert [view.message.role for view in messages] == ["user", "assistant"]
    assert messages[1].message.text == "good day"
    assert (turn.outcome, turn.steps[0].usage.output_tokens) == ("completed", 3)


async def test_an_image_reaches_the_transcript_as_it_was_sent(client, runtime):
    await client.create_session("s")
    message = UserMessage(
        parts=(Text(text="what is it?"), Image(media_type="image/png", data="aGVsbG8="))
    )

    await client.send("s", message)
    await runtime.work("s", "a cat")

    assert (await client.messages("s")).messages[0].message == message


async def test_a_cancel_reaches_the_open_turn(client, runtime):
    await client.create_session("s")
    await client.send("s", "hello")
    head = await runtime.begin("s")

    accepted = await client.cancel("s")

    assert accepted.status == "accepted"
    assert await runtime.store.cancelled(SessionKey("default", "s"), head.turn)


async def test_a_cancel_without_an_open_turn_is_too_late(client):
    await client.create_session("s")

    assert (await client.cancel("s")).status == "too_late"


async def test_a_cancel_needs_no_body(client, runtime, served):
    await client.create_session("s")
    await client.send("s", "hello")
    head = await runtime.begin("s")

    async with httpx.AsyncClient(base_url=served.url) as http:
        answer = await http.post("/v1/sessions/s/cancel")

    assert (answer.status_code, answer.json()["status"]) == (202, "accepted")
    assert await runtime.store.cancelled(SessionKey("default", "s"), head.turn)


@pytest.mark.parametrize("mode", ["interrupt", "rollback"])
async def test_a_message_can_stop_the_open_turn(client, runtime, mode):
    await client.create_session("s")
    await client.send("s", "hello")
    head = await runtime.begin("s")

    accepted = await client.send("s", "instead", mode=mode)

    assert (accepted.stops, accepted.queued, accepted.note) == (1, 1, None)
    assert await runtime.store.cancelled(SessionKey("default", "s"), head.turn)


async def test_a_message_that_does_not_join_as_it_asks_is_told_why(client):
    await client.create_session("s")

    accepted = await client.send("s", "instead", mode="rollback")

    assert accepted.note == "No turn is open that it could roll back; it is queued."


async def test_an_unknown_mode_is_refused_with_those_there_are(client, served):
    await client.create_session("s")

    async with httpx.AsyncClient(base_url=served.url) as http:
        answer = await http.post("/v1/sessions/s/messages", json={"text": "x", "mode": "later"})

    assert answer.status_code == 422
    assert answer.json()["detail"] == (
        "Field 'mode' is wrong: input should be 'queue', 'steer', 'interrupt' or 'rollback';"
        " correct it and send again."
    )


async def test_an_unknown_session_is_named(client):
    with pytest.raises(UnknownSession, match="nobody"):
        await client.send("nobody", "hello")


@pytest.mark.parametrize("name", ["a b", "x" * 201, "ü", "a/b", ""])
async def test_an_impossible_session_id_is_refused_with_the_limit(served, name):
    async with httpx.AsyncClient(base_url=served.url) as http:
        answer = await http.post("/v1/sessions", json={"id": name})

    assert answer.status_code == 422
    assert "1 to 200 letters" in answer.json()["detail"]


async def test_an_unknown_model_is_refused_before_anything_is_kept(client):
    await client.create_session("s")

    with pytest.raises(UnknownModel, match="gpt"):
        await client.send("s", "hello", model="gpt")

    assert (await client.session("s")).waiting == 0


async def test_an_unknown_agent_is_refused(client):
    await client.create_session("s")

    with pytest.raises(UnknownAgent, match="stranger"):
        await client.send("s", "hello", agent="stranger")
    with pytest.raises(UnknownAgent, match="stranger"):
        await client.create_session(agent="stranger")


async def test_a_workspace_must_be_an_existing_absolute_folder(client, runtime):
    with pytest.raises(UsageError, match="absolute path"):
        await client.create_session(workspace="relative")
    with pytest.raises(UsageError, match="absolute path"):
        await client.create_session(workspace="/nowhere/at/all")
    (empty := runtime.folder / "empty").mkdir()
    with pytest.raises(WorkspaceError, match="everturn init"):
        await client.create_session(workspace=str(empty))
    with pytest.raises(UsageError, match="is the home folder"):
        await client.create_session(workspace=str(runtime.folder))


async def test_a_text_above_the_limit_is_refused_with_limit_and_mend(client):
    await client.create_session("s")

    await client.send("s", "x" * TEXT_BYTES_MAX)
    with pytest.raises(TooLarge, match=r"262,145 bytes .* limit is 262,144; put it into a file"):
        await client.send("s", "x" * (TEXT_BYTES_MAX + 1))


async def test_a_message_of_ten_megabytes_is_refused_in_one_sentence(client):
    await client.create_session("s")

    with pytest.raises(TooLarge, match=r"limit is 262,144; put it into a file of the working"):
        await client.send("s", "x" * 10_000_000)


async def test_a_lone_surrogate_is_refused_by_the_client_already(client: Client):
    await client.create_session("s")

    with pytest.raises(UsageError, match="not valid UTF-8"):
        await client.send("s", "half a pair: \ud83d")


async def test_executors_are_listed_by_their_parent_and_not_among_sessions(client, runtime):
    await client.create_session("s")
    rules = ExecutorRules(level=1)
    task = Delegation(index=0, executor="s:1.1.0", task="Count.", agent="default", rules=rules)
    handed = Handed(SessionKey("default", "s"), 1, 1, "delegate:1.1.0", task)
    await runtime.store.open_executor(handed)

    assert [view.id for view in (await client.sessions()).sessions] == ["s"]
    (executor,) = (await client.sessions(parent="s")).sessions
    assert (executor.id, executor.parent) == ("s:1.1.0", "s")
    assert (await client.session("s")).parent is None
    with pytest.raises(UnknownSession):
        await client.sessions(parent="unknown")
