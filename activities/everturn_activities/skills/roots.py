"""Which files of a root may be skills: `NAME/SKILL.md`, and `NAME.md` beside it."""

import errno
import fnmatch
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from everturn.errors import WorkspaceError
from everturn.skills import SkillRoot
from everturn_activities.skills.places import Places
from everturn_activities.texts import Stamp, stamp, why_not
from everturn_activities.trust import require_trusted_status

SKILL_FILE = "SKILL.md"
ENTRIES_MAX = 5000
_PATTERN = frozenset("*?[")


class Found(NamedTuple):
    """A file that may be a skill; `name` is what its folder or file is called, and `rank` the
    place of its root among all."""

    root: SkillRoot
    rank: int
    file: str
    name: str
    stamp: Stamp


def find(root: SkillRoot, rank: int, places: Places, problems: list[str]) -> list[Found]:
    """The files of a root in the order of their names; a root that is not there has none.

    What cannot be looked at is told in `problems`.
    """
    found = []
    for file, name in _candidates(places.of_root(root), root, places, problems):
        try:
            status = os.stat(file)
        except OSError as error:
            # A folder without the file is no skill; a link may still lead nowhere.
            if error.errno not in (errno.ENOENT, errno.ENOTDIR) or os.path.islink(file):
                problems.append(f"The skill {places.shown(file)} {why_not(error)}.")
            continue
        if _leads_out(file, root, places):
            problems.append(
                f"The skill {places.shown(file)} is a link that leads out of the workspace, so it"
                " is not loaded; put the file itself there."
            )
            continue
        found.append(Found(root, rank, file, name, stamp(status)))
    return found


def _leads_out(file: str, root: SkillRoot, places: Places) -> bool:
    """Whether a skill that came with a workspace is really a file of somewhere else.

    Where a person keeps their own skills, links are theirs to set.
    """
    if root.folder is None:
        return False
    path = file
    while len(path) > len(places.workspace) and not os.path.islink(path):
        path = os.path.dirname(path)
    if len(path) <= len(places.workspace):
        return False
    real = os.path.realpath(file)
    return not any(
        real.startswith(os.path.realpath(base) + os.sep)
        for base in (places.workspace, places.working_dir)
    )


def exists(root: SkillRoot, places: Places) -> bool:
    """Whether there is anything in the folder, or a file of the pattern, that may be a skill."""
    path = places.of_root(root)
    if not _PATTERN & set(path):
        try:
            with os.scandir(path) as scanned:
                return any(not entry.name.startswith(".") for entry in scanned)
        except NotADirectoryError:
            return True
        except OSError:
            return False
    return any(True for _ in _matching(path, places, []))


def _candidates(
    path: str, root: SkillRoot, places: Places, problems: list[str]
) -> Iterator[tuple[str, str]]:
    if _PATTERN & set(path) or path.endswith(".md"):
        for file in _matching(path, places, problems):
            folder, name = os.path.split(file)
            yield file, os.path.basename(folder) if name == SKILL_FILE else name.removesuffix(".md")
        return
    try:
        with os.scandir(path) as scanned:
            entries = sorted(scanned, key=lambda entry: entry.name)
        require_trusted_status(Path(path), os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        problems.append(f"The folder of skills {places.shown(path)} {why_not(error)}.")
        return
    except WorkspaceError as error:
        problems.append(str(error).replace(path, places.shown(path)))
        return
    if len(entries) > ENTRIES_MAX:
        problems.append(
            f"The folder of skills {places.shown(path)} has {len(entries):,} entries and the limit"
            f" is {ENTRIES_MAX:,}, so only the first are looked at; remove the others."
        )
    for entry in entries[:ENTRIES_MAX]:
        if entry.name.startswith("."):
            continue
        try:
            is_folder = entry.is_dir(follow_symlinks=False)
            if not is_folder and entry.is_symlink():
                # is_dir() would take one that leads nowhere for a file.
                is_folder = stat.S_ISDIR(entry.stat().st_mode)
        except OSError as error:
            problems.append(f"The skill {places.shown(entry.path)} {why_not(error)}.")
            continue
        if is_folder:
            yield f"{entry.path}/{SKILL_FILE}", entry.name
        elif root.trust != "store" and _is_flat(entry.name):
            yield entry.path, entry.name[: -len(".md")]


def _is_flat(name: str) -> bool:
    return name.endswith(".md") and name.casefold() not in ("readme.md", "skill.md")


def _matching(pattern: str, places: Places, problems: list[str]) -> Iterator[str]:
    """The files of a pattern, a part of the path at a time; links are followed once each."""
    parts = pattern.split("/")[1:]

    def walk(folder: str, rest: list[str]) -> Iterator[str]:
        part, *others = rest
        if not _PATTERN & set(part):
            names = [part]
        else:
            try:
                listed = sorted(os.listdir(folder))[:ENTRIES_MAX]
            except OSError:
                return
            names = [name for name in listed if fnmatch.fnmatchcase(name, part)]
        for name in names:
            path = f"{folder.rstrip('/')}/{name}"
            if not others:
                if os.path.lexists(path):
                    yield path
                continue
            try:
                is_folder = stat.S_ISDIR(os.stat(path).st_mode)
            except OSError as error:
                if os.path.islink(path):
                    problems.append(f"The skill {places.shown(path)} {why_not(error)}.")
                continue
            if is_folder:
                yield from walk(path, others)

    yield from walk("/", parts)
