"""Conversations as JSON lines."""

import json

from everturn.jsonl import line_of, read_lines
from everturn.messages import (
    AssistantMessage,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    user_text,
)

CALLS = AssistantMessage(
    parts=(Thinking(text="hm", signature="s"), ToolCall(id="c1", name="add", arguments={"a": 1}))
)
RESULTS = ToolMessage(results=(ToolResult(call_id="c1", name="add", text="2"),))
SAID = AssistantMessage(parts=(Text(text="two"),))


def test_T23_a_line_has_role_content_and_tokens() -> None:
    assert json.loads(line_of(user_text("Grüezi"), 7)) == {
        "role": "user",
        "content": "Grüezi",
        "tokens": 7,
    }
    assert "Grüezi" in line_of(user_text("Grüezi"), 7)
    assert list(json.loads(line_of(RESULTS, 3))) == ["role", "content", "tokens"]


def test_T23_what_is_written_is_read_as_it_was() -> None:
    image = UserMessage(parts=(Text(text="see"), Image(media_type="image/png", data="aGk=")))
    # A line may be written with a separator of lines that is no line's end.
    messages = [user_text("1+1\nplease\u2028now"), CALLS, RESULTS, SAID, image]
    text = "".join(f"{line_of(message, 1)}\n" for message in messages)
    assert text.count("\n") == len(messages)
    assert read_lines(text) == (messages, [])


def test_bad_lines_are_left_out_and_told() -> None:
    deep = f'{{"role": "user", "content": {"[" * 100_000}'
    lines = ['{"role": "user", "content": "a", "tokens": 1}', "{", '{"role": "system"}', "[]", ""]
    lines += [deep, '{"role": "tool", "content": []}', '{"role": "user", "content": []}']
    messages, left_out = read_lines("\n".join(lines))
    assert messages == [user_text("a")]
    assert left_out == [
        f"line {number} is no message with 'role' and 'content'" for number in (2, 3, 4, 6, 7, 8)
    ]


def test_a_result_without_its_call_and_a_call_without_its_result_become_text() -> None:
    told = '{"role": "tool", "content": "42 files", "tokens": 2}'
    lines = [told, *(line_of(one, 1) for one in (RESULTS, CALLS, user_text("go on")))]
    messages, _ = read_lines("\n".join(lines))
    assert messages == [
        user_text("[tool result]\n42 files"),
        user_text("[add answered]\n2"),
        AssistantMessage(parts=(Text(text="[called add]"),)),
        user_text("go on"),
    ]


def test_results_answer_only_what_stands_right_before_them() -> None:
    others = ToolMessage(results=(ToolResult(call_id="c2", name="add", text="3"),))
    both = ToolMessage(results=(*RESULTS.results, *others.results))
    two = AssistantMessage(parts=(*CALLS.tool_calls, ToolCall(id="c2", name="add")))
    as_text, twice = user_text("[add answered]\n2"), user_text("[add answered]\n3")
    without = AssistantMessage(parts=(Text(text="[called add]"),))
    for given, read in (
        ([CALLS, RESULTS, RESULTS], [CALLS, RESULTS, as_text]),
        ([CALLS, SAID, RESULTS], [without, SAID, as_text]),
        ([CALLS, others], [without, twice]),
        ([two, RESULTS], [AssistantMessage(parts=(Text(text="[called add, add]"),)), as_text]),
        ([CALLS, both], [without, user_text("[add answered]\n2\n\n[add answered]\n3")]),
    ):
        assert read_lines("\n".join(line_of(one, 1) for one in given))[0] == read


def test_what_was_said_beside_a_call_that_nothing_answers_stays() -> None:
    aside = AssistantMessage(parts=(Text(text="I look."), *CALLS.tool_calls))
    messages, _ = read_lines(line_of(aside, 1))
    assert messages == [
        AssistantMessage(parts=(Text(text="I look."), Text(text="[called add]"))),
    ]
