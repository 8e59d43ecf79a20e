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
    assert list(json.loads(line_of(RESULTS, 3))) == ["role", "content", "tokens"]


def test_T23_what_is_written_is_read_as_it_was() -> None:
    image = UserMessage(parts=(Text(text="see"), Image(media_type="image/png", data="aGk=")))
    messages = [user_text("1+1\nplease"), CALLS, RESULTS, SAID, image]
    text = "".join(f"{line_of(message, 1)}\n" for message in messages)
    assert text.count("\n") == len(messages)
    assert read_lines(text) == (messages, [])


def test_bad_lines_are_left_out_and_told() -> None:
    lines = ['{"role": "user", "content": "a", "tokens": 1}', "{", '{"role": "system"}', "[]", ""]
    messages, left_out = read_lines("\n".join(lines))
    assert messages == [user_text("a")]
    assert left_out == [
        f"line {number} is no message with 'role' and 'content'" for number in (2, 3, 4)
    ]


def test_a_result_without_its_call_and_a_call_without_its_result_become_text() -> None:
    told = '{"role": "tool", "content": "42 files", "tokens": 2}'
    lines = [told, line_of(RESULTS, 1), line_of(CALLS, 1), line_of(user_text("go on"), 1)]
    messages, _ = read_lines("\n".join(lines))
    assert messages == [
        user_text("[tool result]\n42 files"),
        user_text("[add answered]\n2"),
        AssistantMessage(parts=(Text(text="[called add]"),)),
        user_text("go on"),
    ]
