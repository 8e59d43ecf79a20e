"""From a skill's file to what is known of the skill."""

import re

from pydantic import ValidationError

from everturn.skills import NAME, Skill, SkillMeta, SkillRoot
from everturn_activities import front_matter
from everturn_activities.texts import UnreadableError

DESCRIPTION_MAX = 1024
_NAME = re.compile(NAME)
_LISTS = ("requires_bins", "requires_env", "requires-bins", "requires-env")


def parse(text: str, file: str, shown: str, name: str, root: SkillRoot) -> Skill:
    """The skill of `root` in `text`; by `name`, that of its folder or file, where it gives itself
    none.

    Raises UnreadableError for what is wrong with it.
    """
    try:
        keys = front_matter.parse(text).keys
    except front_matter.FrontMatterError as error:
        where = f" line {error.line}" if error.line is not None else ""
        raise UnreadableError(f"The skill {shown}{where} {error}.") from None
    for key in _LISTS:
        if isinstance(keys.get(key), str):
            keys[key] = [part.strip() for part in keys[key].split(",") if part.strip()]
    try:
        meta = SkillMeta.model_validate(keys)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
        said = first["msg"][:1].lower() + first["msg"][1:]
        raise UnreadableError(f"The skill {shown} has a wrong {key!r}: {said}; mend it.") from None
    name = meta.name or name
    if _NAME.fullmatch(name) is None:
        raise UnreadableError(
            f"The skill {shown} is called {name[:80]!a}, and a name is 1 to 64 letters, digits,"
            " '.', '_' or '-'; give it such a one."
        )
    description = " ".join(meta.description.split())
    if len(description) > DESCRIPTION_MAX:
        description = description[: DESCRIPTION_MAX - 1] + "…"
    return Skill(
        name=name,
        description=description,
        trust=root.trust,
        source=root.name if root.trust == "store" else root.trust,
        file=file,
        path=shown,
        always=meta.always,
        user_invocable=meta.user_invocable,
        model_invocable=root.for_models and not meta.disable_model_invocation,
        requires_bins=meta.requires_bins,
        requires_env=meta.requires_env,
    )
