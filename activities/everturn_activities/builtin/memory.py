"""Remembering: facts that later turns are told of."""

from typing import Annotated

from pydantic import Field

from everturn.errors import ToolFailed, UsageError
from everturn.memory import FactScope, FactSource, MemoryPlace, checked_fact, matching, place
from everturn.tools import tool
from everturn_activities.builtin.inside import Facts, InsideContext

FOUND_MAX = 50

Scope = Annotated[
    FactScope | None,
    Field(description="Whose memory: this session's, the user's or the project's."),
]
Number = Annotated[int, Field(ge=1, description="The fact's number.")]


# The store keeps a fact once for each idempotency key: a second run finds it there.
@tool(effect="keyed", quick=True)
async def memory_save(
    text: Annotated[str, Field(description="One fact, in one sentence that stands alone.")],
    context: InsideContext,
    scope: Scope = None,
) -> str:
    """Remember a fact that later turns will need, such as a preference, a decision or a name."""
    chosen = _scope(context, scope)
    at = _place(context, chosen)
    source = FactSource(session=context.session, turn=context.turn, step=context.step)
    try:
        fact = await _facts(context).save(at, checked_fact(text), context.idempotency_key, source)
    except UsageError as error:
        raise ToolFailed(str(error)) from None
    return f"Remembered as {chosen} fact {fact.n}."


@tool(effect="pure", quick=True, searches=True)
async def memory_load(
    context: InsideContext,
    query: Annotated[str, Field(description="Words to look for; none gives the newest.")] = "",
    scope: Scope = None,
    limit: Annotated[int, Field(ge=1, le=FOUND_MAX, description="How many at most.")] = 20,
) -> str:
    """Look up remembered facts, the best match first."""
    scopes = _scopes(context) if scope is None else (_scope(context, scope),)
    facts = await _facts(context).facts([_place(context, each) for each in scopes])
    found = [facts[n] for n in matching([fact.text for fact in facts], query, limit)]
    if not found:
        return "No remembered fact matches." if query.strip() else "Nothing is remembered yet."
    return "\n".join(f"{fact.scope} fact {fact.n}: {fact.text}" for fact in found)


@tool(effect="idempotent", quick=True)
async def memory_delete(fact: Number, context: InsideContext, scope: Scope = None) -> str:
    """Forget a remembered fact for good, by its number."""
    chosen = _scope(context, scope)
    at = _place(context, chosen)
    try:
        await _facts(context).forget(at, fact)
    except UsageError as error:
        raise ToolFailed(str(error)) from None
    return f"Forgot {chosen} fact {fact}."


def _facts(context: InsideContext) -> Facts:
    if context.services.facts is None:
        raise ToolFailed("This worker keeps no memory.")
    return context.services.facts


def _place(context: InsideContext, scope: FactScope) -> MemoryPlace:
    spec = context.spec
    return place(scope, context.tenant, context.session, spec.workspace, spec.user)


def _scopes(context: InsideContext) -> tuple[FactScope, ...]:
    scopes = context.spec.profile.memory.scopes
    if not scopes:
        raise ToolFailed(f"Profile {context.spec.profile.name} has no memory.")
    return scopes


def _scope(context: InsideContext, asked: FactScope | None) -> FactScope:
    """The memory that is meant: the first of the profile's where the model names none."""
    scopes = _scopes(context)
    if asked is not None and asked not in scopes:
        raise ToolFailed(f"There is no {asked} memory here, only that of {', '.join(scopes)}.")
    return asked or scopes[0]
