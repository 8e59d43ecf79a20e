"""Which of an agent's models can take a step over."""

from dataclasses import dataclass

from everturn.agents import Agent, AgentSpec, Candidate, ToolSpec
from everturn.context.compose import compose
from everturn.context.conversation import Conversation
from everturn.messages import AssistantMessage, Text, Thinking
from everturn_activities import prices
from everturn_activities.candidates import Candidates, addressed

TOOL = ToolSpec(name="add", description="Adds.", parameters={"type": "object"})


@dataclass
class Resting:
    """Breakers of which these are open."""

    models: tuple[str, ...] = ()

    def is_open(self, model: str) -> bool:
        return model in self.models


def spec(*fallbacks: str | Candidate, tools: tuple[ToolSpec, ...] = (TOOL,)) -> AgentSpec:
    given = {"model": "openai/own", "base_url": "http://here/v1", "fallback_models": fallbacks}
    agent = Agent.model_validate(given)
    return AgentSpec(agent=agent, tools=tools, workspace="/w", working_dir="/w")


def test_the_next_in_order_takes_over_and_the_last_has_nobody_behind() -> None:
    candidates, two = Candidates(prices), spec("openai/a", "openai/b")
    assert candidates.after(two, "openai/own", 10) == "openai/a"
    assert candidates.after(two, "openai/a", 10) == "openai/b"
    assert candidates.after(two, "openai/b", 10) is None
    assert candidates.after(spec(), "openai/own", 10) is None


def test_a_window_that_is_too_small_is_skipped_and_an_unknown_one_is_tried() -> None:
    candidates = Candidates(prices)
    small = spec("openai/gpt-4", "openai/of-tomorrow")
    assert candidates.after(small, "openai/own", 8_000) == "openai/gpt-4"
    assert candidates.after(small, "openai/own", 9_000) == "openai/of-tomorrow"


def test_a_model_without_tools_is_skipped_where_the_agent_has_some() -> None:
    candidates = Candidates(prices)
    without = "deepseek/deepseek-reasoner"
    assert prices.calls_tools(without) is False
    assert candidates.after(spec(without, "openai/gpt-4"), "openai/own", 10) == "openai/gpt-4"
    assert candidates.after(spec(without, tools=()), "openai/own", 10) == without


def test_a_model_that_rests_is_skipped() -> None:
    candidates = Candidates(prices, Resting(("openai/a",)))
    assert candidates.after(spec("openai/a", "openai/b"), "openai/own", 10) == "openai/b"
    assert candidates.after(spec("openai/a"), "openai/own", 10) is None


def test_a_model_is_sent_its_own_thoughts_and_no_others() -> None:
    def said(by: str | None) -> AssistantMessage:
        return AssistantMessage(parts=(Thinking(text="hm", signature="s", by=by), Text(text="ok")))

    two = spec("openai/a")
    asked = compose(two, {}, Conversation((said("openai/own"), said("openai/a"), said(None))))

    def thoughts(model: str) -> list[str | None]:
        sent = addressed(asked, two, model).messages
        parts = (part for message in sent for part in getattr(message, "parts", ()))
        return [part.by for part in parts if isinstance(part, Thinking)]

    assert thoughts("openai/own") == ["openai/own", None]
    assert thoughts("openai/a") == ["openai/a", None]


def test_a_name_is_served_where_the_agent_is_and_a_table_names_its_own_endpoint() -> None:
    elsewhere = Candidate(model="openai/b", base_url="http://there/v1")
    own = Candidate(model="anthropic/c")
    three = spec("openai/a", elsewhere, own)
    asked = compose(three, {}, Conversation())
    assert addressed(asked, three, "openai/own") == asked
    for model, url in [
        ("openai/a", "http://here/v1"),
        ("openai/b", "http://there/v1"),
        ("anthropic/c", None),
    ]:
        sent = addressed(asked, three, model)
        assert (sent.model, sent.base_url, sent.system) == (model, url, asked.system)
