"""Folders over HTTP: chosen with the session, shown with it, removed where nothing is lost."""

import threading
from pathlib import Path

import pytest
from by_hand import Runtime

from everturn.client import Client
from everturn.errors import IdempotencyConflict, UsageError
from everturn.executors import Delegation, ExecutorRules
from everturn.messages import AssistantMessage, ToolCall
from everturn.session import RunTools, SessionKey, StepHead, ToolHead
from everturn_activities import own_folders
from everturn_activities.gateways import Usage


def make(runtime: Runtime, session: str, path: str) -> own_folders.OwnFolder:
    """What the worker does before the session's first step."""
    key = SessionKey("default", session)
    folder = own_folders.found(runtime.folder, key, "copy", str(runtime.workspace), path)
    own_folders.make(folder, key, (), threading.Event())
    return folder


async def test_a_session_is_given_a_folder_of_its_own(runtime: Runtime, client: Client):
    view = await client.create_session("s", folder="copy")
    assert view.folder == "copy"
    assert view.own_dir is not None
    assert Path(view.own_dir).is_relative_to(runtime.folder / "folders")
    assert (await client.create_session("s", folder="copy")).own_dir == view.own_dir
    with pytest.raises(IdempotencyConflict, match="with folder 'copy', not 'shared'"):
        await client.create_session("s", folder="shared")
    shared = await client.create_session("t")
    assert (shared.folder, shared.own_dir) == ("shared", None)


async def test_a_worktree_of_what_is_no_repository_is_refused(client: Client):
    with pytest.raises(UsageError, match="is in no git repository"):
        await client.create_session("s", folder="worktree")


@pytest.mark.parametrize("place", ["agent", "workspace"])
async def test_the_agent_or_the_settings_choose_where_nobody_says(
    runtime: Runtime, client: Client, place: str
):
    if place == "agent":
        (runtime.workspace / "agents").mkdir(exist_ok=True)
        (runtime.workspace / "agents" / "coder.md").write_text("---\nfolder: copy\n---\nCode.")
        view = await client.create_session("s", agent="coder")
    else:
        (runtime.workspace / "everturn.toml").write_text("[folders]\nkind = 'copy'\n")
        view = await client.create_session("s")
    assert view.folder == "copy"
    assert (await client.create_session("t", agent=view.agent, folder="shared")).own_dir is None


async def test_a_folder_is_removed_unless_work_would_be_lost(runtime: Runtime, client: Client):
    view = await client.create_session("s", folder="copy")
    assert view.own_dir is not None
    folder = make(runtime, "s", view.own_dir)
    (folder.path / "new.txt").write_text("work")

    with pytest.raises(UsageError, match=r"is kept, because there is 1 file \(new.txt\) in it"):
        await client.remove_folder("s")
    assert folder.path.exists()

    assert (await client.remove_folder("s", force=True)).path == view.own_dir
    assert not folder.path.exists()
    # Once more is no harm: a client may not have heard the answer.
    assert (await client.remove_folder("s")).path == view.own_dir


async def test_a_shared_folder_is_not_removed(runtime: Runtime, client: Client):
    await client.create_session("s")
    with pytest.raises(UsageError, match="which is not its own, so it is not removed"):
        await client.remove_folder("s", force=True)
    assert runtime.workspace.is_dir()


async def test_a_folder_that_an_executor_works_in_is_not_removed(runtime: Runtime, client: Client):
    """One in the background goes on when the turn that it works for has ended."""
    view = await client.create_session("s", folder="copy")
    assert view.own_dir is not None
    folder = make(runtime, "s", view.own_dir)
    await client.send("s", "go")
    head = await runtime.begin("s")
    context, attempt = await runtime.begin_step(head)
    call = ToolCall(id="c", name="delegate")
    await runtime.store.complete_model_call(
        *(context, attempt, AssistantMessage(parts=(call,)), "tool_use", Usage(), None),
        StepHead(1, "tool_use", [ToolHead(0, "delegate", "executor", 5.0)]),
        [],
    )
    named = {"index": 0, "executor": "c", "task": "Work.", "agent": "default", "background": True}
    task = Delegation.model_validate({**named, "rules": ExecutorRules(level=1)})
    request = RunTools("default", "s", head.turn, 1, head.epoch, [0])
    (handed,) = await runtime.store.hand_over(request, 1, [task], {})
    await runtime.store.open_executor(handed)
    await runtime.end(head, 1, "completed", None)

    with pytest.raises(UsageError, match="Executor 'c' of session 's' works at its files"):
        await client.remove_folder("s", force=True)
    assert folder.path.is_dir()


async def test_a_folder_that_a_turn_works_in_is_not_removed(runtime: Runtime, client: Client):
    view = await client.create_session("s", folder="copy")
    assert view.own_dir is not None
    folder = make(runtime, "s", view.own_dir)
    await client.send("s", "go")
    with pytest.raises(UsageError, match="works in its folder"):
        await client.remove_folder("s", force=True)
    assert folder.path.exists()
