"""Working folders: whether a session works in the person's own, or in one that is only its own."""

from typing import Literal

from everturn.messages import Frozen

FolderKind = Literal["shared", "worktree", "copy"]
"""`shared` is the folder itself; `worktree` a git worktree of it on a branch of its own; `copy`
a copy of it."""


class FolderSettings(Frozen):
    """`kind` is where sessions work that do not say otherwise; `ignore` are patterns, as in a
    .gitignore, of what is left out of copies. With `checkpoints` what tools change can be put back.
    """

    kind: FolderKind | None = None
    ignore: tuple[str, ...] = ()
    checkpoints: bool = True
