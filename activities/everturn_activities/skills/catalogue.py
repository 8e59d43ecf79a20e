"""The skills that an agent has: of all that lie in its roots, those that count."""

import os
import shutil
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from everturn.skills import Skill, SkillRoot
from everturn_activities import front_matter
from everturn_activities.skills import roots
from everturn_activities.skills.parsing import parse
from everturn_activities.skills.places import Places
from everturn_activities.skills.roots import Found
from everturn_activities.skills.verified import Verifier
from everturn_activities.texts import Stamp, Texts, UnreadableError, read
from everturn_activities.threads import in_thread

_CATALOGUES_KEPT = 64
_PARSED_KEPT = 20_000
# So many files are read on the event loop; more of them go to a thread.
_QUICK_FILES = 4


@dataclass(frozen=True)
class Catalogue:
    """Skills in order of precedence, and what of the roots could not be used, as sentences.

    `lacking` are skills whose programs or variables are not there, and what they lack.
    """

    skills: tuple[Skill, ...]
    problems: tuple[str, ...] = ()
    lacking: tuple[tuple[Skill, str], ...] = ()
    _by_name: dict[str, Skill] = field(default_factory=dict, repr=False, compare=False)

    def find(self, name: str) -> Skill | None:
        return self._by_name.get(name)


class Catalogues:
    """Catalogues of roots, each made anew only when a file of its roots has changed."""

    def __init__(self) -> None:
        self._verifier = Verifier()
        self._parsed: OrderedDict[tuple[str, str, str], tuple[Stamp, Skill | str]] = OrderedDict()
        self._made: OrderedDict[object, tuple[object, Catalogue]] = OrderedDict()
        self._texts = Texts()

    async def of(self, given: Sequence[SkillRoot], places: Places) -> Catalogue:
        """The catalogue of the roots `given`, in their order."""
        problems: list[str] = []
        found = [
            one
            for rank, root in enumerate(given)
            for one in roots.find(root, rank, places, problems)
        ]
        has_store = any(one.root.trust == "store" for one in found)
        key = (tuple(given), places)
        # Two lists, because comparing what has not changed is all that most turns need.
        seen = ([one.file for one in found], [one.stamp for one in found], problems[:])
        known = self._made.get(key)
        if known is None or known[0] != seen or has_store:
            changed = [one for one in found if self._known(one, places) is None]
            if len(changed) > _QUICK_FILES or has_store:
                made = await in_thread(self._make, found, places, problems)
            else:
                made = self._make(found, places, problems)
            known = self._made[key] = (seen, made)
            if len(self._made) > _CATALOGUES_KEPT:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        return _available(known[1])

    async def body(self, skill: Skill) -> str:
        """What stands below a skill's front matter. Raises UnreadableError."""
        text = await self._texts.of(skill.file, skill.path)
        if text is None:
            raise UnreadableError(f"The skill {skill.path} is there no more.")
        try:
            return front_matter.parse(text).body
        except front_matter.FrontMatterError as error:
            raise UnreadableError(f"The skill {skill.path} {error}.") from None

    def _known(self, one: Found, places: Places) -> Skill | str | None:
        known = self._parsed.get(_key(one, places))
        return known[1] if known is not None and known[0] == one.stamp else None

    def _make(self, found: Sequence[Found], places: Places, told: Sequence[str]) -> Catalogue:
        problems = list(told)
        skills: dict[str, Skill] = {}
        ranks: dict[str, int] = {}
        files: set[str] = set()
        for one in found:
            if one.file in files:
                continue  # One root may lie in another's pattern.
            files.add(one.file)
            skill = self._read(one, places)
            if isinstance(skill, str):
                problems.append(skill)
                continue
            first = skills.setdefault(skill.name, skill)
            ranks.setdefault(skill.name, one.rank)
            # What everturn brings along is there to be replaced.
            if first is not skill and skill.trust != "builtin":
                problems.append(
                    f"Skill {skill.name!r} is defined twice: {first.path} counts, and"
                    f" {skill.path} does not; rename or remove one of them."
                )
        ordered = sorted(skills.values(), key=lambda skill: (ranks[skill.name], skill.name))
        return Catalogue(tuple(ordered), tuple(problems), (), skills)

    def _read(self, one: Found, places: Places) -> Skill | str:
        """The skill in a file, or what is wrong with it."""
        if one.root.trust == "store":
            folder = os.path.dirname(one.file)
            store = os.path.dirname(folder)
            shown = places.shown(folder)
            refused = self._verifier.why_not(store, os.path.basename(folder), shown)
            if refused is not None:
                return refused
        known = self._known(one, places)
        if known is not None:
            return known
        shown = places.shown(one.file)
        made: Skill | str
        found = one.stamp
        try:
            found, text = read(one.file, shown)
            made = parse(text, one.file, shown, one.name, one.root)
        except UnreadableError as error:
            made = str(error)
        self._parsed[_key(one, places)] = (found, made)
        if len(self._parsed) > _PARSED_KEPT:
            self._parsed.popitem(last=False)
        return made


def _key(one: Found, places: Places) -> tuple[str, str, str]:
    root = one.root
    return one.file, places.shown(one.file), f"{root.trust}/{root.name}/{root.for_models}"


def _available(made: Catalogue) -> Catalogue:
    """`made` without the skills that lack something now."""
    lacking = [
        (skill, lacks)
        for skill in made.skills
        if (skill.requires_bins or skill.requires_env) and (lacks := _lacks(skill))
    ]
    if not lacking:
        return made
    out = {skill.name for skill, _ in lacking}
    left = tuple(skill for skill in made.skills if skill.name not in out)
    return Catalogue(left, made.problems, tuple(lacking), {one.name: one for one in left})


def _lacks(skill: Skill) -> str:
    lacks = [f"the program {name}" for name in skill.requires_bins if shutil.which(name) is None]
    lacks += [f"the variable {name}" for name in skill.requires_env if not os.environ.get(name)]
    return " and ".join(lacks)
