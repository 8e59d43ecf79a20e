"""The source `memory`: what is remembered, read anew for each turn."""

from collections.abc import Sequence
from typing import Any

from everturn.context.layers import Item
from everturn.errors import WorkspaceError
from everturn.memory import SCOPES, FactScope, place
from everturn_activities.builtin.inside import Facts
from everturn_activities.sources import Asked, Source

FACTS_MAX = 200
"""The newest facts of a layer that are shown, unless its option `facts_max` says otherwise."""


def memory_source(memories: Facts) -> Source:
    """Items of the memories that the profile's rules name, or the layer's option `scopes`:
    with `text`, `n`, `scope` and the `source` of each fact."""

    async def items(asked: Asked) -> Sequence[Item]:
        scopes, facts_max = _options(asked)
        named = (*asked.key, asked.spec.workspace, asked.spec.user)
        places = [place(scope, *named) for scope in scopes]
        facts = await memories.facts(places) if places else []
        left_out = len(facts) - facts_max
        if left_out > 0:
            asked.warn(
                f"Layer {asked.layer.id} shows the newest {facts_max} facts of its memory and"
                f" leaves {left_out} out; let fewer stand, or raise its option facts_max."
            )
            newest = sorted(facts, key=lambda fact: fact.created_at)[left_out:]
            facts = [fact for fact in facts if fact in newest]
        return [
            {
                "text": fact.text,
                "n": str(fact.n),
                "scope": fact.scope,
                "source": ", ".join(f"{s.session}/{s.turn}/{s.step}" for s in fact.sources),
            }
            for fact in facts
        ]

    return items


def _options(asked: Asked) -> tuple[list[FactScope], int]:
    rules, given = asked.spec.profile.memory.scopes, asked.layer.options
    named: Any = given.get("scopes", list(rules))
    facts_max: Any = given.get("facts_max", FACTS_MAX)
    if not isinstance(named, list) or any(scope not in SCOPES for scope in named):
        raise WorkspaceError(
            f"Layer {asked.layer.id} has the option scopes = {named!r}; name some of"
            f" {', '.join(SCOPES)}."
        )
    if not isinstance(facts_max, int) or facts_max < 1:
        raise WorkspaceError(
            f"Layer {asked.layer.id} has the option facts_max = {facts_max!r}; give a number"
            " from 1."
        )
    return [scope for scope in named if scope in rules], facts_max
