"""Both gateways, started for the tests of this folder."""

from collections.abc import AsyncIterator

import pytest
from model_servers import KEY

from everturn_activities.gateways import ModelGateway
from everturn_activities.gateways.chat_completions import ChatCompletionsGateway
from everturn_activities.gateways.litellm import LiteLLMGateway


@pytest.fixture
async def chat_completions() -> AsyncIterator[ModelGateway]:
    gateway = ChatCompletionsGateway(key=KEY)
    yield gateway
    await gateway.close()


@pytest.fixture
async def litellm(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelGateway]:
    for name in ("HOSTED_VLLM_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, KEY)
    gateway = LiteLLMGateway(secrets=lambda: (KEY,))
    yield gateway
    await gateway.close()


@pytest.fixture(params=["chat_completions", "litellm"])
def gateway(request: pytest.FixtureRequest) -> ModelGateway:
    return request.getfixturevalue(request.param)
