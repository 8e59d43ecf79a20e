"""A workspace with skills, and what becomes of them."""

from dataclasses import dataclass
from pathlib import Path

from everturn.skills import SkillRoot
from everturn_activities.skills.catalogue import Catalogue, Catalogues
from everturn_activities.skills.places import Places


@dataclass
class Folders:
    """`workspace` and `home` are empty at first; skills are written by their paths in them."""

    workspace: Path
    home: Path

    @property
    def places(self) -> Places:
        return Places(str(self.workspace), str(self.workspace), str(self.home))

    def write(self, path: str, text: str, folder: Path | None = None) -> Path:
        file = (folder or self.workspace) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    async def found(self, *roots: SkillRoot) -> Catalogue:
        given = roots or (SkillRoot(path="skills"),)
        return await Catalogues().of(given, self.places)


def described(description: str, **more: str) -> str:
    """A skill file with that description."""
    lines = "".join(f"{name}: {value}\n" for name, value in more.items())
    return f"---\ndescription: {description}\n{lines}---\nThe body.\n"
