"""What can be remembered, and what of a model's answer becomes of it."""

import json

import pytest

from everturn.context.consolidation import Told, UnusableAnswer, merged_facts, oldest
from everturn.errors import UsageError
from everturn.memory import checked_fact, matching
from everturn.messages import AssistantMessage, Text, ToolCall

FACTS = [Told(1, "likes tea", 5), Told(4, "lives in Bern", 5), Told(5, "likes green tea", 5)]


def answer(text: object) -> AssistantMessage:
    said = text if isinstance(text, str) else json.dumps(text)
    return AssistantMessage(parts=(Text(text=said),))


def test_facts_are_found_by_the_words_they_share_the_best_and_newest_first() -> None:
    texts = ["Uses uv, not pip", "Prefers tabs", "uv runs in CI", "Tabs are 4 wide"]
    assert matching(texts, "UV in ci", 10) == [2, 0]
    assert matching(texts, "tabs", 1) == [3]
    assert matching(texts, "", 2) == [3, 2]
    assert matching(texts, "nothing", 5) == []


def test_a_fact_is_one_line_and_has_a_limit() -> None:
    assert checked_fact("  likes\n tea ") == "likes tea"
    with pytest.raises(UsageError, match="empty"):
        checked_fact(" \n")
    with pytest.raises(UsageError, match=r"2,001 characters and the limit is 2,000; save shorter"):
        checked_fact("x" * 2001)


@pytest.mark.parametrize("fence", ["{}", "```json\n{}\n```", "```\n{}```\n"])
def test_an_answer_replaces_what_it_names_and_leaves_the_rest(fence: str) -> None:
    said = fence.format(json.dumps([{"text": " likes green\ntea", "from": [5, 1]}]))
    (merged,) = merged_facts(answer(said), FACTS)
    assert (merged.text, merged.of) == ("likes green tea", (1, 5))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("I merged them.", "no JSON array"),
        ([], "changes nothing"),
        ([{"text": "lives in Bern", "from": [4]}], "changes nothing"),
        ([{"text": "tea", "from": [1, 2]}], "not shown"),
        ([{"text": "tea", "from": []}], "no JSON array"),
        ([{"text": " ", "from": [1]}], "empty fact"),
        ([{"text": "tea", "from": [1]}, {"text": "more", "from": [1, 4]}], "twice"),
        ({"text": "tea", "from": [1]}, "no JSON array"),
    ],
)
def test_an_answer_that_cannot_be_used_changes_nothing(said: object, why: str) -> None:
    with pytest.raises(UnusableAnswer, match=why):
        merged_facts(answer(said), FACTS)


def test_a_tool_call_is_no_answer() -> None:
    with pytest.raises(UnusableAnswer, match="tool call"):
        merged_facts(AssistantMessage(parts=(ToolCall(id="1", name="memory_save"),)), FACTS)


def test_the_oldest_facts_are_shown_as_far_as_there_is_room() -> None:
    many = [Told(n, "x", 9_000) for n in range(1, 5)]
    assert [fact.n for fact in oldest(many)] == [1, 2]
