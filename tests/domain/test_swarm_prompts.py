"""A swarm's prompt template, and which items it can be filled with."""

import pytest

from everturn.errors import UsageError
from everturn.swarms import (
    SwarmSpec,
    checked_item,
    fields_of,
    filled,
    reduce_prompt,
    session_of,
)


def test_fields_are_filled_as_text_or_as_json():
    item = {"path": "a.py", "lines": [1, 2], "nested": {"a": "ü"}, "n": 3}
    template = "Review {path}, lines {lines} of {nested}: {n} {{as is}}"
    assert fields_of(template) == ("path", "lines", "nested", "n")
    assert filled(template, item) == 'Review a.py, lines [1, 2] of {"a": "ü"}: 3 {as is}'


def test_what_an_item_says_is_no_template():
    assert filled("Say {text}.", {"text": "{secret} {{x}}"}) == "Say {secret} {{x}}."


@pytest.mark.parametrize(("template", "place"), [("a { b", 3), ("a } b", 3), ("{} b", 1)])
def test_a_brace_of_no_pair_is_refused_with_its_place(template, place):
    with pytest.raises(UsageError, match=rf"at character {place};.*write \{{field\}}"):
        fields_of(template)


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ([], "Item 7 is no JSON object"),
        ({"id": {}, "task": "a"}, "The id of item 7 is no text of up to 200 characters"),
        ({"id": "a\0b", "task": "a"}, "The id of item 7 is no text of up to 200 characters"),
        ({"id": True, "task": "a"}, "The id of item 7 is no text"),
        ({"id": "x" * 201, "task": "a"}, "The id of item 7 is no text"),
        (
            {"other": 1},
            "Item 7 has no field 'task', which the prompt template names; it has: other",
        ),
        ({}, "it has: none"),
        ({"task": "x" * 300_000}, "prompt of item 7"),
    ],
)
def test_an_item_that_cannot_be_worked_is_named(item, why):
    with pytest.raises(UsageError, match=why):
        checked_item("Do {task}.", item, 7)


def test_an_item_without_an_id_is_called_by_its_number():
    assert checked_item("Do {task}.", {"task": "a"}, 7) == "7"
    assert checked_item("Do {task}.", {"task": "a", "id": 12}, 7) == "12"


def test_each_attempt_has_a_session_of_its_own():
    assert session_of("w", 0, 3, 1) == "w:3"
    assert session_of("w", 0, 3, 2) == "w:3-2"
    assert session_of("w", 2, 3, 1) == "w:r2.3"


@pytest.mark.parametrize(
    ("width", "shards"),
    [(1, [1]), (25, [25]), (26, [13, 13]), (60, [20, 20, 20]), (1000, [25] * 40)],
)
def test_a_width_is_spread_over_shards_evenly(width, shards):
    assert SwarmSpec(width=width).shards == shards


def test_a_long_result_is_cut_before_it_is_reduced():
    asked = reduce_prompt("Join {results}!", [("a", "x" * 9_000), ("b", "{results}")])
    assert asked.startswith("Join ## a\nxxx")
    assert asked.endswith("[cut: 9,000 characters]\n\n## b\n{results}!")
