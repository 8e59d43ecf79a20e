"""From an agent and a history to one request."""

from collections.abc import Mapping

from everturn.agents import Agent, AgentSpec, NativeTool, ToolSpec
from everturn.context.conversation import Conversation
from everturn.context.layers import join, render
from everturn.context.results import within_budget
from everturn.messages import AssistantMessage, Frozen, ToolMessage, UserMessage, user_text
from everturn.profile import SUMMARY


class Context(Frozen):
    """One request to a model. Rebuilt for each step, never stored as history.

    `cached` is how many characters of the prompt a provider may keep: of `system`, or of the
    first message where there is none. `steady`: nothing of the prompt changes with each step,
    so that it may keep what follows too.
    """

    model: str
    system: str
    messages: tuple[UserMessage | AssistantMessage | ToolMessage, ...]
    tools: tuple[ToolSpec, ...]
    native_tools: tuple[NativeTool, ...] = ()
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
    cached: int = 0
    steady: bool = False


def compose(spec: AgentSpec, texts: Mapping[str, str], conversation: Conversation) -> Context:
    """The request of an agent whose layers have these `texts`, by their ids."""
    agent = spec.agent
    history = conversation.whole
    if spec.profile.compaction.sink == "layer":
        history = conversation.messages
        texts = with_summary(spec, texts, conversation.summary)
    prompt = join(spec.profile.recipe, texts)
    if agent.tool_result_budget is not None:
        history = within_budget(history, agent.tool_result_budget)
    return Context.model_construct(
        model=agent.model,
        system=prompt.system,
        messages=(*prompt.messages, *history),
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
        cached=prompt.cached,
        steady=prompt.steady,
    )


def with_summary(
    spec: AgentSpec, texts: Mapping[str, str], summary: str | None
) -> Mapping[str, str]:
    """`texts` with the layer that a compaction's summary stands in, if there is one."""
    if summary is None:
        return texts
    layers = [layer for layer in spec.profile.recipe.layers if layer.source == SUMMARY]
    return {**texts, **{layer.id: render(layer, [{"text": summary}]) for layer in layers}}


def side_request(agent: Agent, model: str, system: str, text: str, tokens_max: int) -> Context:
    """What is asked of `model` beside a conversation: a summary of it, or what to remember."""
    return Context(
        model=model,
        system=system,
        messages=(user_text(text),),
        tools=(),
        base_url=agent.base_url,
        # Another provider's model is sent no key of the agent's own.
        api_key_variable=agent.key_variable_of(model),
        tokens_max=tokens_max,
        tool_role=agent.tool_role,
        stream=agent.stream,
        stall_seconds=agent.stall_seconds,
    )
