"""How many tokens a text takes, counted as its model would where that is known."""

import pytest

from everturn_activities import tokens

TEXT = "Привет, мир! 你好 世界 " * 4


@pytest.mark.parametrize(
    ("model", "encoding", "own"),
    [
        ("openai/gpt-5-mini", "o200k_base", True),
        ("openrouter/openai/gpt-4o", "o200k_base", True),
        ("gpt-oss-20b-Q4_K_M.gguf", "o200k_base", True),
        ("openai/gpt-4", "cl100k_base", True),
        ("anthropic/claude-sonnet-4-5", "o200k_base", False),
        ("text-davinci-003", "o200k_base", False),
        ("a model of our own", "o200k_base", False),
    ],
)
def test_a_model_is_counted_with_its_own_encoding_where_that_is_known(
    model: str, encoding: str, own: bool
) -> None:
    assert tokens.encoding_of(model) == (encoding, own)


def test_two_encodings_count_one_text_differently() -> None:
    assert tokens.count_text(TEXT, "openai/gpt-5-mini") < tokens.count_text(TEXT, "openai/gpt-4")
