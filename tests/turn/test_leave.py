"""A person decides about a tool call: the turn waits in no slot, and runs what was approved."""

import json
from pathlib import Path

import pytest
from harness import Bench, calls, says, scripted

from everturn.approvals import ToolVerdict, digest_of
from everturn.errors import UsageError
from everturn.messages import ToolMessage
from everturn.session import SessionKey
from everturn.views import AcceptedView, ApprovalView
from everturn_activities.store import Inbound


def agent(workspace: Path, approvals: str = "{tools: [effect]}", **more: str) -> None:
    (workspace / "agents").mkdir(exist_ok=True)
    fields = "".join(f"{name}: {value}\n" for name, value in more.items())
    (workspace / "agents" / "default.md").write_text(
        f"---\napprovals: {approvals}\n{fields}---\nBe brief."
    )


def both(first: dict[str, object], second: dict[str, object], name: str) -> dict[str, object]:
    """A reply that calls `effect` with `first` and `name` with `second`."""
    calls = [("effect", first), (name, second)]
    return {"calls": [{"name": tool, "arguments": arguments} for tool, arguments in calls]}


async def waiting(made: Bench, key: SessionKey) -> list[ApprovalView]:
    return await made.runtime.store.approvals(made.tenant, key.session)


async def say(made: Bench, key: SessionKey, verdict: ToolVerdict, name: str = "v") -> AcceptedView:
    return await made.front.accept(key, Inbound(name, "approval", approval=verdict))


async def approve(made: Bench, key: SessionKey, n: int = 1, **more: object) -> AcceptedView:
    (asked,) = [one for one in await waiting(made, key) if one.approval == n]
    verdict = {"approval": n, "verdict": "approve", "digest": asked.digest, **more}
    return await say(made, key, ToolVerdict.model_validate(verdict), f"yes-{n}")


def deny(n: int = 1, reason: str = "") -> ToolVerdict:
    return ToolVerdict(approval=n, verdict="deny", reason=reason)


async def results(made: Bench, key: SessionKey) -> list[str]:
    return [
        result.text
        for message in await made.transcript(key)
        if isinstance(message, ToolMessage)
        for result in message.results
    ]


def effects(made: Bench) -> int:
    log = made.workspace / "effects.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_t5_a_call_waits_for_leave_through_a_change_of_workers_and_then_runs_once(
    made: Bench, placement: str
) -> None:
    agent(made.workspace)
    gateway = scripted(both({}, {"a": 1, "b": 2}, "add"), says("done"))
    key = await made.session()
    async with made.worker(gateway, placement=placement):
        await made.send(key, "go")
        asked = (await made.until(key, "approval_asked"))[-1]
    # Nobody works now: the question stands in the store.
    assert effects(made) == 0
    (shown,) = await waiting(made, key)
    assert (shown.tool, shown.approval, shown.state) == ("effect", 1, "open")
    assert asked.body["digest"] == shown.digest
    assert (await approve(made, key)).status == "accepted"
    async with made.worker(gateway, placement=placement):
        events = await made.until(key, "turn_finished")

    assert events[-1].body["outcome"] == "completed"
    assert effects(made) == 1
    began = [event.body["name"] for event in events if event.type == "tool_started"]
    assert sorted(began) == ["add", "effect"]
    assert [e.type for e in events if e.type.startswith("approval")] == [
        "approval_asked",
        "approval_answered",
    ]
    assert await waiting(made, key) == []


async def test_a_call_that_would_run_with_its_reply_waits_too(made: Bench) -> None:
    agent(made.workspace, "{tools: [add]}")
    key = await made.session()
    async with made.worker(scripted(calls("add", a=1, b=2), says("3")), placement="inline"):
        await made.send(key, "add")
        events = await made.until(key, "approval_asked")
        assert "tool_started" not in {event.type for event in events}
        await approve(made, key)
        await made.until(key, "turn_finished")
    assert await results(made, key) == ["3"]


