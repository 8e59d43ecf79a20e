"""The files of one name from a workspace's root down to the working folder."""

import os
from collections.abc import Sequence


def folders(workspace: str, working_dir: str) -> list[str]:
    """The folders whose AGENTS.md count, the nearest to the working folder last.

    Where that is not below the workspace, the workspace's own comes first, then those from the
    top of the repository that the working folder is in.
    """
    if working_dir == workspace or working_dir.startswith(workspace.rstrip("/") + "/"):
        return _between(workspace, working_dir)
    return [workspace, *_between(_top(working_dir), working_dir)]


def files(found: Sequence[str], names: Sequence[str]) -> list[str]:
    """The file of each folder: the first of `names` that is there."""
    return [
        next((path for name in names if os.path.lexists(path := f"{folder}/{name}")), "")
        for folder in found
    ]


def _between(top: str, folder: str) -> list[str]:
    chain = [folder]
    while chain[-1] != top:
        chain.append(os.path.dirname(chain[-1]))
    return chain[::-1]


def _top(folder: str) -> str:
    """The repository's top folder, or `folder` itself where it is in none."""
    above = folder
    while above != "/":
        if os.path.lexists(f"{above}/.git"):
            return above
        above = os.path.dirname(above)
    return folder
