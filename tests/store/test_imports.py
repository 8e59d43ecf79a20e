"""A conversation from elsewhere is taken over once, by a session that has none of its own."""

import pytest
from stories import Story

from everturn.errors import UsageError
from everturn.messages import AssistantMessage, Text, UserMessage, user_text

WELCOME = AssistantMessage(parts=(Text(text="Welcome."),))
ASKED = user_text("Deploy on Mondays.")


async def imported(story: Story, *messages: AssistantMessage | UserMessage) -> int:
    return await story.store.import_messages(story.key, messages)


async def test_the_same_messages_again_change_nothing_also_after_a_turn(story: Story) -> None:
    assert await imported(story, WELCOME, ASKED) == 2
    assert await imported(story, WELCOME, ASKED) == 2
    await story.send("And today?")
    turn = await story.begun()
    await story.step(turn)
    await story.finish(turn)

    assert await imported(story, WELCOME, ASKED) == 2

    assert len(await story.transcript()) == 4
    assert len(await story.told("messages_imported")) == 1


async def test_as_many_others_are_refused(story: Story) -> None:
    await imported(story, WELCOME, ASKED)
    for others in ((WELCOME, user_text("Deploy on Fridays.")), (WELCOME,), ()):
        with pytest.raises(UsageError, match="has messages already"):
            await imported(story, *others)


async def test_a_session_that_was_sent_a_message_imports_no_more(story: Story) -> None:
    """Its turn may begin at any moment, and what came before it must stand before it."""
    await story.send("hello")
    for messages in ((ASKED,), ()):
        with pytest.raises(UsageError, match="has messages already"):
            await imported(story, *messages)
    assert await story.transcript() == []


async def test_a_session_is_called_by_what_its_user_said_at_first(story: Story) -> None:
    await imported(story, WELCOME, ASKED, WELCOME, user_text("Thanks."))
    assert (await story.store.session(story.key)).title == "Deploy on Mondays."
