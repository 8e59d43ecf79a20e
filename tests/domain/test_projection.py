"""What later turns see of one that is over."""

from everturn.context.projection import IMPORTED, Placed, is_said, projected
from everturn.messages import (
    AssistantMessage,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    user_text,
)


def says(text: str, *calls: str) -> AssistantMessage:
    asked = tuple(ToolCall(id=name, name=name) for name in calls)
    return AssistantMessage(parts=(Thinking(text="Hm."), Text(text=text), *asked))


def results(*named: str, failed: bool = False) -> ToolMessage:
    return ToolMessage(
        results=tuple(
            ToolResult(call_id=name, name=name, text=f"{name} gave", failed=failed)
            for name in named
        )
    )


def of_one_turn(*messages: object) -> list[object]:
    placed = [Placed(n, 1, message) for n, message in enumerate(messages, 1)]  # type: ignore[arg-type]
    return [one.message for one in projected(placed)]


def test_E29_the_users_words_and_the_final_reply_are_left() -> None:
    work = (says("I look.", "read"), results("read"))
    assert of_one_turn(user_text("go"), *work, *work, says("Done.")) == [
        user_text("go"),
        AssistantMessage(parts=(Text(text="Done."),)),
    ]


def test_C5_the_answer_that_response_gave_wins_over_the_text_beside_it() -> None:
    answer = AssistantMessage(parts=(Text(text="response gave"),))
    work = (says("Aside.", "response"), results("response"))
    assert of_one_turn(user_text("go"), *work) == [user_text("go"), answer]


def test_the_pieces_of_a_reply_that_was_cut_are_one() -> None:
    whole = AssistantMessage(parts=(Text(text="Half. Rest."),))
    assert of_one_turn(user_text("go"), says("Half. "), says("Rest.")) == [user_text("go"), whole]


def test_a_message_that_joined_a_turn_does_not_part_its_reply() -> None:
    whole = AssistantMessage(parts=(Text(text="Half. Rest."),))
    said = (user_text("go"), says("Half. "), user_text("and on"), says("Rest."))
    assert of_one_turn(*said) == [user_text("go"), user_text("and on"), whole]


def test_a_turn_without_a_reply_leaves_what_its_users_said() -> None:
    assert of_one_turn(user_text("a"), user_text("b"), says("", "read"), results("read")) == [
        user_text("a"),
        user_text("b"),
    ]


def test_what_is_projected_stays_as_it_is_when_it_is_projected_again() -> None:
    placed = [Placed(1, 1, user_text("go")), Placed(2, 1, says("x", "t")), Placed(3, 1, says("y"))]
    once = projected(placed)
    assert projected(once) == once
    assert once[-1].position == 3


def test_work_is_not_said() -> None:
    assert is_said(user_text("go"))
    assert is_said(says("Done."))
    assert is_said(says("", "response"))
    assert is_said(results("response"))
    assert not is_said(says("I look.", "read"))
    assert not is_said(results("read"))
    assert not is_said(results("response", failed=True))


def test_each_exchange_of_a_conversation_from_elsewhere_stays() -> None:
    """Its messages belong to turn 0, which nobody worked."""
    said = [user_text("a"), says("", "read"), results("read"), says("A."), user_text("b")]
    pieces = [says("B. "), says("Rest.")]
    placed = [Placed(n, IMPORTED, one) for n, one in enumerate([*said, *pieces], 1)]
    told = projected(placed)
    assert [one.message for one in told] == [
        user_text("a"),
        AssistantMessage(parts=(Text(text="A."),)),
        user_text("b"),
        AssistantMessage(parts=(Text(text="B. Rest."),)),
    ]
    assert [one.position for one in told] == [1, 4, 5, 7]
    assert projected(told) == told
