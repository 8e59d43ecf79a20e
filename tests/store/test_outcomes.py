"""A person is asked what became of an attempt once, and of the next one anew."""

import pytest
from stories import SPEC, Story
from temporalio.exceptions import ApplicationError

from everturn.approvals import Approvals, ToolVerdict
from everturn.session import RunTools
from everturn_activities import outcomes
from everturn_activities.store import Inbound, ToolInterrupted

RULES = Approvals(on_unknown="ask", expires_seconds=60)
ASKING = SPEC.model_copy(update={"agent": SPEC.agent.model_copy(update={"approvals": RULES})})


async def test_each_attempt_is_a_question_of_its_own(story: Story) -> None:
    await story.send()
    turn = await story.begun(spec=ASKING)
    await story.step(turn, calls=["tool"])
    (call,) = await story.store.tool_calls(story.key, turn.turn, 1)
    request = RunTools(*story.key, turn.turn, 1, turn.epoch, [0])

    async def said(attempt: int) -> str:
        lost = ToolInterrupted(attempt, call)
        return await outcomes.outcome_of(story.store, request, story.key, ASKING, lost)

    for _ in range(2):
        with pytest.raises(ApplicationError) as asked:
            await said(1)
        assert asked.value.next_retry_delay is not None
    (question,) = await story.store.approvals("default", "s")
    verdict = ToolVerdict(approval=question.approval, verdict="answer", answer="run again")
    await story.store.accept(story.key, Inbound("v", "approval", approval=verdict))
    assert await said(1) == outcomes.AGAIN

    with pytest.raises(ApplicationError):
        await said(2)
    (again,) = await story.store.approvals("default", "s")
    assert again.approval != question.approval
    story.clock.now += 61
    assert await said(2) == outcomes.UNKNOWN
