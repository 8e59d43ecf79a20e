"""Forks over HTTP: made once, woken, and refused in words."""

from pathlib import Path

import httpx
import pytest
from by_hand import Runtime

from everturn.client import Client
from everturn.errors import IdempotencyConflict, UnknownSession, UsageError
from everturn.executors import Delegation, ExecutorRules
from everturn.forks import EditedResult, ForkSession
from everturn.messages import AssistantMessage, ToolCall
from everturn.session import RunTools, SessionKey, StepHead, ToolHead
from everturn_activities.checkpoints import Checkpoints
from everturn_activities.file_changes import Record
from everturn_activities.gateways import Usage


async def rests(runtime: Runtime, client: Client, **named: object) -> None:
    """A session with one turn that has ended."""
    await client.create_session("s", **named)  # type: ignore[arg-type]
    await client.send("s", "go")
    await runtime.work("s", "done")


async def test_a_fork_is_a_session_that_names_where_it_comes_from(runtime: Runtime, client: Client):
    await rests(runtime, client)
    runtime.waker.woken.clear()
    made = await client.fork("s", ForkSession(turn=1, message="and now?"))
    assert made.forked is not None
    assert (made.forked.session, made.forked.place) == ("s", "1")
    assert (made.waiting, made.turn, made.working_dir) == (1, 1, str(runtime.workspace))
    assert [wake.key.session for wake in runtime.waker.woken] == [made.id]
    assert {view.id for view in (await client.sessions()).sessions} == {"s", made.id}

    body = ForkSession(id=made.id, turn=1, message="and now?")
    assert (await client.fork("s", body)).id == made.id
    with pytest.raises(IdempotencyConflict, match="not this fork"):
        await client.fork("s", body.model_copy(update={"turn": None}))


async def test_what_no_fork_can_be_is_refused(runtime: Runtime, client: Client):
    with pytest.raises(UnknownSession):
        await client.fork("s", ForkSession())
    await rests(runtime, client)
    edit = EditedResult(turn=1, step=1, index=0, text="x")
    for body, told in (
        ({"step": 1}, "a step of no turn"),
        ({"turn": 2}, "no turn 2"),
        ({"edits": (edit, edit)}, r"edits result 1\.1\.0 twice"),
        ({"edits": (edit,)}, r"no result 1\.1\.0"),
        ({"edits": (edit.model_copy(update={"text": "x" * 300_000}),)}, r"edited result 1\.1\.0"),
        ({"agent": "nobody"}, "nobody"),
        ({"model": "no-provider"}, "no-provider"),
        ({"folder": "worktree"}, "in no git repository"),
        ({"message": " "}, "The message is empty"),
        ({"message": "x", "replay": "turn"}, "has their messages"),
        ({"turn": 1, "step": 1, "replay": "turn"}, "without its step"),
    ):
        with pytest.raises(UsageError, match=told):
            await client.fork("s", ForkSession(id="f", **body))
    assert len((await client.sessions()).sessions) == 1


async def test_a_fork_works_where_its_agents_sessions_do(runtime: Runtime, client: Client):
    await rests(runtime, client, folder="copy")
    own = (await client.session("s")).own_dir
    assert own is not None
    made = await client.fork("s", ForkSession())
    # Nothing was made of the origin's folder yet, so it is a copy of what that is to be of.
    assert (made.folder, made.working_dir) == ("copy", str(runtime.workspace))
    assert made.own_dir not in (None, own)
    Path(own).mkdir(parents=True)  # noqa: ASYNC240
    assert (await client.fork("s", ForkSession())).working_dir == own
    shared = await client.fork("s", ForkSession(folder="shared"))
    assert (shared.folder, shared.own_dir, shared.working_dir) == ("shared", None, own)


