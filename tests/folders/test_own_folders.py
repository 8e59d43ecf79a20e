"""A session's own folder holds what its source held, runs nothing of it, and loses no work."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from repositories import folder_of, git, made, removed, repository

from everturn.errors import ToolFailed, UsageError
from everturn.folders import FolderKind
from everturn.session import SessionKey
from everturn_activities import own_folders
from everturn_activities.own_folders import OwnFolder, branch_of


def test_a_worktree_has_the_commit_and_a_branch_of_its_own(tmp_path: Path):
    source = repository(tmp_path / "shop")
    (source / "notes.txt").write_text("not committed\n")

    folder = made(tmp_path / "home", "worktree", source)

    assert (folder.path / "notes.txt").read_text() == "first\n"
    assert git(folder.path, "branch", "--show-current") == "everturn/s\n"
    assert folder.path.name == "shop"
    assert git(source, "branch", "--show-current") == "main\n"


def test_two_sessions_never_share_a_folder_or_a_branch(tmp_path: Path):
    source = repository(tmp_path / "shop")
    one = made(tmp_path / "home", "worktree", source, "one")
    two = made(tmp_path / "home", "worktree", source, "two")
    (one.path / "notes.txt").write_text("of one\n")

    assert (two.path / "notes.txt").read_text() == "first\n"
    assert {line.strip("+* \n") for line in git(source, "branch").splitlines()} == {
        *("main", "everturn/one", "everturn/two")
    }


def test_a_folder_inside_of_a_repository_is_worked_at_the_same_place(tmp_path: Path):
    source = repository(tmp_path / "shop")
    (source / "till").mkdir()
    (source / "till" / "a.txt").write_text("a")
    git(source, "add", "--all")
    git(source, "commit", "--quiet", "--message=Two")

    folder = made(tmp_path / "home", "worktree", source / "till")

    assert folder.path == folder.root / "till"
    assert (folder.path / "a.txt").read_text() == "a"


def test_a_branch_that_somebody_else_made_is_left_to_them(tmp_path: Path):
    source = repository(tmp_path / "shop")
    git(source, "branch", "everturn/s")
    folder = made(tmp_path / "home", "worktree", source)
    assert git(folder.path, "branch", "--show-current") == "everturn/s-2\n"


@pytest.mark.parametrize(
    ("session", "branch"),
    [
        ("s", "everturn/s"),
        ("a:b", "everturn/a-b"),
        ("..x", "everturn/-x"),
        ("x.lock", "everturn/x-lock"),
        ("x.", "everturn/x-"),
    ],
)
def test_a_session_has_a_branch_that_git_takes(tmp_path: Path, session: str, branch: str):
    assert branch_of(SessionKey("default", session)) == branch
    subprocess.run(["git", "check-ref-format", "--branch", branch], check=True)
    assert branch_of(SessionKey("other", "s")) == "everturn/other.s"


def test_no_program_of_the_repository_is_run(tmp_path: Path):
    source = repository(tmp_path / "shop", notes_txt="first\n", _gitattributes="* filter=a=b\n")
    ran = tmp_path / "ran"
    program = f"sh -c 'touch {ran}; cat'"
    hook = source / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    with (source / ".git" / "config").open("a") as config:
        config.write(
            f'[filter "a=b"]\nsmudge = "{program}"\nclean = "{program}"\nrequired = true\n'
            f'[core]\nfsmonitor = "touch {ran}"\n'
        )

    folder = made(tmp_path / "home", "worktree", source)
    (folder.path / "notes.txt").write_text("other\n")
    assert own_folders.why_kept(folder) is not None
    removed(folder, force=True)

    assert not ran.exists()


def test_what_an_agent_says_of_its_repository_is_not_believed(tmp_path: Path):
    source = repository(tmp_path / "shop")
    folder = made(tmp_path / "home", "worktree", source)
    ran = tmp_path / "ran"
    evil = folder.path / "evil"
    git(tmp_path, "init", "--quiet", "--bare", str(evil))
    with (evil / "config").open("a") as config:
        config.write(f'[core]\nbare = false\nfsmonitor = "touch {ran}"\n')
    (folder.path / ".git").write_text(f"gitdir: {evil}\n")

    with pytest.raises(UsageError, match="no commit has"):
        removed(folder)

    assert not ran.exists()
    assert folder.path.exists()


def test_a_repository_that_an_agent_put_in_its_worktree_hides_no_work(tmp_path: Path):
    folder = made(tmp_path / "home", "worktree", repository(tmp_path / "shop"))
    (folder.path / "new.txt").write_text("work\n")
    (folder.path / ".git").unlink()
    git(folder.path, "init", "--quiet")
    git(folder.path, "add", "--all")
    git(folder.path, "commit", "--quiet", "--message=Nothing to see here")
    with pytest.raises(UsageError, match=r"new\.txt.*no commit has"):
        removed(folder)
    assert (folder.path / "new.txt").exists()


HOLDER = """
import fcntl, os, sys
from pathlib import Path
from everturn_activities.git import Git
lock = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
alias = f"alias.waits=!echo $$ > {sys.argv[3]}.part; mv {sys.argv[3]}.part {sys.argv[3]}; sleep 60"
Git(Path(sys.argv[1]), kept_open=(lock,)).run("-c", alias, "waits")
"""


def test_a_git_that_outlives_its_worker_keeps_the_folder_locked(tmp_path: Path):
    source, lock, pid = repository(tmp_path / "shop"), tmp_path / "lock", tmp_path / "pid"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(source), str(lock), str(pid)])
    give_up = time.monotonic() + 30
    while not pid.exists():
        assert time.monotonic() < give_up
        assert holder.poll() is None
    holder.kill()
    holder.wait()
    descriptor = os.open(lock, os.O_RDWR)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The git that it had started leads a group of its own.
        os.killpg(os.getpgid(int(pid.read_text())), signal.SIGKILL)
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            assert time.monotonic() < give_up
    finally:
        os.close(descriptor)


def test_a_copy_has_everything_but_what_settings_leave_out(tmp_path: Path):
    source = tmp_path / "shop"
    (source / "till" / "node_modules").mkdir(parents=True)
    (source / "till" / "node_modules" / "big.js").write_text("x")
    (source / "till" / "run.sh").write_text("#!/bin/sh\n")
    (source / "till" / "run.sh").chmod(0o755)
    (source / "old.iso").write_text("x")
    (source / "link").symlink_to("till/run.sh")
    (source / "folder-link").symlink_to("till")
    (source / "sealed").mkdir()
    (source / "sealed").chmod(0o500)
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(source / "socket"))
    # Our own data, in the folder itself, is no part of it.
    home = source / ".everturn"

    folder = made(home, "copy", source, ignore=("node_modules/", "*.iso"))

    found = sorted(str(path.relative_to(folder.path)) for path in folder.path.rglob("*"))
    assert found == ["folder-link", "link", "sealed", "till", "till/run.sh"]
    copied, original = (folder.path / "till" / "run.sh").stat(), (source / "till/run.sh").stat()
    assert (copied.st_mode, copied.st_mtime_ns) == (original.st_mode, original.st_mtime_ns)
    assert os.readlink(folder.path / "link") == "till/run.sh"
    removed(folder)


@pytest.mark.parametrize("kind", ["worktree", "copy"])
def test_a_folder_that_is_there_is_found_as_it_is(tmp_path: Path, kind: FolderKind):
    source = repository(tmp_path / "shop")
    folder = made(tmp_path / "home", kind, source)
    (folder.path / "notes.txt").write_text("worked on\n")
    again = made(tmp_path / "home", kind, source)
    assert again == folder
    assert (folder.path / "notes.txt").read_text() == "worked on\n"


MAKER = """
import sys
sys.path[:0] = [sys.argv[1]]
from pathlib import Path
from repositories import made
made(Path(sys.argv[2]), sys.argv[4], Path(sys.argv[3]))
"""


def half_made(folder: OwnFolder, home: Path, source: Path) -> bool:
    """Kill a process as it makes the folder; whether it was not done yet."""
    given = [str(Path(__file__).parent), str(home), str(source), folder.kind]
    maker = subprocess.Popen([sys.executable, "-c", MAKER, *given])
    try:
        give_up = time.monotonic() + 30
        while not any(folder.root.glob("file*")):
            assert time.monotonic() < give_up
            assert maker.poll() is None
    finally:
        maker.kill()
        maker.wait()
    return not own_folders.is_whole(folder)


@pytest.mark.parametrize("kind", ["worktree", "copy"])
def test_a_folder_that_a_killed_process_left_half_made_is_made_anew(
    tmp_path: Path, kind: FolderKind
):
    source = repository(tmp_path / "shop", **{f"file{n}_txt": f"{n}\n" for n in range(2000)})
    folder = folder_of(tmp_path / "home", kind, source)
    while not half_made(folder, tmp_path / "home", source):
        removed(folder)  # The maker was quicker: once more.
    (folder.root / "file0.txt").unlink(missing_ok=True)
    (folder.root / "rubbish").write_text("x")

    again = made(tmp_path / "home", kind, source)

    assert len(list(again.path.glob("file*.txt"))) == 2000
    assert not (again.path / "rubbish").exists()
    assert own_folders.why_kept(again) is None


@pytest.mark.parametrize("kind", ["worktree", "copy"])
def test_work_that_nothing_else_holds_keeps_the_folder_unless_forced(
    tmp_path: Path, kind: FolderKind
):
    source = repository(tmp_path / "shop")
    folder = made(tmp_path / "home", kind, source)
    (folder.path / "new.txt").write_text("work\n")

    with pytest.raises(UsageError, match=r"there is 1 file \(new.txt\) in it that"):
        removed(folder)
    assert (folder.path / "new.txt").exists()

    removed(folder, force=True)
    assert not folder.path.exists()
    assert "everturn" not in git(source, "branch", "--all")
    assert git(source, "worktree", "list").count("\n") == 1


def test_commits_of_a_removed_worktree_stay_on_its_branch_and_are_found_again(tmp_path: Path):
    source = repository(tmp_path / "shop")
    folder = made(tmp_path / "home", "worktree", source)
    (folder.path / "new.txt").write_text("work\n")
    git(folder.path, "add", "new.txt")
    git(folder.path, "commit", "--quiet", "--message=Work")

    assert removed(folder) == "everturn/s"
    assert git(source, "show", "everturn/s:new.txt") == "work\n"

    again = made(tmp_path / "home", "worktree", source)
    assert (again.path / "new.txt").read_text() == "work\n"
    assert git(again.path, "branch", "--show-current") == "everturn/s\n"


def test_a_worktree_of_another_that_is_away_is_not_forgotten(tmp_path: Path):
    source = repository(tmp_path / "shop")
    git(source, "worktree", "add", "--quiet", str(tmp_path / "disk"))
    (tmp_path / "disk").rename(tmp_path / "away")

    removed(made(tmp_path / "home", "worktree", source))

    assert str(tmp_path / "disk") in git(source, "worktree", "list")


def test_what_cannot_be_a_worktree_is_one_clear_sentence(tmp_path: Path):
    plain = tmp_path / "plain"
    plain.mkdir()
    key = SessionKey("default", "s")
    with pytest.raises(UsageError, match="plain is in no git repository, so a session cannot"):
        own_folders.own_path(tmp_path / "home", key, "worktree", plain)

    git(plain, "init", "--quiet")
    with pytest.raises(ToolFailed, match=r"plain has no commit yet; commit something there first"):
        made(tmp_path / "home", "worktree", plain)

    source = repository(tmp_path / "shop")
    (source / "new").mkdir()
    with pytest.raises(ToolFailed, match=r"^new is in no commit of .*shop"):
        made(tmp_path / "home", "worktree", source / "new")
    assert git(source, "worktree", "list").count("\n") == 1


def test_a_stopped_making_leaves_nothing(tmp_path: Path):
    source = repository(tmp_path / "shop")
    folder = folder_of(tmp_path / "home", "copy", source)
    stop = threading.Event()
    stop.set()
    with pytest.raises(ToolFailed):
        own_folders.make(folder, SessionKey("default", "s"), (), stop)
    assert not folder.root.exists()