async def test_a_denied_call_never_runs_and_the_model_reads_why(made: Bench) -> None:
    agent(made.workspace)
    gateway = scripted(calls("effect"), says("I see."))
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "go")
        await made.until(key, "approval_asked")
        await say(made, key, deny(reason="Not on a Friday."))
        events = await made.until(key, "turn_finished")
    assert effects(made) == 0
    assert events[-1].body["outcome"] == "completed"
    assert await results(made, key) == [
        "The call did not run: a person denied it: Not on a Friday."
    ]


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_t6_after_a_denial_the_approved_calls_run_and_then_the_turn_ends(
    made: Bench, placement: str
) -> None:
    agent(made.workspace, "{tools: [effect, echo], on_denial: end}")
    gateway = scripted(both({}, {"text": "hi"}, "echo"), says("Never said."))
    key = await made.session()
    async with made.worker(gateway, placement=placement):
        await made.send(key, "go")
        await made.until(key, "approval_asked")
        await say(made, key, deny(2, "No."))
        await approve(made, key, 1)
        events = await made.until(key, "turn_finished")
    assert effects(made) == 1
    assert len(gateway.requests) == 1
    assert events[-1].body["outcome"] == "ended_by_denial"
    assert (
        events[-1].body["reason"].startswith("echo: the call did not run: a person denied it: No.")
    )


async def test_the_first_of_two_verdicts_holds_and_the_second_person_is_told(made: Bench) -> None:
    agent(made.workspace)
    key = await made.session()
    async with made.worker(scripted(calls("effect"), says("done"))):
        await made.send(key, "go")
        await made.until(key, "approval_asked")
        first = await approve(made, key)
        second = await say(made, key, deny(), "no")
        again = await say(made, key, deny(), "no")
        await made.until(key, "turn_finished")
    assert (first.status, first.note) == ("accepted", None)
    assert (second.status, second.note) == ("too_late", "Approval 1 was approved before.")
    assert (again.duplicate, again.note) == (True, second.note)
    assert effects(made) == 1


async def test_a_verdict_for_other_arguments_than_those_that_wait_is_refused(made: Bench) -> None:
    agent(made.workspace)
    key = await made.session()
    async with made.worker(scripted(calls("effect", seconds=0.01), says("done"))):
        await made.send(key, "go")
        await made.until(key, "approval_asked")
        other = digest_of("effect", {"seconds": 5})
        with pytest.raises(UsageError, match="is for another call than the one"):
            await say(made, key, ToolVerdict(approval=1, verdict="approve", digest=other))
        with pytest.raises(UsageError, match="has no approval 7"):
            await say(made, key, deny(7))
        assert len(await waiting(made, key)) == 1
        await approve(made, key)
        await made.until(key, "turn_finished")


async def test_arguments_that_a_person_changes_are_run_and_the_model_is_told(made: Bench) -> None:
    agent(made.workspace, "{tools: [echo]}")
    key = await made.session()
    async with made.worker(scripted(calls("echo", text="rm -r *"), says("done"))):
        await made.send(key, "go")
        await made.until(key, "approval_asked")
        with pytest.raises(UsageError, match="do not fit its parameters"):
            await approve(made, key, arguments={"text": 1})
        await approve(made, key, arguments={"text": "ls"})
        await made.until(key, "turn_finished")
    assert await results(made, key) == [
        'A person changed the arguments of this call to {"text": "ls"}.\nls'
    ]


async def test_a_grant_lets_like_calls_of_the_session_pass_and_asks_about_others(
    made: Bench,
) -> None:
    agent(made.workspace, "{tools: [echo]}")
    gateway = scripted(
        calls("echo", text="git status"),
        calls("echo", text="git log -3"),
        calls("echo", text="git log; rm -r x"),
        says("done"),
    )
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "go")
        await made.until(key, "approval_asked")
        await approve(made, key, verdict="grant", pattern={"text": "git *"})
        while not (asked := await waiting(made, key)):
            pass
        assert [one.arguments for one in asked] == [{"text": "git log; rm -r x"}]
        await say(made, key, deny(2))
        events = await made.until(key, "turn_finished")
    assert len([e for e in events if e.type == "approval_asked"]) == 2
    assert (await results(made, key))[:2] == ["git status", "git log -3"]


