"""Asking a source for a layer's items, as a step does."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everturn.agents import Agent, AgentSpec, ToolSpec
from everturn.context.layers import Item
from everturn.profile import Layer, Profile, Recipe
from everturn.session import SessionKey
from everturn.skills import SkillRules
from everturn_activities.sources import Asked, Source


@dataclass
class Asker:
    """Asks for an agent whose workspace is `folder`; `warnings` are what a person was told."""

    folder: Path
    working_dir: Path | None = None
    resources: tuple[str, ...] = ()
    skills: SkillRules = field(default_factory=SkillRules)
    tools: tuple[str, ...] = ("read_file",)
    turn: int = 1
    warnings: list[str] = field(default_factory=list)

    async def __call__(self, source: Source, **options: Any) -> Sequence[Item]:
        layer = Layer(id="layer", source="source", options=options)
        profile = Profile(name="profile", recipe=Recipe(layers=(layer,)), skills=self.skills)
        spec = AgentSpec(
            agent=Agent(resources=self.resources),
            profile=profile,
            tools=tuple(ToolSpec(name=name, description="", parameters={}) for name in self.tools),
            workspace=str(self.folder),
            working_dir=str(self.working_dir or self.folder),
        )
        key = SessionKey("tenant", "session")
        return await source(Asked(spec, key, self.turn, 1, 0.0, layer, self.warnings.append))

    def write(self, path: str, content: str | bytes) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file