async def test_a_session_goes_back_to_a_step_and_its_files_with_it(
    runtime: Runtime, client: Client
):
    await client.create_session("s")
    await client.send("s", "one")
    await runtime.work("s", "done")
    await client.send("s", "two")
    head = await runtime.begin("s")
    context, attempt = await runtime.begin_step(head)
    call = ToolCall(id="c", name="write_file")
    await runtime.store.complete_model_call(
        *(context, attempt, AssistantMessage(parts=(call,)), "tool_use", Usage(), None),
        StepHead(1, "tool_use", [ToolHead(0, "write_file", "queued", 5.0)]),
        [],
    )
    checkpoints, path = Checkpoints(runtime.folder), runtime.workspace / "made.txt"
    record = Record(2, 1, "call", "write_file", str(runtime.workspace), 1.0)
    checkpoints.before(SessionKey("default", "s"), record, "made.txt")
    path.write_text("made")
    checkpoints.after(SessionKey("default", "s"), "call")
    with pytest.raises(UsageError, match="cancel it with 'everturn cancel s'"):
        await client.rewind("s", 1)
    assert path.read_text() == "made"
    await runtime.end(head, 1, "cancelled", None)

    rewound = await client.rewind("s", 1)
    assert (rewound.messages, rewound.files, path.exists()) == (3, ("made.txt",), False)
    # Done at once, it is not the next turn's to do.
    assert (await runtime.store.folder(SessionKey("default", "s"))).restore_turn == 0
    assert (await client.rewind("s", 1)).messages == 0
    assert (await client.undo_rewind("s")).first == 3
    with pytest.raises(UsageError, match="was not taken back"):
        await client.undo_rewind("s")


async def test_what_is_asked_for_again_as_its_answer_was_lost_is_done_once(
    runtime: Runtime, client: Client, monkeypatch: pytest.MonkeyPatch
):
    await rests(runtime, client)
    for text in ("two", "three"):
        await client.send("s", text)
        await runtime.work("s", "done")
    ask, asked = client._http.request, []

    async def losing(method: str, path: str, **details: object) -> httpx.Response:
        answer = await ask(method, path, **details)  # type: ignore[arg-type]
        asked.append(path)
        if asked.count(path) == 1:
            raise httpx.ReadError("")
        return answer

    for turn in (2, 1):
        await client.rewind("s", turn)
    with monkeypatch.context() as patched:
        patched.setattr(client._http, "request", losing)
        assert (await client.undo_rewind("s")).first == 3
    # The earlier one stands, and what follows undoes that.
    assert (await client.undo_rewind("s")).first == 5

    with monkeypatch.context() as patched:
        patched.setattr(client._http, "request", losing)
        assert (await client.rewind("s", 1)).messages == 4
    assert len(asked) == 4
    async with httpx.AsyncClient(base_url=client._url) as http:
        refused = await http.post("/v1/sessions/s/rewind/undo", json={"id": "no id"})
        assert "The undo id 'no id' is not possible" in refused.json()["detail"]
        refused = await http.post("/v1/sessions/s/rewind", json={"id": "", "turn": 1})
        assert "The rewind id '' is not possible" in refused.json()["detail"]


async def test_nothing_goes_back_under_an_executor_that_still_works(
    runtime: Runtime, client: Client
):
    await rests(runtime, client)
    await client.send("s", "two")
    head = await runtime.begin("s")
    context, attempt = await runtime.begin_step(head)
    call = ToolCall(id="c", name="delegate")
    await runtime.store.complete_model_call(
        *(context, attempt, AssistantMessage(parts=(call,)), "tool_use", Usage(), None),
        StepHead(1, "tool_use", [ToolHead(0, "delegate", "executor", 5.0)]),
        [],
    )
    rules = ExecutorRules(level=1)
    named = {"index": 0, "executor": "c", "task": "Work.", "agent": "default", "rules": rules}
    task = Delegation.model_validate({**named, "background": True})
    request = RunTools("default", "s", head.turn, 1, head.epoch, [0])
    (handed,) = await runtime.store.hand_over(request, 1, [task], {})
    await runtime.store.open_executor(handed)
    await runtime.end(head, 1, "completed", None)

    for go_back in (client.rewind("s", 1), client.restore_files("s", 2)):
        with pytest.raises(UsageError, match="Executor 'c' of session 's' works at its files"):
            await go_back
    # What it did not work for can go back.
    assert (await client.rewind("s", 2)).messages == 0


async def test_two_sessions_are_compared(runtime: Runtime, client: Client):
    await rests(runtime, client)
    made = await client.fork("s", ForkSession(turn=1, replay="turn"))
    await runtime.work(made.id, "done otherwise")
    found = await client.diff("s", made.id)
    assert (found.parts_a, found.parts_b, found.same) == ("1.1", "1.1", False)
    assert found.turns[0].steps[0].text == ("-done", "+done otherwise")
    assert (await client.diff("s", "s", 1)).same
    with pytest.raises(UnknownSession):
        await client.diff("s", "nobody")