async def test_a_question_that_nobody_answers_expires_and_counts_as_denied(made: Bench) -> None:
    agent(made.workspace, "{tools: [effect], expires_seconds: 0.2}")
    key = await made.session()
    async with made.worker(scripted(calls("effect"), says("I see."))):
        await made.send(key, "go")
        events = await made.until(key, "turn_finished")
    assert effects(made) == 0
    assert await results(made, key) == [
        "The call did not run: it needs a person's leave, and nobody decided in time."
    ]
    (told,) = [e for e in events if e.type == "approval_answered"]
    assert told.body["verdict"] == "expire"
    late = await say(made, key, deny())
    assert (late.status, late.note) == ("too_late", "Approval 1 expired before.")


async def test_a_cancel_ends_a_turn_that_waits_and_closes_its_question(made: Bench) -> None:
    agent(made.workspace)
    key = await made.session()
    async with made.worker(scripted(calls("effect"))):
        await made.send(key, "go")
        (asked,) = [
            e for e in await made.until(key, "approval_asked") if e.type == "approval_asked"
        ]
        await made.cancel(key)
        events = await made.until(key, "turn_finished")
    assert events[-1].body["outcome"] == "cancelled"
    assert effects(made) == 0
    verdict = ToolVerdict(approval=1, verdict="approve", digest=asked.body["digest"])
    late = await say(made, key, verdict)
    assert (late.status, late.note) == ("too_late", "Approval 1 was closed with its turn.")


async def test_a_call_that_cannot_run_is_answered_and_nobody_is_asked(made: Bench) -> None:
    agent(made.workspace, "{tools: [echo]}")
    key = await made.session()
    async with made.worker(scripted(calls("echo", nothing=1), says("sorry"))):
        await made.send(key, "go")
        events = await made.until(key, "turn_finished")
    assert "approval_asked" not in {event.type for event in events}
    assert "do not fit its parameters" in (await results(made, key))[0]


async def test_k30_tools_that_an_agent_does_not_allow_ask_and_those_that_it_allows_do_not(
    made: Bench,
) -> None:
    agent(made.workspace, "{}", allowed_tools="[add]")
    key = await made.session()
    async with made.worker(scripted(both({}, {"a": 1, "b": 2}, "add"), says("done"))):
        await made.send(key, "go")
        asked = (await made.until(key, "approval_asked"))[-1]
        await made.cancel(key)
        await made.until(key, "turn_finished")
    assert asked.body["name"] == "effect"


async def test_t4_the_preview_is_made_before_the_person_is_asked(made: Bench) -> None:
    (made.workspace / "tools" / "previewed.py").write_text(
        "from everturn import ToolContext, tool\n"
        "def _diff(path: str, context: ToolContext) -> str:\n"
        "    return f'would empty {path} of {context.working_dir.name}'\n"
        "@tool(effect='idempotent', requires_approval=True, preview=_diff)\n"
        "def empty(path: str, context: ToolContext) -> str:\n"
        "    '''Empty a file.'''\n"
        "    return 'emptied'\n"
    )
    key = await made.session()
    async with made.worker(scripted(calls("empty", path="a.txt"), says("done"))):
        await made.send(key, "go")
        asked = (await made.until(key, "approval_asked"))[-1]
        assert asked.body["preview"] == f"would empty a.txt of {made.workspace.name}"
        assert json.loads(asked.body["arguments"]) == {"path": "a.txt"}
        await approve(made, key)
        await made.until(key, "turn_finished")
    assert await results(made, key) == ["emptied"]
