"""Whether a folder is one of code, at a glance."""

import os
from collections import deque
from collections.abc import Collection
from pathlib import Path

from everturn_activities.code.languages import language_of
from everturn_activities.knowledge.walk import NEVER

ENTRIES_MAX = 2_000


def may_hold_code(folder: Path, aside: Collection[Path] = ()) -> bool:
    """Whether there is a file of a known language, or no file at all yet, among the first
    entries below `folder`, the nearest first. What is `aside` does not count, nor do names
    that begin with a dot and folders of packages."""
    left = {str(path) for path in aside}
    waiting, looked, files = deque([str(folder)]), 0, 0
    while waiting:
        try:
            with os.scandir(waiting.popleft()) as scanned:
                for entry in scanned:
                    looked += 1
                    if looked > ENTRIES_MAX:
                        return False
                    if entry.name[0] == "." or entry.name in NEVER or entry.path in left:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif language_of(entry.name) is not None:
                        return True
                    else:
                        files += 1
        except OSError:
            continue
    return not files
