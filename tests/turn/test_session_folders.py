"""A session with a folder of its own works there, from its first step on and for all its turns."""

import shutil
import subprocess
from pathlib import Path

import pytest
from harness import Bench, calls, says, scripted

from everturn.errors import UsageError
from everturn.events import Event
from everturn.folders import FolderKind
from everturn.session import SessionKey
from everturn_activities import own_folders
from everturn_activities.store import SessionSettings
from everturn_workers import reconciler
from everturn_workers.home import prepare

WRITES = calls("write_file", path="made.txt", content="by the agent")


async def session_in(made: Bench, kind: FolderKind, name: str = "s") -> tuple[SessionKey, Path]:
    """A session with an own folder of that kind, and where that will be."""
    key, folder = made.key(name), str(made.workspace)
    own = own_folders.own_path(made.settings.home, key, kind, made.workspace)
    assert own is not None
    settings = SessionSettings(folder, folder, folder=kind, own_dir=str(own))
    await made.runtime.store.create_session(key, settings)
    return key, own


def initialised(workspace: Path) -> None:
    subprocess.run(["git", "-C", str(workspace), "init", "--quiet"], check=True)


def committed(workspace: Path) -> None:
    initialised(workspace)
    for arguments in (
        ["add", "--all"],
        ["-c", "user.name=P", "-c", "user.email=p@example.org", "commit", "-qm", "One"],
    ):
        subprocess.run(["git", "-C", str(workspace), *arguments], check=True)


async def worked(made: Bench, key: SessionKey, turn: int = 1) -> Event:
    await made.send(key, f"turn {turn}")
    return (await made.until(key, "turn_finished", turn))[-1]


@pytest.mark.parametrize("kind", ["copy", "worktree"])
async def test_a_session_works_in_its_own_folder_in_all_its_turns(made: Bench, kind: FolderKind):
    committed(made.workspace)
    key, own = await session_in(made, kind)
    async with made.worker(scripted(WRITES, says("done"))):
        assert (await worked(made, key)).body["outcome"] == "completed"
        assert (own / "made.txt").read_text() == "by the agent"
        assert not (made.workspace / "made.txt").exists()
        assert not (await made.runtime.store.folder(key)).due

        (own / "of-mine.txt").write_text("kept")
        assert (await worked(made, key, 2)).body["outcome"] == "completed"
    assert (own / "of-mine.txt").exists()
    spec = await made.runtime.store.spec(key, 2)
    assert spec.working_dir == str(own)
    view = await made.runtime.store.session(key)
    assert (view.folder, view.own_dir, view.working_dir) == (kind, str(own), str(made.workspace))


async def test_two_sessions_write_the_same_file_without_meeting(made: Bench):
    one, in_one = await session_in(made, "copy", "one")
    two, in_two = await session_in(made, "copy", "two")
    async with made.worker(scripted(WRITES, says("done"))):
        await worked(made, one)
        (in_one / "made.txt").write_text("changed since")
        await worked(made, two)
    assert (in_one / "made.txt").read_text() == "changed since"
    assert (in_two / "made.txt").read_text() == "by the agent"


async def test_a_folder_that_cannot_be_made_ends_the_turn_with_why_and_is_tried_again(made: Bench):
    initialised(made.workspace)
    key, own = await session_in(made, "worktree")
    async with made.worker(scripted(WRITES, says("done"))):
        end = await worked(made, key)
        assert end.body["outcome"] == "failed"
        assert end.body["reason"] == (
            f"The session's own folder (worktree of {made.workspace}) cannot be made: the"
            f" repository {made.workspace} has no commit yet; commit something there first."
        )
        committed(made.workspace)
        assert (await worked(made, key, 2)).body["outcome"] == "completed"
    assert (own / "made.txt").exists()


async def test_a_folder_that_somebody_removed_is_told_and_not_made_up(made: Bench):
    key, own = await session_in(made, "copy")
    async with made.worker(scripted(WRITES, says("done"))):
        await worked(made, key)
        shutil.rmtree(own)
        end = await worked(made, key, 2)
        assert end.body["outcome"] == "failed"
        assert f"own folder {own} is gone; 'everturn folders remove" in end.body["reason"]
        await made.runtime.store.release_folder(key)
        assert (await worked(made, key, 3)).body["outcome"] == "completed"
    assert (own / "made.txt").exists()


async def test_a_worker_on_another_home_says_so_and_makes_no_folder_there(
    made: Bench, tmp_path: Path
):
    key, own = await session_in(made, "copy")
    other = prepare(tmp_path / "other")
    async with made.worker(scripted(WRITES, says("done")), home=other):
        end = await worked(made, key)
    assert end.body["outcome"] == "failed"
    assert f"the home of this worker is {other}; have all processes" in end.body["reason"]
    async with made.worker(scripted(WRITES, says("done"))):
        assert (await worked(made, key, 2)).body["outcome"] == "completed"
    assert (own / "made.txt").exists()


async def test_an_agent_that_works_elsewhere_is_refused_in_a_folder_of_ones_own(made: Bench):
    elsewhere = made.workspace.parent / "elsewhere"
    elsewhere.mkdir()
    (made.workspace / "agents").mkdir()
    (made.workspace / "agents" / "default.md").write_text(
        f"---\nworking_directory: {elsewhere}\n---\nWork."
    )
    key, _ = await session_in(made, "copy")
    async with made.worker(scripted(WRITES, says("done"))):
        end = await worked(made, key)
    assert end.body["outcome"] == "failed"
    assert f"works in {elsewhere}, outside of {made.workspace}" in end.body["reason"]


async def test_who_takes_a_turn_over_finds_the_folder_made(
    made: Bench, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reconciler, "HOSTLESS_SECONDS", 1.0)
    key, own = await session_in(made, "copy")
    gateway = scripted(WRITES, says("done", hold="mid"))
    async with made.worker(gateway):
        await made.send(key, "go")
        await gateway.reached("mid")
        await made.client.get_workflow_handle(key.workflow_id).terminate()
        await made.until(key, "status")
        gateway.release("mid")
        end = (await made.until(key, "turn_finished"))[-1]
        await made.closed(key)
    assert end.body["outcome"] == "completed"
    assert (own / "made.txt").read_text() == "by the agent"


async def test_a_folder_is_not_released_while_its_session_works(made: Bench):
    key, _ = await session_in(made, "copy")
    with pytest.raises(UsageError, match=r"works in .*, which is not its own"):
        await made.runtime.store.release_folder(await made.session("shared"))
    gateway = scripted(says("done", hold="mid"))
    async with made.worker(gateway):
        await made.send(key, "go")
        await gateway.reached("mid")
        with pytest.raises(UsageError, match="works in its folder; cancel it"):
            await made.runtime.store.release_folder(key)
        gateway.release("mid")
        await made.until(key, "turn_finished")
        await made.closed(key)
    assert (await made.runtime.store.release_folder(key)).own_dir is not None
