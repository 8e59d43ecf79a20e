"""The skills of one agent, as its tools, its context and people who invoke them reach them."""

from dataclasses import dataclass
from pathlib import Path

from everturn.agents import AgentSpec
from everturn.errors import ToolFailed, UsageError
from everturn.messages import SkillInvocation
from everturn.skills import (
    INVOCATION,
    Skill,
    SkillRoot,
    SkillRules,
    filled_in,
    framed,
    invoked,
    shown_description,
)
from everturn_activities.definitions import meant
from everturn_activities.skills import roots
from everturn_activities.skills.catalogue import Catalogue, Catalogues
from everturn_activities.skills.places import Places
from everturn_activities.texts import UnreadableError

SCHEME = "skill://"
_NAMED_MAX = 50


def roots_of(spec: AgentSpec) -> tuple[SkillRoot, ...]:
    """What the agent names as `skill://`, then the roots of its profile."""
    named = [one.removeprefix(SCHEME) for one in spec.agent.resources if one.startswith(SCHEME)]
    return (
        *(SkillRoot(path=path, trust="user" if path[:1] in "~/" else "project") for path in named),
        *spec.profile.skills.roots,
    )


def places_of(spec: AgentSpec, home: Path) -> Places:
    return Places(spec.workspace, spec.working_dir, str(home))


@dataclass(frozen=True)
class Shelf:
    """`roots` are in order of precedence."""

    catalogues: Catalogues
    rules: SkillRules
    roots: tuple[SkillRoot, ...]
    places: Places

    async def catalogue(self) -> Catalogue:
        return await self.catalogues.of(self.roots, self.places)

    async def body(self, skill: Skill) -> str:
        """What stands below a skill's front matter. Raises UnreadableError."""
        return await self.catalogues.body(skill)

    def has_root(self) -> bool:
        """Whether there is any place that skills for a model could be in."""
        return any(root.for_models and roots.exists(root, self.places) for root in self.roots)

    async def text(self, name: str, arguments: str) -> str:
        """The text of a skill, for a model. Raises ToolFailed where it may not have it."""
        catalogue = await self.catalogue()
        skill = catalogue.find(name.strip().removeprefix("/"))
        if skill is None:
            known = [one.name for one in catalogue.skills if one.model_invocable]
            there = f"the skills are {_listed(known)}" if known else "there are no skills"
            raise ToolFailed(f"There is no skill {name[:80]!r}{meant(name, known)}; {there}.")
        if not skill.model_invocable:
            raise ToolFailed(
                f"The skill {skill.name} is not for models: only a person can ask for it, by a"
                f" message that begins with /{skill.name}."
            )
        try:
            body = await self.body(skill)
        except UnreadableError as error:
            raise ToolFailed(str(error)) from None
        return framed(skill, filled_in(body, arguments, self.rules.arguments), self.rules)

    async def listing(self) -> str:
        """Every skill that a model may ask for, one a line."""
        catalogue = await self.catalogue()
        lines = [
            f"- {skill.name}: {shown_description(skill, self.rules)}"
            for skill in catalogue.skills
            if skill.model_invocable
        ]
        return "\n".join(lines) or "There are no skills."

    async def folder(self, path: str) -> tuple[str, str] | None:
        """The folder of the skill that a model was told of at `path`, or of one of that skill's
        other files, and the rest of the path in it; None where `path` is no skill's."""
        asked = path.strip()
        for skill in (await self.catalogue()).skills:
            if not skill.model_invocable:
                continue
            shown, _, file = skill.path.rpartition("/")
            if asked == skill.path:
                return skill.file.rpartition("/")[0], file
            # A folder of its own is the skill's with all that is in it; a flat file is not.
            if file == roots.SKILL_FILE and asked.startswith(f"{shown}/"):
                return skill.file.rpartition("/")[0], asked[len(shown) + 1 :]
        return None

    async def invocation(self, text: str) -> SkillInvocation | None:
        """What a person's `/name arguments` comes to; None where `text` is not about a skill.

        Raises UsageError where the skill is not for people, or cannot be read.
        """
        found = INVOCATION.fullmatch(text.strip())
        if found is None:
            return None
        skill = (await self.catalogue()).find(found[1])
        if skill is None:
            return None
        if not skill.user_invocable:
            raise UsageError(
                f"The skill {skill.name} is not for people to invoke: only the model follows it"
                " when it sees fit; say in your own words what is to be done."
            )
        arguments = (found[2] or "").strip()
        try:
            body = await self.body(skill)
        except UnreadableError as error:
            raise UsageError(str(error)) from None
        return SkillInvocation(
            name=skill.name,
            path=skill.path,
            arguments=arguments,
            text=framed(skill, invoked(body, arguments, self.rules.arguments), self.rules),
        )


class Skills:
    """The skills of all agents of a process. `home` is the home folder of everturn."""

    def __init__(self, home: Path) -> None:
        self._catalogues = Catalogues()
        self._home = home

    def shelf(self, spec: AgentSpec) -> Shelf:
        places = places_of(spec, self._home)
        return Shelf(self._catalogues, spec.profile.skills, roots_of(spec), places)


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
