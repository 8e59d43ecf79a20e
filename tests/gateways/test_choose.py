"""Which gateway serves a model, what it costs, and how many tokens a message takes."""

import base64
import json
import os
import subprocess
import sys

import pytest
from model_servers import asking, raw_server, refusing, replied

from everturn.agents import Agent, Candidate
from everturn.errors import ModelRefused, UnknownModel
from everturn.messages import Document, Image, Text, ToolMessage, ToolResult, UserMessage, user_text
from everturn_activities import prices, tokens
from everturn_activities.gateways import Usage
from everturn_activities.gateways.choose import Gateways, check_model
from everturn_activities.gateways.discreet import CleanRequests
from everturn_activities.vault import Vault


@pytest.mark.parametrize(
    "model",
    [
        "openai/gpt-5-mini",
        "openai/whatever-a-local-server-calls-it",
        "anthropic/claude-sonnet-4-5",
        "ollama/llama3",
        "hosted_vllm/Qwen/Qwen3-8B",
        "gpt-5-mini",
        "claude-sonnet-4-5",
    ],
)
def test_a_model_of_a_known_provider_passes(model):
    check_model(model)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("antropic/claude", "did you mean anthropic/claude"),
        ("nobody-knows/this", "No provider is called 'nobody-knows'"),
        ("no-such-model", "names no provider"),
        ("openai/", "names no provider"),
        ("", "names no provider"),
    ],
)
def test_an_unknown_model_is_one_sentence_with_the_mend(model, told):
    with pytest.raises(UnknownModel, match=told) as raised:
        check_model(model)
    assert "\n" not in str(raised.value)


async def test_openai_and_any_base_url_go_straight_the_rest_through_litellm():
    gateways = Gateways({})
    straight = gateways.for_context(asking(None, model="openai/gpt-5-mini"))
    assert type(straight).__name__ == "ChatCompletionsGateway"
    assert gateways.for_context(asking(None, model="gpt-5-mini")) is straight
    assert gateways.for_context(asking("http://127.0.0.1:1/v1", model="any")) is straight
    other = gateways.for_context(asking(None, model="anthropic/claude-sonnet-4-5"))
    assert type(other).__name__ == "LiteLLMGateway"
    with pytest.raises(UnknownModel):
        gateways.for_context(asking(None, model="nonsense"))
    await gateways.close()


