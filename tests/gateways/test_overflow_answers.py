"""A request that is too long is compacted, in whatever words its provider says so."""

import pytest

from everturn.errors import ContextOverflow
from everturn_activities.gateways.failures import Called, from_answer, from_stream_error

CALLED = Called("some-model", "api.example.com")

TOO_LONG = {
    "OpenAI": "This model's maximum context length is 8192 tokens. However, your messages resulted"
    " in 9120 tokens.",
    "OpenAI Responses": "Your input exceeds the context window of this model. Please adjust your"
    " input and try again.",
    "Anthropic": "prompt is too long: 210045 tokens > 200000 maximum",
    "Anthropic with max_tokens": "input length and `max_tokens` exceed context limit: 190000 +"
    " 21333 > 200000, decrease input length or `max_tokens` and try again",
    "Gemini": "The input token count (1200000) exceeds the maximum number of tokens allowed"
    " (1048575).",
    "Bedrock": "Input is too long for requested model.",
    "Mistral": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768"
    " maximum context length",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Cohere": "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    "llama.cpp": "the request exceeds the available context size. try increasing the context size",
    "Text Generation Inference": "Input validation error: `inputs` tokens + `max_new_tokens` must"
    " be <= 4096. Given: 4000 `inputs` tokens and 512 `max_new_tokens`",
    "Ollama": "INPUT LENGTH EXCEEDS THE CONTEXT LENGTH",
}
OTHERS = {
    "a reply that may not be so long": "max_tokens is too large: 200000. This model supports at"
    " most 16384 completion tokens.",
    "a parameter": "Unsupported parameter: 'context' is not supported with this model.",
}


@pytest.mark.parametrize("said", TOO_LONG.values(), ids=TOO_LONG)
def test_it_is_known_by_what_the_provider_says(said: str) -> None:
    error = {"error": {"message": said, "type": "invalid_request_error"}}
    answers = [from_answer(CALLED, status, error) for status in (400, 413, 422)]
    answers.append(from_stream_error(CALLED, error))
    assert [type(answer) for answer in answers] == [ContextOverflow] * 4


def test_it_is_known_by_its_code_alone() -> None:
    error = {"error": {"message": "Please reduce it.", "code": "context_length_exceeded"}}
    for answer in (from_answer(CALLED, 400, error), from_stream_error(CALLED, error)):
        assert isinstance(answer, ContextOverflow)


@pytest.mark.parametrize("said", OTHERS.values(), ids=OTHERS)
def test_what_else_is_wrong_with_a_request_is_no_overflow(said: str) -> None:
    error = {"error": {"message": said, "code": "invalid_request_error"}}
    assert not isinstance(from_answer(CALLED, 400, error), ContextOverflow)


@pytest.mark.parametrize("status", [401, 429, 500])
def test_what_time_or_a_key_repairs_is_no_overflow(status: int) -> None:
    error = {"error": {"message": "The limit of the context window tier is reached."}}
    assert not isinstance(from_answer(CALLED, status, error), ContextOverflow)
