"""Questions of calls that run, straight against the store."""

from dataclasses import replace
from typing import Any

import pytest
from stories import Story

from everturn.approvals import ToolVerdict
from everturn.errors import Fenced
from everturn_activities.store import Answer, AskPerson, Inbound

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


async def test_an_answer_that_came_in_time_stands_though_its_time_is_over_by_now(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    await story.send()
    await story.begun()
    n = await story.store.ask_person(story.key, replace(ASKED, expires_seconds=60))
    story.clock.now += 61

    # Its transaction began before, and waited for the session.
    async def meanwhile(look: Any) -> Any:
        found = await read(look)
        story.clock.now -= 2
        verdict = ToolVerdict(approval=n, verdict="answer", answer="41")
        await story.store.accept(story.key, Inbound("v", "approval", approval=verdict))
        story.clock.now += 2
        return found

    database: Any = story.store._database  # type: ignore[attr-defined]
    read = database.read
    monkeypatch.setattr(database, "read", meanwhile)
    assert await story.store.answer_of(story.key, n) == Answer("answered", "41")
