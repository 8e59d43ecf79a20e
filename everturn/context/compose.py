"""From an agent and a history to one request."""

from collections.abc import Sequence

from everturn.agents import AgentSpec, ToolSpec
from everturn.context.results import within_budget
from everturn.messages import AssistantMessage, Frozen, ToolMessage, UserMessage


class Context(Frozen):
    """One request to a model. Rebuilt for each step, never stored as history."""

    model: str
    system: str
    messages: tuple[UserMessage | AssistantMessage | ToolMessage, ...]
    tools: tuple[ToolSpec, ...]
    base_url: str | None = None
    api_key_variable: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    repeat_penalty: float | None = None
    tokens_max: int | None = None
    tool_role: bool = True
    stream: bool = True
    stall_seconds: float = 45.0


def compose(
    spec: AgentSpec, history: Sequence[UserMessage | AssistantMessage | ToolMessage]
) -> Context:
    agent = spec.agent
    if agent.tool_result_budget is not None:
        history = within_budget(history, agent.tool_result_budget)
    return Context.model_construct(
        model=agent.model,
        system=agent.prompt,
        messages=tuple(history),
        tools=spec.tools,
        base_url=agent.base_url,
        api_key_variable=agent.api_key_variable,
        temperature=agent.temperature,
        top_p=agent.top_p,
        top_k=agent.top_k,
        repeat_penalty=agent.repeat_penalty,
        tokens_max=agent.tokens_max,
        tool_role=agent.tool_role,
        stream=agent.stream,
        stall_seconds=agent.stall_seconds,
    )
