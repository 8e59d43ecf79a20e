"""The files that a `file://` resource names, by a path or a pattern with `*` and `**`."""

import fnmatch
import os

from everturn_activities.skills.places import Places
from everturn_activities.texts import LOOPS

SCHEME = "file://"
FILES_MAX = 500
ENTRIES_MAX = 50_000
PATTERN = frozenset("*?[")


def files(resource: str, places: Places, problems: list[str]) -> list[str]:
    """The files in the order of their paths. What cannot be found is told in `problems`."""
    path = places.at(resource.removeprefix(SCHEME))
    if not PATTERN & set(path):
        if not os.path.lexists(path):
            problems.append(f"The resource {resource} names no file; mend or remove it.")
            return []
        return [path]
    parts = path.split("/")
    first = next(n for n, part in enumerate(parts) if PATTERN & set(part))
    found: list[str] = []
    looping: list[str] = []
    complete = _collect("/".join(parts[:first]) or "/", tuple(parts[first:]), found, looping)
    problems += [f"{places.shown(path)} {LOOPS}." for path in sorted(set(looping))]
    found = sorted(set(found))
    if not complete or len(found) > FILES_MAX:
        problems.append(
            f"The resource {resource} stands for more than can be read at once ({FILES_MAX} files,"
            f" {ENTRIES_MAX:,} entries looked at), so only a part is; narrow its pattern."
        )
    elif not found:
        problems.append(f"The resource {resource} matches no file; mend or remove it.")
    return found[:FILES_MAX]


def _collect(folder: str, parts: tuple[str, ...], found: list[str], looping: list[str]) -> bool:
    """Add what matches to `found`, and to `looping` the links that cannot be followed; False
    where it was not looked at whole.

    `**` stands for any folders, and follows no link: a link may lead back to where it is.
    """
    looked, waiting = 0, [(folder, parts)]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while waiting:
        at, (part, *rest) = waiting.pop()
        if (at, (part, *rest)) in seen:
            continue
        seen.add((at, (part, *rest)))
        if not PATTERN & set(part):
            path = f"{at.rstrip('/')}/{part}"
            if not rest:
                found += [path] if os.path.lexists(path) else []
            elif os.path.isdir(path):
                waiting.append((path, tuple(rest)))
            continue
        try:
            with os.scandir(at) as scanned:
                entries = list(scanned)
        except OSError:
            continue
        looked += len(entries)
        if looked > ENTRIES_MAX:
            return False
        if part == "**" and rest:
            waiting.append((at, tuple(rest)))
        for entry in entries:
            if entry.name.startswith(".") and not part.startswith("."):
                continue
            loops = _loops(entry)
            inner = not loops and entry.is_dir(follow_symlinks=part != "**")
            if part == "**":
                if inner:
                    waiting.append((entry.path, (part, *rest)))
                elif not rest:
                    found.append(entry.path)
            elif fnmatch.fnmatchcase(entry.name, part):
                if rest and loops:
                    looping.append(entry.path)
                elif rest and inner:
                    waiting.append((entry.path, tuple(rest)))
                elif not rest and not inner:
                    found.append(entry.path)
    return True


def _loops(entry: "os.DirEntry[str]") -> bool:
    """Whether an entry is a link that leads back to itself."""
    if not entry.is_symlink():
        return False
    try:
        entry.stat()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
