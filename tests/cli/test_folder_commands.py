"""Sessions' own folders on the command line."""

import json
import threading
from pathlib import Path

from by_hand import Runtime
from commands import Commands
from repositories import git, repository

from everturn.session import SessionKey
from everturn_activities import own_folders
from everturn_activities.store import SessionSettings


async def test_a_session_in_a_copy_is_shown_listed_and_removed(
    runtime: Runtime, commands: Commands
) -> None:
    begun = await commands("run", "--detach", "--folder", "copy", "Do it.")
    assert begun.code == 0, begun.err
    session = begun.out.strip()
    view = await runtime.store.session(SessionKey("default", session))
    assert view.own_dir is not None
    shown = await commands("sessions", "show", session)
    assert f"It works in {view.own_dir}, a copy of {view.working_dir}." in shown.out
    (line,) = (await commands("folders", "list", "--json")).out.splitlines()
    assert json.loads(line)["path"] == view.own_dir
    listed = await commands("folders", "list")
    assert listed.out == f"{session} (queued): copy of {view.working_dir}\n  {view.own_dir}\n"

    waiting = await commands("folders", "remove", session)
    assert (waiting.code, "works in its folder; cancel it" in waiting.err) == (2, True)


async def test_work_in_a_folder_is_kept_until_it_is_given_up(
    runtime: Runtime, commands: Commands
) -> None:
    key = SessionKey("default", "s")
    own = own_folders.own_path(runtime.folder, key, "copy", runtime.workspace)
    made = own_folders.found(runtime.folder, key, "copy", str(runtime.workspace), str(own))
    own_folders.make(made, key, (), threading.Event())
    (Path(made.path) / "new.txt").write_text("work")
    wrong = await commands("run", "--detach", "--folder", "elsewhere", "Do it.")
    assert (wrong.code, "elsewhere" in wrong.err) == (2, True)
    folder = str(runtime.workspace)
    settings = SessionSettings(folder, folder, folder="copy", own_dir=str(own))
    await runtime.store.create_session(key, settings)

    kept = await commands("folders", "remove", "s")
    assert kept.code == 2
    assert "is kept, because there is 1 file (new.txt) in it" in kept.err
    removed = await commands("folders", "remove", "s", "--force")
    assert (removed.code, removed.err) == (0, f"Removed {made.path}.\n")
    assert not made.path.exists()


async def test_only_folders_of_sessions_own_are_listed_and_a_branch_with_work_is_named(
    runtime: Runtime, commands: Commands, tmp_path: Path
) -> None:
    none = await commands("folders", "list")
    assert (none.code, none.err) == (0, "No session has a folder of its own.\n")

    source = repository(tmp_path / "repository")
    for n in range(3):
        folder = str(runtime.workspace)
        settings = SessionSettings(folder, folder)
        await runtime.store.create_session(SessionKey("default", f"shared{n}"), settings)
    key = SessionKey("default", "s")
    own = own_folders.own_path(runtime.folder, key, "worktree", source)
    made = own_folders.found(runtime.folder, key, "worktree", str(source), str(own))
    own_folders.make(made, key, (), threading.Event())
    settings = SessionSettings(folder, str(source), folder="worktree", own_dir=str(own))
    await runtime.store.create_session(key, settings)
    listed = (await commands("folders", "list")).out
    assert listed == f"s (idle): worktree of {source}\n  {own}\n"

    (made.path / "new.txt").write_text("work")
    git(made.path, "add", "--all")
    git(made.path, "commit", "--quiet", "--message=Work")
    removed = await commands("folders", "remove", "s")
    assert removed.err == f"Removed {own}. The branch everturn/s keeps its commits.\n"
