"""A server asks in the midst of a call: the session's user answers, as any question."""

import asyncio

import pytest
from harness import Bench, calls, says, scripted
from small import Small

from everturn.approvals import ToolVerdict
from everturn.messages import ToolMessage
from everturn.session import SessionKey
from everturn.views import ApprovalView
from everturn_activities.store import Inbound


@pytest.fixture
def small(made: Bench) -> Small:
    small = Small.made(made.settings.home.parent / "small", "ask")
    (made.workspace / "everturn.toml").write_text(small.table("a"))
    return small


async def asked(made: Bench, key: SessionKey) -> ApprovalView:
    async with asyncio.timeout(20):
        while not (found := await made.runtime.store.approvals(made.tenant, key.session)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return found[0]


async def result(made: Bench, key: SessionKey) -> str:
    (message,) = [one for one in await made.transcript(key) if isinstance(one, ToolMessage)]
    return message.results[0].text


async def say(made: Bench, key: SessionKey, **verdict: object) -> None:
    made_of = ToolVerdict.model_validate({"approval": 1, **verdict})
    await made.front.accept(key, Inbound("v", "approval", approval=made_of))


async def test_what_a_server_asks_the_user_answers_and_the_call_goes_on(made: Bench, small: Small):
    key = await made.session()
    async with made.worker(scripted(calls("mcp_a_ask"), says("done"))):
        await made.send(key, "go")
        question = await asked(made, key)
        await say(made, key, verdict="answer", answer="42")
        await made.until(key, "turn_finished")

    assert question.kind == "question"
    assert question.tool == "mcp_a_ask"
    assert question.question == "Server a asks: Which size?"
    assert 'heard {"action": "accept", "content": {"size": 42}}' in await result(made, key)


async def test_a_call_has_all_of_its_time_though_its_user_takes_longer(made: Bench, small: Small):
    (made.workspace / "everturn.toml").write_text(small.table("a", timeout_seconds=1))
    key = await made.session()
    async with made.worker(scripted(calls("mcp_a_ask"), says("done"))):
        await made.send(key, "go")
        await asked(made, key)
        await asyncio.sleep(1.2)
        await say(made, key, verdict="answer", answer="42")
        await made.until(key, "turn_finished")
        handle = made.client.get_workflow_handle(key.workflow_id)
        history = await handle.fetch_history()
    assert 'heard {"action": "accept", "content": {"size": 42}}' in await result(made, key)
    # Nor does Temporal end it: the worker keeps the time, and questions expire by themselves.
    scheduled = [one.activity_task_scheduled_event_attributes for one in history.events]
    limits = {one.activity_type.name: one.start_to_close_timeout.ToTimedelta() for one in scheduled}
    assert limits["run_tools"].days == 30


async def test_a_user_who_refuses_declines(made: Bench, small: Small):
    key = await made.session()
    async with made.worker(scripted(calls("mcp_a_ask"), says("done"))):
        await made.send(key, "go")
        await asked(made, key)
        await say(made, key, verdict="deny", reason="None of its business.")
        await made.until(key, "turn_finished")

    assert 'heard {"action": "decline"}' in await result(made, key)


async def test_a_server_that_does_not_say_for_which_of_two_calls_it_asks_is_declined(
    made: Bench, small: Small
):
    first, second = await made.session("one"), await made.session("two")
    async with made.worker(scripted(calls("mcp_a_ask"), says("done"))):
        await made.send(first, "go")
        await asked(made, first)
        # They share the server: nothing tells whose user the second question is for.
        await made.send(second, "go")
        await made.until(second, "turn_finished")
        await say(made, first, verdict="answer", answer="7")
        await made.until(first, "turn_finished")

    assert 'heard {"action": "decline"}' in await result(made, second)
    assert '"content": {"size": 7}' in await result(made, first)
