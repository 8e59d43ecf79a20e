"""Layers of skills: `skills`, `always_skills` and `active_skill`."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from everturn.context.layers import Item
from everturn.messages import SkillInvocation
from everturn.session import SessionKey
from everturn.skills import menu
from everturn_activities.bounded import Bounded
from everturn_activities.skills.catalogue import Catalogue
from everturn_activities.skills.shelf import Skills
from everturn_activities.sources import Asked, Sources
from everturn_activities.texts import UnreadableError

Invoked = Callable[[SessionKey, int], Awaitable[Sequence[SkillInvocation]]]
"""The skills that people have asked for in a turn."""

FRESH_SECONDS = 1.0
"""How long the layers and the steps of a turn go by one look at the folders of skills."""

CATALOGUES_KEPT = 64
READERS = ("read_file", "skill")
UNREADABLE = (
    "The agent {agent} is told of skills and has no tool that gives it their texts; add the"
    " tool {tool} to its tools, or take the skills out of its profile."
)


@dataclass(frozen=True)
class _Seen:
    """A catalogue, and for which turn it was looked up, and when."""

    key: SessionKey
    turn: int
    at: float
    catalogue: Catalogue

    def stands_for(self, asked: Asked) -> bool:
        """Whether it is the newest that a layer of that step needs: looking at 500 files for
        each layer and each step would cost milliseconds."""
        same = (self.key, self.turn) == (asked.key, asked.turn)
        return same and 0 <= asked.at - self.at < FRESH_SECONDS


class SkillSources:
    def __init__(self, skills: Skills, invoked: Invoked) -> None:
        self._skills = skills
        self._invoked = invoked
        self._seen: Bounded[object, _Seen] = Bounded(CATALOGUES_KEPT, 0)

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
        shelf = self._skills.shelf(asked.spec)
        roots = (shelf.roots, shelf.places)
        known = self._seen.get(roots)
        if known is None or not known.stands_for(asked):
            known = _Seen(asked.key, asked.turn, asked.at, await shelf.catalogue())
            self._seen.put(roots, known)
        catalogue = known.catalogue
        for problem in catalogue.problems:
            asked.warn(problem)
        return catalogue
