"""Git repositories that a person has made, and folders of sessions in them."""

import os
import subprocess
import threading
from pathlib import Path

from everturn.folders import FolderKind
from everturn.session import SessionKey
from everturn_activities import own_folders
from everturn_activities.own_folders import OwnFolder

IDENTITY = ("-c", "user.name=A Person", "-c", "user.email=person@example.org")


def git(folder: Path, *arguments: str) -> str:
    """What git prints, run by the person."""
    ran = subprocess.run(
        ["git", "-C", str(folder), *IDENTITY, *arguments],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout


def repository(folder: Path, **files: str) -> Path:
    """A repository with one commit of `files`, whose names have `_` for a dot."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    for name, text in (files or {"notes_txt": "first\n"}).items():
        (folder / name.replace("_", ".")).write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=One")
    return folder


def folder_of(home: Path, kind: FolderKind, source: Path, session: str = "s") -> OwnFolder:
    key = SessionKey("default", session)
    path = own_folders.own_path(home, key, kind, source)
    assert path is not None
    return own_folders.found(home, key, kind, str(source), str(path))


def made(
    home: Path, kind: FolderKind, source: Path, session: str = "s", ignore: tuple[str, ...] = ()
) -> OwnFolder:
    folder = folder_of(home, kind, source, session)
    own_folders.make(folder, SessionKey("default", session), ignore, threading.Event())
    return folder


def removed(folder: OwnFolder, force: bool = False) -> str | None:
    return own_folders.remove(folder, lambda: None, force)
