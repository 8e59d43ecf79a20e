"""A session's own working folder: made once, found again, and removed where nothing is lost."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from everturn.errors import OwnerAlive, ToolFailed, UsageError
from everturn.folders import FolderKind
from everturn.session import SessionKey
from everturn_activities import tree_copy
from everturn_activities.git import Git, top_of

FOLDERS = "folders"
LOCK_SECONDS = 5.0
BRANCHES = "everturn/"
# What git takes in a branch's name of all that an id may hold.
_BRANCH_NAME = re.compile(r"(?!.*(?:\.\.|\.lock$|\.$))[A-Za-z0-9_-][A-Za-z0-9._-]*")
_NAMES_TRIED = 100
_WHOLE, _LOCK, _BRANCH = "made.json", "lock", "branch"


@dataclass(frozen=True)
class OwnFolder:
    """`path` stands for the session's folder `source`, and lies in `root`: a tree of its own."""

    kind: FolderKind
    source: Path
    path: Path
    root: Path

    @property
    def base(self) -> Path:
        """Where all that belongs to it lies."""
        return self.root.parent


def own_path(home: Path, key: SessionKey, kind: FolderKind, source: Path) -> Path | None:
    """Where the session's own folder is, or will be; None where it works in `source` itself.

    Raises UsageError where there can be none of that kind.
    """
    if kind == "shared":
        return None
    base, source = _base(home, key), source.resolve()
    if kind == "copy":
        return base / (source.name or "folder")
    top = top_of(source)
    if top is None:
        raise UsageError(
            f"The folder {source} is in no git repository, so a session cannot have a worktree of"
            " it; run 'git init' and commit there, or choose the folder 'copy' or 'shared'."
        )
    if shutil.which("git") is None:
        raise UsageError(
            "git is not on PATH, and a session's worktree needs it; install git, or choose the"
            " folder 'copy' or 'shared'."
        )
    return base / top.name / source.relative_to(top)


def found(home: Path, key: SessionKey, kind: FolderKind, source: str, path: str) -> OwnFolder:
    """The folder that a session was given by `own_path`.

    Raises ToolFailed where that was on another home.
    """
    base = _base(home, key)
    if not is_below(home, key, path):
        raise ToolFailed(
            f"it is to be {path}, and the home of this worker is {home}; have all processes on one"
            " store share one home folder, or open such sessions with the folder 'shared'"
        )
    below = Path(path).relative_to(base)
    return OwnFolder(kind, Path(source).resolve(), Path(path), base / below.parts[0])


def is_below(home: Path, key: SessionKey, path: str) -> bool:
    """Whether `own_path` could have put a session's folder there on this home."""
    return Path(path).is_relative_to(_base(home, key))


def moved(home: Path, key: SessionKey, path: str) -> Path:
    """Where the folder that `own_path` put at `path` is on another home."""
    base = _base(home, key)
    parts = Path(path).parts
    return base.joinpath(*parts[parts.index(base.name) + 1 :])


def beside(key: SessionKey, kind: FolderKind, source: Path, of: FolderKind) -> Path:
    """Where a fork has its own folder on a home that cannot be seen from here, made of `source`,
    another session's own folder there, of the kind `of`.

    Raises UsageError where that cannot be known.
    """
    base = next((one for one in source.parents if one.parent.name == FOLDERS), None)
    if base is None or (kind == "worktree" and of != kind):
        raise UsageError(
            f"The folder {source} is at another home than this API's, so nobody can look whether it"
            f" has a {kind}; choose the folder {'copy' if base else 'shared'!r}, or ask an API of"
            " that home."
        )
    ours = _base(base.parent.parent, key)
    return ours / (source.name if kind == "copy" else source.relative_to(base))


def _base(home: Path, key: SessionKey) -> Path:
    digest = hashlib.sha256(f"{key.tenant}/{key.session}".encode()).hexdigest()[:16]
    return home / FOLDERS / digest


def gone(path: str) -> str:
    """What is said of a folder that was made, and is not there."""
    return (
        f"The session's own folder {path} is gone; 'everturn folders remove SESSION' forgets it,"
        " and the session's next turn makes another. If it is on another machine, have that share"
        " its home folder with this one."
    )


def is_whole(folder: OwnFolder) -> bool:
    """Whether it was made to its end."""
    return (folder.base / _WHOLE).exists() and folder.path.is_dir()


def make(folder: OwnFolder, key: SessionKey, ignore: Sequence[str], stop: threading.Event) -> None:
    """Make the folder unless it is there; what an end of the process left half made is made anew.

    Raises ToolFailed with why it cannot be, OwnerAlive while another process makes it.
    """
    folder.base.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(folder) as lock:
        if is_whole(folder):
            return
        _clear(folder)
        try:
            match folder.kind:
                case "worktree":
                    about = _worktree(folder, key, stop, lock)
                case _:
                    about = _copy(folder, ignore, stop)
        except OSError as error:
            _clear(folder)
            where = f" ({error.filename})" if error.filename else ""
            raise ToolFailed(f"a file could not be used: {error.strerror}{where}") from None
        except ToolFailed:
            _clear(folder)
            raise
        part = folder.base / f".{_WHOLE}"
        part.write_text(json.dumps(about))
        part.replace(folder.base / _WHOLE)


