"""Questions of calls that run, straight against the store."""

import pytest
from stories import Story

from everturn.errors import Fenced
from everturn_activities.store import Answer, AskPerson

ASKED = AskPerson(1, 1, 0, 1, "form", "How old?")


async def test_nobody_is_asked_for_a_turn_that_is_over(story: Story) -> None:
    await story.send()
    turn = await story.begun()
    n = await story.store.ask_person(story.key, ASKED)
    await story.finish(turn, step=0)
    assert await story.store.answer_of(story.key, n) == Answer("closed")
    # Whoever asks again is told what became of it.
    assert await story.store.ask_person(story.key, ASKED) == n
    with pytest.raises(Fenced, match="is over"):
        await story.store.ask_person(story.key, AskPerson(1, 1, 0, 2, "form", "Sure?"))
