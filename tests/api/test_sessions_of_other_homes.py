"""An API asked about files that are at another home: it says where, and makes nothing up."""

import pytest
from by_hand import Runtime

from everturn.client import Client
from everturn.errors import UsageError
from everturn.forks import ForkSession
from everturn.messages import AssistantMessage, ToolCall
from everturn.session import SessionKey, StepHead, ToolHead
from everturn_activities.gateways import Usage
from everturn_workers.home import home_id

HOME, FOLDER = "feedbeef", "/srv/other/folders/0123456789abcdef/workspace"
KEY = SessionKey("default", "s")


@pytest.fixture
async def elsewhere(runtime: Runtime, client: Client) -> None:
    """Session `s`, whose copy another home has made."""
    await client.create_session("s", folder="copy")
    await runtime.store.claim_folder(KEY, HOME, FOLDER)


@pytest.mark.usefixtures("elsewhere")
async def test_who_claims_a_folder_first_has_it(runtime: Runtime, client: Client):
    again = await runtime.store.claim_folder(KEY, "another", "/srv/another")
    assert (again.home, again.own_dir) == (HOME, FOLDER)
    view = await client.session("s")
    assert (view.home, view.own_dir) == (HOME, FOLDER)


@pytest.mark.usefixtures("elsewhere")
async def test_the_folder_of_another_home_is_given_up_only_by_force(
    runtime: Runtime, client: Client
):
    with pytest.raises(UsageError, match=f"at the home with the id {HOME}; remove it by an API"):
        await client.remove_folder("s")
    assert (await client.session("s")).home == HOME

    removed = await client.remove_folder("s", force=True)
    assert (removed.path, removed.left_at) == (FOLDER, HOME)
    known = await runtime.store.folder(KEY)
    assert (known.home, known.due) == (None, True)


async def test_the_folder_of_a_home_that_was_moved_is_given_up_only_by_force(
    runtime: Runtime, client: Client
):
    await client.create_session("s", folder="copy")
    home = home_id(runtime.folder)
    await runtime.store.claim_folder(KEY, home, FOLDER)
    with pytest.raises(UsageError, match=f"elsewhere then and is {runtime.folder} now"):
        await client.remove_folder("s")
    assert (await client.session("s")).home == home

    removed = await client.remove_folder("s", force=True)
    assert (removed.path, removed.left_at) == (FOLDER, home)
    known = await runtime.store.folder(KEY)
    assert (known.home, known.due) == (None, True)


@pytest.mark.usefixtures("elsewhere")
async def test_checkpoints_of_another_home_are_not_said_to_be_none(
    runtime: Runtime, client: Client
):
    said = f"are at the home with the id {HOME}.*works on the home {home_id(runtime.folder)}"
    with pytest.raises(UsageError, match=said):
        await client.checkpoints("s")
    with pytest.raises(UsageError, match=said):
        await client.restore_files("s", 1)


async def made_there(runtime: Runtime, client: Client) -> None:
    """The session's folder is made there, and its first turn has ended."""
    await client.send("s", "go")
    head = await runtime.begin("s")
    await runtime.store.folder_made(KEY, head.turn, head.epoch)
    context, attempt = await runtime.begin_step(head)
    await runtime.finish(head, context, attempt, "done")


@pytest.mark.usefixtures("elsewhere")
async def test_a_fork_of_a_folder_of_another_home_is_made_there(runtime: Runtime, client: Client):
    await made_there(runtime, client)
    made = await client.fork("s", ForkSession())
    assert (made.folder, made.working_dir, made.home) == ("copy", FOLDER, HOME)
    assert made.own_dir is not None
    assert made.own_dir.startswith("/srv/other/folders/")
    assert made.own_dir.endswith("/workspace")
    assert made.own_dir != FOLDER
    shared = await client.fork("s", ForkSession(folder="shared"))
    assert (shared.own_dir, shared.working_dir, shared.home) == (None, FOLDER, HOME)
    with pytest.raises(UsageError, match="nobody can look whether it has a worktree"):
        await client.fork("s", ForkSession(folder="worktree"))


@pytest.mark.usefixtures("elsewhere")
async def test_a_rewind_leaves_files_of_another_home_to_the_next_turn(
    runtime: Runtime, client: Client
):
    await made_there(runtime, client)
    await client.send("s", "more")
    head = await runtime.begin("s")
    context, attempt = await runtime.begin_step(head)
    call = ToolCall(id="c", name="write_file")
    await runtime.store.complete_model_call(
        *(context, attempt, AssistantMessage(parts=(call,)), "tool_use", Usage(), None),
        StepHead(1, "tool_use", [ToolHead(0, "write_file", "queued", 5.0)]),
        [],
    )
    await runtime.end(head, 1, "cancelled", None)
    rewound = await client.rewind("s", 1)
    assert (rewound.files, rewound.messages) == ((), 3)
    assert (await runtime.store.folder(KEY)).restore_turn == 2
    assert rewound.notes == (
        f"Files are put back when the next turn begins, by a worker of the home with the id {HOME}:"
        " they are there.",
    )