def test_choosing_and_pricing_import_no_vendor_library():
    code = (
        "import sys; from everturn_activities.gateways.choose import check_model, Gateways;"
        "from everturn_activities import prices, tokens; check_model('openai/x');"
        "prices.window('gpt-5-mini');"
        "print([m for m in ('litellm', 'httpx', 'tiktoken', 'openai') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_cached_tokens_and_cache_writes_are_priced_apart():
    usage = Usage(
        input_tokens=1000, output_tokens=100, cached_tokens=400, cache_write_tokens=100
    )  # fmt: skip
    cost = prices.cost_usd("anthropic/claude-sonnet-4-5", usage)
    assert cost == pytest.approx(500 * 3e-6 + 400 * 3e-7 + 100 * 3.75e-6 + 100 * 1.5e-5)


def test_a_model_is_priced_with_and_without_its_providers_name():
    usage = Usage(input_tokens=1000, output_tokens=1000)
    assert prices.cost_usd("openai/gpt-5-mini", usage) == prices.cost_usd("gpt-5-mini", usage)
    assert prices.cost_usd("gpt-5-mini", usage) == pytest.approx(1000 * 2.5e-7 + 1000 * 2e-6)


def test_long_requests_pay_the_dearer_prices():
    short = prices.cost_usd("gemini/gemini-2.5-pro", Usage(input_tokens=200_000))
    long = prices.cost_usd("gemini/gemini-2.5-pro", Usage(input_tokens=200_001))
    assert long > 1.9 * short


def test_an_unknown_model_has_no_price_and_no_window():
    assert prices.cost_usd("openai/no-such", Usage(input_tokens=1)) is None
    assert prices.cost_usd("ollama/gpt-5-mini", Usage(input_tokens=1)) is None
    assert prices.window("openai/no-such") is None
    assert prices.window("openai/gpt-5-mini") == 272_000


def test_tokens_are_counted_offline_as_openai_counts_them(monkeypatch):
    monkeypatch.setattr("socket.socket.connect", _no_network)
    assert tokens.count_text("hello world", "openai/gpt-5-mini") == 2
    assert tokens.count_text("<|endoftext|>", "openai/gpt-5-mini") > 0
    assert tokens.count_text("", "openai/gpt-5-mini") == 0
    assert tokens.count_text("hello world", "openai/gpt-4") == 2


def _no_network(*arguments):
    raise AssertionError("the network was asked")


def test_counting_leaves_the_environment_as_it_was(monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "/elsewhere")
    tokens._encoding.cache_clear()
    tokens.count_text("hello", "m")
    assert os.environ["TIKTOKEN_CACHE_DIR"] == "/elsewhere"


def test_a_text_of_ten_megabytes_is_counted_in_part():
    word = "word and another "
    short = tokens.count_text(word * 10_000, "m")
    assert tokens.count_text(word * 600_000, "m") == pytest.approx(60 * short, rel=0.01)


def test_images_and_documents_count_by_rule():
    pdf = base64.b64encode(b"%PDF /Type /Pages /Type /Page x /Type/Page y").decode()
    image = UserMessage(parts=(Image(media_type="image/png", data="aGk="),))
    two_pages = UserMessage(parts=(Document(media_type="application/pdf", data=pdf),))
    assert tokens.count_message(image, "m") == tokens.IMAGE_TOKENS + tokens.MESSAGE_TOKENS
    assert tokens.count_message(two_pages, "m") == 2 * tokens.PAGE_TOKENS + tokens.MESSAGE_TOKENS


def test_every_part_of_a_message_counts():
    one = ToolMessage(results=(ToolResult(call_id="c", name="a", text="hello world"),))
    text = UserMessage(parts=(Text(text="hello world"), Text(text="hello world")))
    assert tokens.count_message(one, "m") == 2 + tokens.MESSAGE_TOKENS
    assert tokens.count_message(text, "m") == 4 + tokens.MESSAGE_TOKENS


def test_a_route_knows_the_account_and_tells_neither_key_nor_password() -> None:
    environ = {
        "OPENAI_BASE_URL": "https://me:hidden@models.example:8443/v1",
        "OPENAI_API_KEY": "sk-hidden",
        "ANTHROPIC_API_KEY": "sk-hidden-too",
    }
    gateways, others = Gateways(environ), Gateways({**environ, "OPENAI_API_KEY": "sk-another"})
    openai = Candidate(model="openai/gpt-5-mini")
    route = gateways.route(openai)
    assert route.provider == "models.example:8443"
    assert "hidden" not in str(route)
    assert gateways.route(Candidate(model="openai/gpt-5")).key == route.key
    assert others.route(openai).key != route.key

    anthropic = Candidate(model="anthropic/claude-sonnet-4-5")
    assert gateways.route(anthropic).provider == "anthropic"
    assert gateways.route(anthropic).key == others.route(anthropic).key
    own = Candidate(model="anthropic/claude-sonnet-4-5", api_key_variable="OTHER_KEY")
    assert gateways.route(own).key != gateways.route(anthropic).key


SECRET = "canary-0123456789"


async def test_no_request_and_no_error_holds_a_value_that_is_known():
    """Whatever a person, a file or a model has put into a conversation."""
    vault = Vault({"A_TOKEN": SECRET})
    gateways = Gateways({}, vault)
    async with raw_server(refusing(400, {"error": {"message": f"bad {SECRET}"}})) as server:
        context = asking(
            f"{server.url}/v1",
            user_text(f"It is {SECRET}."),
            user_text("Nothing."),
            system=f"Use {SECRET}.",
        )
        with pytest.raises(ModelRefused) as raised:
            await replied(gateways.for_context(context), context)
        # The second time from memory, and what is learnt meanwhile is looked for too.
        vault.scrubber.learn("LATE", "Nothing.")
        with pytest.raises(ModelRefused):
            await replied(gateways.for_context(context), context)
    await gateways.close()
    first, second = (json.dumps(request.body) for request in server.requests)
    assert SECRET not in f"{first}{second}{raised.value}"
    assert "Use [secret A_TOKEN]." in first
    assert "It is [secret A_TOKEN]." in second
    assert "bad [secret A_TOKEN]" in str(raised.value)
    assert ("Nothing." in first, "Nothing." in second) == (True, False)


def test_a_request_without_secrets_is_sent_as_it_is():
    clean = CleanRequests(Vault({"A_TOKEN": SECRET}).scrubber)
    context = asking(None, system="Be kind.")
    assert clean.of(context) is context
    assert clean.of(context) is context


@pytest.mark.parametrize(
    ("model", "tools", "told"),
    [
        ("gemini/gemini-2.5-pro", None, True),
        ("vertex_ai/gemini-1.5-pro", None, True),
        ("gemini/gemini-2.5-pro", (), False),
        ("gemini/gemini-3-pro-preview", None, False),
        ("gemini/gemini-12-flash", None, False),
        ("anthropic/claude-sonnet-4-5", None, False),
    ],
)
def test_R21_a_search_that_a_model_does_not_take_beside_our_tools_is_told(model, tools, told):
    own = ("googleSearch", "codeExecution")
    agent = Agent(
        model=model, tools=tools, native_tools=dict.fromkeys(("gemini", "vertex_ai"), own)
    )
    note = Gateways({}).left_out(agent)
    assert (note is not None) == told
    assert note is None or "works without googleSearch; give it no other tools" in note
