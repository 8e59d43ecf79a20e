"""Where a workspace's skills and documents lie, and how a model and a person are told of it."""

import os
from dataclasses import dataclass
from pathlib import Path

from everturn.skills import SkillRoot

BUNDLED = Path(__file__).parent / "bundled"
BUILTIN = "builtin:"


@dataclass(frozen=True)
class Places:
    """`home` is the home folder of everturn, where a person keeps skills for all workspaces."""

    workspace: str
    working_dir: str
    home: str

    def of_root(self, root: SkillRoot) -> str:
        if root.trust == "builtin" and not root.path:
            return str(BUNDLED)
        return self.at(root.path, self.home if root.trust in ("user", "store") else None)

    def at(self, path: str, base: str | None = None) -> str:
        """An absolute path; one that is relative is so to the workspace, or to `base`."""
        return os.path.normpath(
            os.path.join(base or self.workspace, os.path.expanduser(path or "."))
        )

    def shown(self, file: str) -> str:
        """`file` as short as it is clear, and without the machine's folders where possible."""
        for folder, instead in (
            (self.working_dir, ""),
            (self.workspace, ""),
            (str(BUNDLED), BUILTIN),
            (os.path.expanduser("~"), "~/"),
        ):
            if file.startswith(folder.rstrip("/") + "/"):
                return instead + file[len(folder.rstrip("/")) + 1 :]
        return file
