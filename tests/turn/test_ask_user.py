"""An agent asks its user: the turn waits in no slot, and what the person says is the result."""

import asyncio
from typing import Any

import pytest
from harness import Bench, calls, eventually, says, scripted

from everturn.approvals import ToolVerdict
from everturn.errors import UsageError
from everturn.messages import ToolMessage
from everturn.session import Approved, RunTools, SessionKey
from everturn.views import AcceptedView, ApprovalView
from everturn_activities.store import Answer, AskPerson, Inbound
from everturn_activities.workspaces import Workspaces

ASKS = calls("ask_user", question="Which colour?", choices=["red", "blue"])


async def waiting(made: Bench, key: SessionKey) -> list[ApprovalView]:
    return await made.runtime.store.approvals(made.tenant, key.session)


async def say(made: Bench, key: SessionKey, name: str = "v", **verdict: Any) -> AcceptedView:
    said = ToolVerdict.model_validate({"approval": 1, "verdict": "answer", **verdict})
    return await made.front.accept(key, Inbound(name, "approval", approval=said))


async def results(made: Bench, key: SessionKey) -> list[tuple[str, bool]]:
    return [
        (result.text, result.failed)
        for message in await made.transcript(key)
        if isinstance(message, ToolMessage)
        for result in message.results
    ]


async def test_a_question_waits_through_a_change_of_workers_and_its_answer_is_the_result(
    made: Bench,
) -> None:
    gateway = scripted(ASKS, says("Blue it is."))
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "paint it")
        asked = (await made.until(key, "approval_asked"))[-1]
    # Nobody works now: the question stands in the store.
    (shown,) = await waiting(made, key)
    assert (shown.kind, shown.question, shown.choices) == (
        "question",
        "Which colour?",
        ("red", "blue"),
    )
    assert (asked.body["kind"], asked.body["name"]) == ("question", "ask_user")
    assert (await say(made, key, answer="blue")).status == "accepted"
    late = await say(made, key, "late", answer="red")
    assert (late.status, late.note) == ("too_late", "Approval 1 was answered before.")
    async with made.worker(gateway):
        events = await made.until(key, "turn_finished")

    assert await results(made, key) == [("The user answers:\nblue", False)]
    assert events[-1].body["outcome"] == "completed"
    assert "tool_started" not in {event.type for event in events}
    assert await waiting(made, key) == []


async def test_who_does_not_answer_ends_no_turn(made: Bench) -> None:
    (made.workspace / "agents").mkdir()
    (made.workspace / "agents" / "default.md").write_text("---\napprovals: {on_denial: end}\n---")
    key = await made.session()
    async with made.worker(scripted(ASKS, says("Then I choose."))):
        await made.send(key, "paint it")
        await made.until(key, "approval_asked")
        await say(made, key, verdict="deny", reason="Decide yourself.")
        events = await made.until(key, "turn_finished")
    assert await results(made, key) == [("The user does not answer: Decide yourself.", True)]
    assert events[-1].body["outcome"] == "completed"


async def test_a_question_expires_as_leave_does(made: Bench) -> None:
    (made.workspace / "agents").mkdir()
    (made.workspace / "agents" / "default.md").write_text(
        "---\napprovals: {expires_seconds: 0.2, on_denial: end}\n---"
    )
    key = await made.session()
    async with made.worker(scripted(ASKS, says("Then I choose."))):
        await made.send(key, "paint it")
        events = await made.until(key, "turn_finished")
    assert [text for text, _ in await results(made, key)] == [
        "Nobody answered in time. Go on without an answer, or say what you need."
    ]
    (told,) = [event for event in events if event.type == "approval_answered"]
    assert told.body["text"] == "Question 1 was answered by nobody in time."
    assert events[-1].body["outcome"] == "completed"


async def test_no_text_approves_a_call_and_no_leave_answers_a_question(made: Bench) -> None:
    (made.workspace / "agents").mkdir()
    (made.workspace / "agents" / "default.md").write_text("---\napprovals: {tools: [effect]}\n---")
    both = {
        "calls": [
            {"name": "ask_user", "arguments": {"question": "Why?"}},
            {"name": "effect", "arguments": {}},
        ]
    }
    key = await made.session()
    async with made.worker(scripted(both, says("ok"))):
        await made.send(key, "go")
        await made.until(key, "approval_asked")
        call, question = await waiting(made, key)
        with pytest.raises(UsageError, match="no text answers that"):
            await say(made, key, approval=call.approval, answer="yes")
        with pytest.raises(UsageError, match="is a question: answer it"):
            await say(made, key, verdict="approve", digest=question.digest)
        with pytest.raises(UsageError, match="is another than the one"):
            await say(made, key, answer="x", digest=call.digest)
        with pytest.raises(UsageError, match="is answered by a text"):
            await say(made, key, content={"a": 1})
        assert len(await waiting(made, key)) == 2
        await made.cancel(key)
        await made.until(key, "turn_finished")


SCHEMA = {
    "type": "object",
    "properties": {"age": {"type": "integer"}},
    "required": ["age"],
}


async def test_a_call_that_runs_asks_a_person_once_and_goes_on_with_the_answer(
    made: Bench,
) -> None:
    key = await made.session()
    async with made.worker(scripted(calls("slow", seconds=60), says("never"))):
        await made.send(key, "go")
        await eventually(lambda: (made.workspace / "slow.began").exists())
        spec = await made.runtime.store.spec(key, 1)
        services = made.runtime.services
        context = Workspaces(services=services).context(spec, key, 1, 1, 0, 1)
        first = asyncio.create_task(context.ask(1, "mcp_form", "How old?", SCHEMA))
        # Its worker was killed, and another runs the call again.
        again = asyncio.create_task(context.ask(1, "mcp_form", "How old?", SCHEMA))
        assert services.questions is not None
        sure = AskPerson(1, 1, 0, 2, "mcp_form", "Sure?", None, 0.2)
        assert await services.questions.ask(key, sure) == Answer("expired")
        (shown,) = await waiting(made, key)
        assert (shown.tool, shown.question, shown.answer_schema) == ("mcp_form", "How old?", SCHEMA)
        # No step waits for it: the call runs.
        step = RunTools(*key, 1, 1, 1, [])
        assert await made.runtime.store.check_approvals(step) == Approved(0)
        with pytest.raises(UsageError, match="asks for something else: age: 'x' is not of type"):
            await say(made, key, approval=shown.approval, content={"age": "x"})
        await say(made, key, approval=shown.approval, answer="42")
        assert await first == await again == Answer("answered", None, {"age": 42})
        refused = asyncio.create_task(context.ask(4, "mcp_form", "Really?"))
        while not (open_now := await waiting(made, key)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await say(made, key, "no", approval=open_now[0].approval, verdict="deny", reason="No.")
        assert await refused == Answer("denied", reason="No.")
        last = asyncio.create_task(context.ask(3, "mcp_form", "And?"))
        while not await waiting(made, key):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await made.cancel(key)
        assert (await last).state == "closed"
        events = await made.until(key, "turn_finished")
    # The call itself was answered by nobody.
    (finished,) = [event for event in events if event.type == "tool_finished"]
    assert finished.body["text"].startswith("The call was cancelled with its turn.")
