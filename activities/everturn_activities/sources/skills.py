"""Layers of skills: `skills`, `always_skills` and `active_skill`."""

from collections.abc import Awaitable, Callable, Sequence

from everturn.context.layers import Item
from everturn.messages import SkillInvocation
from everturn.session import SessionKey
from everturn.skills import menu
from everturn_activities.skills.catalogue import Catalogue
from everturn_activities.skills.shelf import Skills
from everturn_activities.sources import Asked, Sources
from everturn_activities.texts import UnreadableError

Invoked = Callable[[SessionKey, int], Awaitable[Sequence[SkillInvocation]]]
"""The skills that people have asked for in a turn."""

READERS = ("read_file", "skill")
UNREADABLE = (
    "The agent {agent} is told of skills and has no tool that gives it their texts; add the"
    " tool {tool} to its tools, or take the skills out of its profile."
)


class SkillSources:
    def __init__(self, skills: Skills, invoked: Invoked) -> None:
        self._skills = skills
        self._invoked = invoked

    def named(self) -> Sources:
        return {
            "skills": self.menu,
            "always_skills": self.always,
            "active_skill": self.active,
        }

    async def menu(self, asked: Asked) -> Sequence[Item]:
        """The skills that a model may ask for: `name`, `description`, `path`, `mark`, `trust`
        and `source` of each."""
        spec = asked.spec
        readable = any((tool.runs or tool.name) in READERS for tool in spec.tools)
        if not readable and spec.profile.skills.unreadable == "hide":
            return ()
        items = menu((await self._catalogue(asked)).skills, spec.profile.skills)
        if items and not readable:
            own = spec.profile.skills.tool or "read_file"
            names = {tool: alias for alias, tool in spec.profile.aliases.items()}
            asked.warn(UNREADABLE.format(agent=spec.agent.name, tool=names.get(own, own)))
        return items

    async def always(self, asked: Asked) -> Sequence[Item]:
        """`name`, `path` and the whole `text` of each skill that is always on."""
        shelf = self._skills.shelf(asked.spec)
        items = []
        for skill in (await self._catalogue(asked)).skills:
            if not skill.is_always_on:
                continue
            try:
                text = await shelf.body(skill)
            except UnreadableError as error:
                asked.warn(str(error))
                continue
            if text:
                items.append({"name": skill.name, "path": skill.path, "text": text})
        return items

    async def active(self, asked: Asked) -> Sequence[Item]:
        """`name`, `path` and `arguments` of the skills that the turn's messages ask for."""
        return [
            {"name": one.name, "path": one.path, "arguments": one.arguments}
            for one in await self._invoked(asked.key, asked.turn)
        ]

    async def _catalogue(self, asked: Asked) -> Catalogue:
        catalogue = await self._skills.shelf(asked.spec).catalogue()
        for problem in catalogue.problems:
            asked.warn(problem)
        return catalogue
