"""A person decides about tool calls over HTTP."""

from typing import Any

import httpx
import pytest
from by_hand import WORKER, Runtime
from in_need_of_leave import ASKING, ENDING, ask, asks, question, sent
from temporalio.testing import ActivityEnvironment

from everturn.approvals import ToolVerdict
from everturn.client import Client
from everturn.errors import Fenced, UnknownSession, UsageError
from everturn.session import Approved, BeginTurn, RunTools, SessionKey, TurnHead
from everturn_activities.store import ToolStarted
from everturn_activities.tools import ToolActivities
from everturn_activities.workspaces import Workspaces

KEY = SessionKey("default", "s")


async def test_a_call_that_waits_is_read_and_decided_once(client: Client, runtime: Runtime) -> None:
    await sent(runtime)
    await asks(runtime, {"path": "a.txt"}, preview="+new")
    (asked,) = await client.approvals()
    assert (asked.session, asked.tool, asked.arguments) == ("s", "write", {"path": "a.txt"})
    assert (asked.preview, asked.state) == ("+new", "open")

    yes = ToolVerdict(approval=1, verdict="approve", digest=asked.digest)
    woken = len(runtime.waker.woken)
    first = await client.answer_approval("s", yes, id="mine")
    assert (first.status, first.duplicate) == ("accepted", False)
    assert len(runtime.waker.woken) == woken + 1
    assert (await client.answer_approval("s", yes, id="mine")).duplicate
    late = await client.answer_approval("s", ToolVerdict(approval=1, verdict="deny"))
    assert (late.status, late.note) == ("too_late", "Approval 1 was approved before.")
    assert await client.approvals("s") == []


async def test_another_call_than_the_one_that_was_shown_is_not_approved(
    client: Client, runtime: Runtime
) -> None:
    await sent(runtime)
    await asks(runtime, {"path": "a.txt"})
    with pytest.raises(UsageError, match="is for another call"):
        await client.answer_approval(
            "s", ToolVerdict(approval=1, verdict="approve", digest="0" * 64)
        )
    with pytest.raises(UsageError, match="has no approval 2"):
        await client.answer_approval("s", ToolVerdict(approval=2, verdict="deny"))
    with pytest.raises(UnknownSession):
        await client.approvals("nowhere")
    assert len(await client.approvals("s")) == 1


async def test_a_question_is_read_and_answered_once(client: Client, runtime: Runtime) -> None:
    await sent(runtime)
    await question(runtime, "Which colour?", "red", "blue")
    (asked,) = await client.approvals()
    assert (asked.kind, asked.question, asked.choices) == (
        "question",
        "Which colour?",
        ("red", "blue"),
    )
    woken = len(runtime.waker.woken)
    said = ToolVerdict(approval=1, verdict="answer", answer="green")
    assert (await client.answer_approval("s", said)).status == "accepted"
    assert len(runtime.waker.woken) == woken + 1
    late = await client.answer_approval("s", ToolVerdict(approval=1, verdict="deny"))
    assert (late.status, late.note) == ("too_late", "Approval 1 was answered before.")
    stands = await runtime.store.check_approvals(RunTools("default", "s", 1, 1, 1, []))
    assert stands == Approved(0, answered=[0])
    (call,) = await runtime.store.tool_calls(KEY, 1, 1)
    assert call.result is not None
    assert (call.result.text, call.result.failed) == ("The user answers:\ngreen", False)


async def test_a_call_is_asked_about_once_however_often_its_worker_begins_again(
    client: Client, runtime: Runtime
) -> None:
    await sent(runtime)
    (asked,) = await asks(runtime, {"path": "a.txt"}, preview="+new")
    head = TurnHead("default", "s", turn=1, epoch=1)
    assert await ask(runtime, head, "another preview") == [asked]
    events = await runtime.log.read(KEY, (1, 0), 100)
    assert [event.type for event in events].count("approval_asked") == 1