def _worktree(
    folder: OwnFolder, key: SessionKey, stop: threading.Event, lock: int
) -> dict[str, object]:
    top = _top(folder)
    git = Git(top, stop=stop, kept_open=(lock,))
    if not git.holds("rev-parse", "--verify", "--quiet", "HEAD^{commit}"):
        # The same sentence for a repository that git itself refuses to read.
        git.run("rev-parse", "--git-dir")
        raise ToolFailed(f"the repository {top} has no commit yet; commit something there first")
    commit = git.run("rev-parse", "HEAD").strip()
    branch, known = _own_branch(folder, key, git)
    new = [] if known else ["--no-track", "-b", branch]
    begun_at = branch if known else commit
    git.run("worktree", "add", "--quiet", "--force", *new, str(folder.root), begun_at)
    if not folder.path.is_dir():
        relative = folder.source.relative_to(top)
        raise ToolFailed(f"{relative} is in no commit of {top}, so it is in no worktree of it")
    git_dir = Git(folder.root).run("rev-parse", "--absolute-git-dir").strip()
    return {"branch": branch, "git_dir": git_dir, "made_at": time.time()}


def _own_branch(folder: OwnFolder, key: SessionKey, git: Git) -> tuple[str, bool]:
    """The session's branch, and whether it exists: one that others made is left to them."""
    kept = folder.base / _BRANCH
    for n in range(1, _NAMES_TRIED):
        branch = branch_of(key, n)
        exists = git.holds("show-ref", "--verify", "--quiet", f"refs/heads/{branch}")
        ours = kept.exists() and kept.read_text() == branch
        if ours or not exists:
            kept.write_text(branch)
            return branch, exists
    raise ToolFailed(f"its repository has {_NAMES_TRIED} branches like {branch}; remove some")


def branch_of(key: SessionKey, n: int = 1) -> str:
    """The branch of a session's worktree; the `n`-th choice where others have the name."""
    name = key.session if key.tenant == "default" else f"{key.tenant}.{key.session}"
    if _BRANCH_NAME.fullmatch(name) is None:
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", name)
    return f"{BRANCHES}{name}" if n == 1 else f"{BRANCHES}{name}-{n}"


def _copy(folder: OwnFolder, ignore: Sequence[str], stop: threading.Event) -> dict[str, object]:
    # Our own data may lie in the folder that is copied.
    home = folder.base.parent.parent
    tree_copy.copy(folder.source, folder.root, ignore, (home,), stop)
    return {"made_at": time.time()}


def why_kept(folder: OwnFolder) -> str | None:
    """What would be lost with the folder, as the end of a sentence; None where nothing would."""
    if not is_whole(folder):
        return None
    if folder.kind == "copy":
        changed = tree_copy.changed(folder.root, folder.source)
        return f"{_some(changed)} in it that {folder.source} has not" if changed else None
    git_dir = Path(str(_about(folder)["git_dir"]))
    said = Git(folder.root, git_dir).run(
        "status", "--porcelain", "--ignore-submodules=all", "--untracked-files=all"
    )
    changed = [line[3:] for line in said.splitlines()]
    return f"{_some(changed)} in it that no commit has" if changed else None


def remove(folder: OwnFolder, release: Callable[[], None], force: bool) -> str | None:
    """Remove the folder; the branch that keeps its commits, if there is one.

    `release` says that it is still to be made, or raises where somebody works in it: nobody can
    begin to between that and its end. Unless `force`, raises UsageError where work would be lost.
    """
    folder.base.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(folder):
        if not force and (loss := why_kept(folder)) is not None:
            raise UsageError(
                f"The folder {folder.path} is kept, because {loss}; save what is of use, or remove"
                " it with --force (over HTTP: force=true)."
            )
        release()
        _clear(folder)
        kept, top = folder.base / _BRANCH, top_of(folder.source)
        if top is not None and kept.exists():
            branch, git = kept.read_text(), Git(top)
            # It refuses where commits would be lost, or a person has the branch checked out.
            if git.holds("show-ref", "--verify", "--quiet", f"refs/heads/{branch}") and not (
                git.holds("branch", "--delete", branch)
            ):
                return branch
        kept.unlink(missing_ok=True)
        return None


def _clear(folder: OwnFolder) -> None:
    """Leave nothing of the folder, and nothing of it in its repository."""
    (folder.base / _WHOLE).unlink(missing_ok=True)
    if folder.root.exists():
        tree_copy.remove(folder.root)
    if folder.kind == "worktree" and (top := top_of(folder.source)) is not None:
        # Ours alone: other worktrees may be away on a disk that is not mounted.
        Git(top).holds("worktree", "remove", "--force", "--force", str(folder.root))


def _about(folder: OwnFolder) -> dict[str, object]:
    try:
        about: dict[str, object] = json.loads((folder.base / _WHOLE).read_text())
    except FileNotFoundError:
        return {}
    return about


def _top(folder: OwnFolder) -> Path:
    top = top_of(folder.source)
    if top is None:
        raise ToolFailed(f"the folder {folder.source} is in no git repository any more")
    return top


def _some(changed: Sequence[str]) -> str:
    names = ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
    return f"there {'is 1 file' if len(changed) == 1 else f'are {len(changed)} files'} ({names})"


@contextmanager
def _locked(folder: OwnFolder) -> Iterator[int]:
    """The folder to ourselves. The lock is free as soon as its holder, and the git that it had
    started, are dead."""
    lock = os.open(folder.base / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > deadline:
                raise OwnerAlive(f"Another process works on {folder.root}.")
            time.sleep(0.02)
        yield lock
    finally:
        os.close(lock)
