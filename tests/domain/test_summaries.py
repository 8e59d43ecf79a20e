"""Rows B13, B24, B25, B26: what is cut, what is left out, and what the summariser is asked."""

import pytest

from everturn.agents import Agent, AgentSpec
from everturn.context.compaction import (
    HEADINGS,
    Counted,
    bounded,
    cut_point,
    kept_tokens_max,
    summary_request,
    summary_tokens_max,
    transcript,
    usable,
)
from everturn.context.results import LEFT_OUT, within_budget
from everturn.context.window import Frame
from everturn.messages import (
    AssistantMessage,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    user_text,
)

SPEC = AgentSpec(agent=Agent(), workspace="/w", working_dir="/w")


def conversation(*roles: str, tokens: int = 10) -> list[Counted]:
    return [Counted(number, role, tokens) for number, role in enumerate(roles, 1)]


def results(*lengths: int) -> ToolMessage:
    return ToolMessage(
        results=tuple(
            ToolResult(call_id=f"c{index}", name="read", text="x" * length)
            for index, length in enumerate(lengths)
        )
    )


def lengths(messages: object) -> list[int]:
    return [
        len(result.text)
        for message in messages  # type: ignore[attr-defined]
        if isinstance(message, ToolMessage)
        for result in message.results
    ]


def test_B24_the_last_ten_of_fifty_messages_stay() -> None:
    assert cut_point(conversation(*["user", "assistant"] * 25), 10, 1000) == 40


def test_B24_the_cut_moves_so_that_no_result_loses_its_call() -> None:
    messages = conversation("user", *["assistant", "tool"] * 10)
    cut = cut_point(messages, 10, 1000)
    assert messages[cut].role == "assistant"
    assert cut == 11
    assert cut_point(messages, 9, 1000) == 11  # Nine would begin with a result.


def test_fewer_stay_where_the_last_ones_fill_the_window_by_themselves() -> None:
    messages = conversation("user", *["assistant", "tool"] * 10, tokens=100)
    cut = cut_point(messages, 10, 350)
    assert (cut, messages[cut].role) == (19, "assistant")
    assert cut_point(messages, 10, 0) == 19


def test_a_short_conversation_has_nothing_to_cut() -> None:
    assert cut_point(conversation("user", "assistant"), 10, 1000) == 0
    assert cut_point([], 10, 1000) == 0


def test_what_a_provider_found_too_long_is_at_least_halved() -> None:
    frame = Frame(window=100_000, system=10_000)
    assert kept_tokens_max(frame, 30_000, forced=False) == 40_000
    assert kept_tokens_max(frame, 30_000, forced=True) == 15_000


def test_B13_the_newest_result_is_intact_and_the_total_fits() -> None:
    sent = within_budget([results(30_000), results(30_000), results(30_000)], 50_000)
    assert lengths(sent)[-1] == 30_000
    assert sum(lengths(sent)) <= 50_000
    assert lengths(sent)[0] == len(LEFT_OUT)


def test_B13_results_of_one_step_are_left_out_in_call_order() -> None:
    sent = within_budget([user_text("go"), results(30_000, 30_000, 30_000)], 80_000)
    assert lengths(sent) == [len(LEFT_OUT), 30_000, 30_000]


def test_B13_results_within_the_budget_and_a_single_large_one_stay() -> None:
    assert within_budget([results(10, 20)], 30) == [results(10, 20)]
    assert lengths(within_budget([results(500)], 30)) == [500]


def test_B13_what_is_left_out_changes_in_steps_so_that_prompts_can_be_cached() -> None:
    messages = [results(1000) for _ in range(60)]
    seen = []
    for count in range(40, 60):
        sent = lengths(within_budget(messages[:count], 20_000))
        seen.append(sent.count(len(LEFT_OUT)))
    assert len(set(seen)) == 5
    assert seen == sorted(seen)


def test_B25_the_request_demands_all_six_headings_in_order() -> None:
    (message,) = summary_request(SPEC, 100_000, [user_text("hello")], "openai/x").messages
    assert isinstance(message, UserMessage)
    text = message.model_dump_json()
    places = [text.index(f"## {heading}") for heading in HEADINGS]
    assert places == sorted(places)
    assert HEADINGS == (
        "Primary Request and Intent",
        "Key Technical Concepts",
        "Files and Code Sections",
        "Errors and fixes",
        "Pending Tasks",
        "Current Work",
    )


def test_B26_the_prompt_opens_with_the_ban_on_tools_below_all_context() -> None:
    request = summary_request(SPEC, 100_000, [user_text("hello there")], "openai/x")
    (message,) = request.messages
    assert isinstance(message, UserMessage)
    (part,) = message.parts
    assert isinstance(part, Text)
    context, prompt = part.text.split("</conversation>\n\n")
    assert "hello there" in context
    assert prompt.startswith("CRITICAL: answer with text only.")
    for word in ("Read", "Bash", "Grep", "Glob", "Edit", "Write", "REJECTED"):
        assert word in prompt.partition("##")[0]
    assert request.tools == ()


def test_B26_a_tool_call_or_nothing_is_no_summary() -> None:
    call = ToolCall(id="c", name="read", arguments={})
    assert usable(AssistantMessage(parts=(Text(text="all"), call))) is None
    assert usable(AssistantMessage(parts=())) is None
    assert usable(AssistantMessage(parts=(Text(text=" \n"),))) is None
    assert usable(AssistantMessage(parts=(Text(text=" gist "),))) == "gist"


def test_a_transcript_tells_who_said_what_and_leaves_thoughts_out() -> None:
    asked = AssistantMessage(
        parts=(
            Thinking(text="hm", signature="s"),
            Text(text="I look."),
            ToolCall(id="c", name="read", arguments={"path": "a.txt"}),
        )
    )
    failed = ToolResult(call_id="c", name="read", text="No file.", failed=True)
    told = transcript([user_text("Look"), asked, ToolMessage(results=(failed,))], 10_000)
    assert told == (
        "[user]\nLook\n\n[assistant]\nI look.\n\n[assistant calls read]\npath='a.txt'\n\n"
        "[read failed]\nNo file."
    )


@pytest.mark.parametrize("window", [1_000, 8_000, 32_000])
def test_the_request_for_a_summary_fits_into_the_window(window: int) -> None:
    messages = [user_text("start"), *[results(20_000) for _ in range(30)], user_text("y" * 9000)]
    request = summary_request(SPEC, window, messages, "openai/x")
    characters = len(request.system) + len(request.messages[0].model_dump_json())
    assert characters / 4 + summary_tokens_max(window) < window
    assert "start" in request.messages[0].model_dump_json()


def test_a_long_summary_is_bounded() -> None:
    assert summary_tokens_max(1_000_000) == 20_000
    assert summary_tokens_max(32_000) == 4_000
    assert bounded("abc", 3) == "abc"
    assert bounded("abcd", 3) == "abc\n\n[truncated]"


def test_a_summary_is_asked_for_as_the_agent_asks_and_with_no_key_of_another_provider() -> None:
    given = {"model": "openai/x", "api_key_variable": "OWN_KEY", "stream": False}
    spec = AgentSpec(agent=Agent.model_validate(given), workspace="/w", working_dir="/w")

    own = summary_request(spec, 100_000, [user_text("hello")], "openai/small")
    other = summary_request(spec, 100_000, [user_text("hello")], "anthropic/small")

    assert (own.stream, own.api_key_variable) == (False, "OWN_KEY")
    assert (other.stream, other.api_key_variable) == (False, None)
