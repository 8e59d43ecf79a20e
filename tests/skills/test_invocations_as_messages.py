"""A skill that a person asked for, as part of a message: the model is sent the skill's text, and
people see what was written."""

from everturn.messages import SkillInvocation, Text, UserMessage, message_from_json
from everturn_activities import tokens
from everturn_activities.gateways.wire import wire_messages
from everturn_activities.store.inbox import preview
from everturn_activities.store.steps import title

ASKED = SkillInvocation(
    name="review", path="skills/review/SKILL.md", arguments="main.py", text="Review main.py well."
)
MESSAGE = UserMessage(parts=(ASKED,))


def test_a_model_is_sent_the_text_that_the_skill_came_to():
    assert wire_messages(MESSAGE, tool_role=True) == [
        {"role": "user", "content": "Review main.py well."}
    ]
    both = UserMessage(parts=(ASKED, Text(text="Quickly.")))
    (wire,) = wire_messages(both, tool_role=True)
    assert [part["text"] for part in wire["content"]] == ["Review main.py well.", "Quickly."]


def test_people_see_what_was_written():
    assert MESSAGE.said == "/review main.py"
    assert preview(MESSAGE) == "/review main.py"
    assert title(MESSAGE) == "/review main.py"


def test_it_is_stored_as_it_was_and_counted_by_what_is_sent():
    assert message_from_json(MESSAGE.model_dump_json()) == MESSAGE
    plain = UserMessage(parts=(Text(text=ASKED.text),))
    model = "openai/gpt-5-mini"
    assert tokens.count_message(MESSAGE, model) == tokens.count_message(plain, model)
