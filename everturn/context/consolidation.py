"""Consolidation: what is asked of the model that makes few facts of many, and what of its
answer counts."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field, TypeAdapter, ValidationError

from everturn.agents import AgentSpec
from everturn.context.compose import Context, side_request
from everturn.memory import FACT_CHARACTERS_MAX
from everturn.messages import AssistantMessage, Frozen

SHOWN_TOKENS_MAX = 20_000
"""What one consolidation shows to a model: the oldest facts that fit."""
PROMPT_TOKENS = 400

SYSTEM = "You keep the memory of an agent short and true."
PROMPT = (
    "Above are the facts that an agent keeps, each with its number, the oldest first. Write a"
    " smaller set that says the same in fewer words: merge facts that belong together, say once"
    " what is said twice, and where two contradict each other keep the newer one. Keep names,"
    " numbers, dates and paths exactly as they stand. Invent nothing. A fact that you do not"
    " mention is kept as it is.\n\n"
    "Answer with JSON and nothing else, an array of objects such as"
    ' [{"text": "The new fact.", "from": [1, 4]}], in which "from" has the numbers of all facts'
    " that the new one replaces. Call no tool."
)

_FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*\Z", re.DOTALL)


@dataclass(frozen=True)
class Told:
    """A fact as a consolidation is told of it."""

    n: int
    text: str
    tokens: int


class Merged(Frozen):
    """A fact in place of those `of` these numbers."""

    text: str = Field(min_length=1, max_length=FACT_CHARACTERS_MAX)
    of: tuple[int, ...] = Field(alias="from", min_length=1)


_merged: TypeAdapter[list[Merged]] = TypeAdapter(list[Merged])


class UnusableAnswer(Exception):  # noqa: N818 - an answer that was paid for
    pass


def oldest(facts: Sequence[Told]) -> list[Told]:
    """The facts that one consolidation is shown."""
    shown: list[Told] = []
    left = SHOWN_TOKENS_MAX
    for fact in facts:
        left -= fact.tokens
        if left < 0:
            break
        shown.append(fact)
    return shown


def consolidation_request(spec: AgentSpec, model: str, facts: Sequence[Told]) -> Context:
    """The request for a smaller set in place of `facts`."""
    listed = "\n".join(f"{fact.n}. {fact.text}" for fact in facts)
    text = f"<facts>\n{listed}\n</facts>\n\n{PROMPT}"
    tokens_max = max(256, sum(fact.tokens for fact in facts))
    return side_request(spec.agent, model, SYSTEM, text, tokens_max)


def merged_facts(message: AssistantMessage, facts: Sequence[Told]) -> list[Merged]:
    """What the answer makes of `facts`; raises UnusableAnswer, so that nothing is lost.

    A fact replaces only facts that were shown, and none is replaced twice. One that stands
    alone and unchanged is no change.
    """
    if message.tool_calls:
        raise UnusableAnswer("it is a tool call")
    text = message.text
    fenced = _FENCED.match(text)
    try:
        found = _merged.validate_json(fenced[1] if fenced else text.strip())
    except ValidationError:
        raise UnusableAnswer("it is no JSON array of facts") from None
    known = {fact.n: " ".join(fact.text.split()) for fact in facts}
    taken: set[int] = set()
    changes = []
    for each in found:
        of = set(each.of)
        if not of <= known.keys():
            raise UnusableAnswer("it names facts that it was not shown")
        if of & taken:
            raise UnusableAnswer("it replaces one fact twice")
        taken |= of
        text = " ".join(each.text.split())
        if not text:
            raise UnusableAnswer("it has an empty fact")
        if len(of) == 1 and known[next(iter(of))] == text:
            continue
        changes.append(Merged.model_validate({"text": text, "from": sorted(of)}))
    if not changes:
        raise UnusableAnswer("it changes nothing")
    return changes


def dumped(changes: Sequence[Merged]) -> str:
    return json.dumps([change.model_dump(by_alias=True) for change in changes], ensure_ascii=False)


def loaded(text: str) -> list[Merged]:
    """What `dumped` wrote."""
    return _merged.validate_json(text)