async def test_a_call_that_waits_is_begun_by_nobody(client: Client, runtime: Runtime) -> None:
    await sent(runtime)
    (asked,) = await asks(runtime, {"path": "a.txt"})
    with pytest.raises(Fenced, match="waits for a person's leave"):
        await runtime.store.begin_tool(KEY, 1, 1, 0, 1, WORKER, True)
    yes = ToolVerdict(approval=1, verdict="approve", digest=asked.digest)
    await client.answer_approval("s", yes)
    begun = await runtime.store.begin_tool(KEY, 1, 1, 0, 1, WORKER, True)
    assert isinstance(begun, ToolStarted)


async def test_a_worker_that_is_told_to_run_a_call_that_waits_leaves_it(
    client: Client, runtime: Runtime
) -> None:
    await sent(runtime)
    await asks(runtime, {"path": "a.txt"})
    nobody: Any = None
    tools = ToolActivities(runtime.store, Workspaces(), nobody, nobody, "w", is_alive=nobody)
    request = RunTools("default", "s", 1, 1, 1, [0])
    done = await ActivityEnvironment().run(tools.run_tools, request)
    assert (done.done, len(await client.approvals())) == (0, 1)


async def test_a_verdict_after_a_cancel_is_too_late(client: Client, runtime: Runtime) -> None:
    await sent(runtime)
    (asked,) = await asks(runtime, {"path": "a.txt"})
    await client.cancel("s")
    yes = ToolVerdict(approval=1, verdict="approve", digest=asked.digest)
    late = await client.answer_approval("s", yes)
    assert (late.status, late.note) == (
        "too_late",
        "Approval 1 is of a call that waits no more.",
    )


async def test_a_turn_that_lost_its_run_after_a_denial_that_ends_it_still_ends(
    client: Client, runtime: Runtime
) -> None:
    await sent(runtime)
    await asks(runtime, {"path": "a.txt"}, spec=ENDING)
    await client.answer_approval("s", ToolVerdict(approval=1, verdict="deny"))
    request = BeginTurn("default", "s", KEY.workflow_id, "run-2", "run-1")
    resumed = await runtime.store.begin_turn(request, ENDING)
    assert isinstance(resumed, TurnHead)
    assert (resumed.step, resumed.stop) == (1, "denied")


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("1", {"verdict": "approve"}, "names the digest of the call"),
        ("1", {"verdict": "maybe"}, "verdict"),
        ("1", {"verdict": "answer"}, "an answer, and nothing else, has a text or a content"),
        ("1", {"verdict": "deny", "answer": "x"}, "an answer, and nothing else"),
        ("1", {"verdict": "answer", "answer": "x", "pattern": {}}, "no arguments and no pattern"),
        ("1", {"verdict": "deny", "pattern": {}}, "names no arguments and no pattern"),
        ("first", {"verdict": "deny"}, "approval"),
        ("0", {"verdict": "deny"}, "approval: Input should be greater than or equal to 1"),
    ],
)
async def test_a_verdict_that_is_none_is_refused_in_a_sentence(
    served: object, runtime: Runtime, path: str, body: dict[str, object], said: str
) -> None:
    await sent(runtime)
    await asks(runtime, {"path": "a.txt"})
    async with httpx.AsyncClient(base_url=served.url) as http:  # type: ignore[attr-defined]
        answer = await http.post(f"/v1/sessions/s/approvals/{path}", json=body)
    assert answer.status_code == 422
    assert said in answer.json()["detail"]


async def test_a_turn_that_lost_its_run_after_a_question_was_refused_goes_on(
    client: Client, runtime: Runtime
) -> None:
    await sent(runtime)
    spec = ASKING.model_copy(update={"agent": ENDING.agent})
    await asks(runtime, {"question": "Which?"}, spec=spec)
    await client.answer_approval("s", ToolVerdict(approval=1, verdict="deny"))
    request = BeginTurn("default", "s", KEY.workflow_id, "run-2", "run-1")
    resumed = await runtime.store.begin_turn(request, spec)
    assert isinstance(resumed, TurnHead)
    assert (resumed.step, resumed.stop) == (1, "tool_use")
