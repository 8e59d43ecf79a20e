"""Which model answers a step: the agent's own, or the first fallback that can hold the request."""

from typing import Protocol

from everturn.agents import AgentSpec, Candidate
from everturn.context.compose import Context
from everturn.context.thoughts import known_to
from everturn_activities.gateways.choose import native_tools


class Facts(Protocol):
    """What is known of models; None where nothing is, and then a model may."""

    def window(self, model: str) -> int | None: ...
    def calls_tools(self, model: str) -> bool | None: ...


class Breakers(Protocol):
    def is_open(self, model: str) -> bool:
        """Whether the model failed so often of late that it is not asked for a while."""
        ...


class NoBreakers:
    def is_open(self, model: str) -> bool:
        return False


class Candidates:
    def __init__(self, facts: Facts, breakers: Breakers | None = None) -> None:
        self._facts = facts
        self._breakers = breakers or NoBreakers()

    def after(self, spec: AgentSpec, model: str, tokens: int) -> str | None:
        """Who takes over from `model` with a request of so many tokens."""
        models = [one.model for one in spec.agent.candidates]
        behind = models[models.index(model) + 1 :] if model in models else []
        if not behind:
            return None
        needed = tokens + (spec.agent.tokens_max or 0)
        return next((one for one in behind if self._can(spec, one, needed)), None)

    def is_open(self, model: str) -> bool:
        return self._breakers.is_open(model)

    def _can(self, spec: AgentSpec, model: str, needed: int) -> bool:
        if self._breakers.is_open(model):
            return False
        if spec.tools and self._facts.calls_tools(model) is False:
            return False
        window = self._facts.window(model)
        return window is None or needed <= window


def addressed(context: Context, spec: AgentSpec, model: str) -> Context:
    """`context` as it is sent to `model`, which may be a fallback's."""
    messages = known_to(model, context.messages)
    context = context.model_copy(update={"messages": messages})
    if spec.agent.native_tools:
        context = context.model_copy(update={"native_tools": native_tools(spec.agent, model)})
    if model == context.model:
        return context
    found = next(
        (one for one in spec.agent.candidates if one.model == model), Candidate(model=model)
    )
    return context.model_copy(update=found.model_dump(exclude={"here"}))
