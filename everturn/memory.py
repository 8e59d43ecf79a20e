"""Memory: facts that outlive a turn."""

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from pydantic import Field

from everturn.errors import UsageError
from everturn.messages import Frozen

FactScope = Literal["session", "user", "project"]
SCOPES: tuple[FactScope, ...] = ("session", "user", "project")

USER = "default"
"""The user of sessions that name none: the tenant's own."""

FACT_CHARACTERS_MAX = 2_000
FACTS_MAX = 1_000
"""Facts of one memory; a thousand of them are more than any window should hold."""


class MemoryRules(Frozen):
    """Which memories a turn reads and its tools write; without any `scopes` there is no memory.

    A memory of more than `consolidate_tokens` is made smaller by `model`, by default the
    agent's own, when a turn ends; None leaves it as it grows.
    """

    scopes: tuple[FactScope, ...] = ()
    consolidate_tokens: int | None = Field(default=2_000, ge=100)
    model: str | None = None


class FactSource(Frozen):
    """Which step of which session a fact was saved in."""

    session: str
    turn: int
    step: int


class MemoryPlace(NamedTuple):
    """Whose facts: those of a session, of a person, or of a project, which is a workspace."""

    tenant: str
    scope: FactScope
    owner: str


def place(scope: FactScope, tenant: str, session: str, workspace: str, user: str) -> MemoryPlace:
    owners = {"session": session, "user": user, "project": workspace}
    return MemoryPlace(tenant, scope, owners[scope])


def checked_fact(text: str) -> str:
    """`text` as it is kept; UsageError where it says nothing, or too much."""
    kept = " ".join(text.split())
    if not kept:
        raise UsageError("The fact is empty; write what is to be remembered.")
    if len(kept) > FACT_CHARACTERS_MAX:
        raise UsageError(
            f"The fact has {len(kept):,} characters and the limit is {FACT_CHARACTERS_MAX:,};"
            " save shorter facts, each of one thing."
        )
    return kept


def matching(texts: Iterable[str], query: str, limit: int) -> list[int]:
    """The places in `texts` of those that share words with `query`, the best first and of
    equals the last; all of them match a query without words."""
    words = set(re.findall(r"\w+", query.casefold()))
    found = []
    for number, text in enumerate(texts):
        folded = text.casefold()
        hits = sum(word in folded for word in words)
        if hits or not words:
            found.append((-hits, -number))
    return [-number for _, number in sorted(found)[:limit]]
