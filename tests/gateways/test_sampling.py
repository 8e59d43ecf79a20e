"""How settings of sampling are called by those who have them, and what is said of the others."""

import pytest

from everturn.agents import Agent
from everturn_activities.gateways import OPENAI_URL
from everturn_activities.gateways.choose import Gateways
from everturn_activities.gateways.sampling import ANY, sampling_provider, wire_sampling

HERE = "http://127.0.0.1:8080/v1"


@pytest.mark.parametrize(
    ("provider", "sent"),
    [
        (ANY, {"top_k": 40, "repeat_penalty": 1.1}),
        ("openai", {}),
        ("anthropic", {"top_k": 40}),
        ("ollama", {"top_k": 40, "repeat_penalty": 1.1}),
        ("hosted_vllm", {"top_k": 40, "repetition_penalty": 1.1}),
    ],
)
def test_a_provider_is_sent_what_it_has_under_its_own_names(provider: str, sent: dict[str, float]):
    agent = Agent(temperature=0.7, top_p=0.9, top_k=40, repeat_penalty=1.1)
    assert wire_sampling(agent, provider) == {"temperature": 0.7, "top_p": 0.9, **sent}
    assert wire_sampling(Agent(), provider) == {}


def test_what_serves_a_model_decides_what_settings_are_called():
    assert sampling_provider("openai/a", OPENAI_URL) == "openai"
    assert sampling_provider("openai/a", HERE) == ANY
    assert sampling_provider("hosted_vllm/a", HERE) == "hosted_vllm"
    assert sampling_provider("gpt-oss-20b-Q4_K_M.gguf", HERE) == ANY


@pytest.mark.parametrize(
    ("environ", "given", "missing"),
    [
        ({}, {"model": "openai/gpt-5-mini"}, "no top_k and no repeat_penalty"),
        ({"OPENAI_BASE_URL": HERE}, {"model": "openai/gpt-5-mini"}, None),
        ({}, {"model": "openai/gpt-5-mini", "base_url": HERE}, None),
        ({}, {"model": "anthropic/claude-sonnet-4-5"}, "no repeat_penalty"),
    ],
)
def test_what_a_provider_has_not_is_told(
    environ: dict[str, str], given: dict[str, str], missing: str | None
):
    told = Gateways(environ).left_out(Agent(top_k=40, repeat_penalty=1.1, **given))
    assert (told is None) if missing is None else (missing in str(told))
    assert Gateways(environ).left_out(Agent(**given)) is None
