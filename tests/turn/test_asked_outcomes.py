"""What became of a `once` call whose worker was lost, asked of a person by the agent's policy."""

import asyncio
from typing import Any

import pytest
from harness import Bench, calls, says, scripted
from lost_calls import interrupted, result

from everturn.approvals import ToolVerdict
from everturn.errors import UsageError
from everturn.session import SessionKey
from everturn_activities import outcomes
from everturn_activities.store import Caller, Inbound


@pytest.fixture(autouse=True)
def asking(made: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "LOOK_SECONDS", 0.1)
    agent(made, "on_unknown: ask")


def agent(made: Bench, approvals: str) -> None:
    (made.workspace / "agents").mkdir(exist_ok=True)
    (made.workspace / "agents" / "default.md").write_text(
        f"---\napprovals: {{{approvals}}}\n---\nAct."
    )


def effects(made: Bench) -> int:
    log = made.workspace / "effects.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


async def open_questions(made: Bench, key: SessionKey) -> list[int]:
    return [each.approval for each in await made.runtime.store.approvals(made.tenant, key.session)]


async def say(made: Bench, key: SessionKey, **verdict: Any) -> None:
    said = ToolVerdict.model_validate({"approval": 1, "verdict": "answer", **verdict})
    accepted = await made.front.accept(key, Inbound(str(verdict), "approval", approval=said))
    assert accepted.status == "accepted"


@pytest.mark.parametrize(
    ("verdict", "runs", "failed", "told"),
    [
        ({"answer": "happened"}, 0, False, "a person says that it took effect"),
        ({"answer": "run again"}, 1, False, "effected"),
        ({"answer": "unknown"}, 0, True, "outcome of this call is unknown"),
        ({"verdict": "deny"}, 0, True, "outcome of this call is unknown"),
    ],
)
async def test_a_person_says_what_became_of_a_call_through_a_change_of_workers(
    made: Bench, verdict: dict[str, Any], runs: int, failed: bool, told: str
) -> None:
    gateway = scripted(calls("effect"), says("So be it."))
    async with made.worker(gateway) as instance:
        key = await interrupted(made, "effect", f"{instance.split('-')[0]}-dead")
        await made.send(key, "go")
        asked = (await made.until(key, "approval_asked"))[-1]
    # Nobody works now: the question stands in the store.
    assert (asked.body["kind"], asked.body["name"]) == ("question", "effect")
    assert "may or may not have taken effect" in asked.body["arguments"]
    assert effects(made) == 0
    await say(made, key, **verdict)
    async with made.worker(gateway):
        events = await made.until(key, "turn_finished")

    assert events[-1].body["outcome"] == "completed"
    assert result(events)[0] is failed
    assert told in result(events)[1]
    assert effects(made) == runs


async def test_an_answer_that_is_none_is_refused_and_the_question_waits_on(made: Bench) -> None:
    gateway = scripted(calls("effect"), says("So be it."))
    async with made.worker(gateway) as instance:
        key = await interrupted(made, "effect", f"{instance.split('-')[0]}-dead")
        await made.send(key, "go")
        await made.until(key, "approval_asked")
        with pytest.raises(UsageError, match=r"asks for something else: .*'happened'"):
            await say(made, key, answer="perhaps")
        await say(made, key, answer="run again")
        events = await made.until(key, "turn_finished")

    assert len([one for one in events if one.type == "approval_asked"]) == 1
    assert effects(made) == 1


async def test_a_call_that_another_worker_began_again_first_is_begun_by_nobody_else(
    made: Bench,
) -> None:
    """Of that beginning, which was lost too, a person is asked anew."""
    store = made.runtime.store
    gateway = scripted(calls("effect"), says("So be it."))
    async with made.worker(gateway) as instance:
        dead = f"{instance.split('-')[0]}-dead"
        key = await interrupted(made, "effect", dead)
        await made.send(key, "go")
        await made.until(key, "approval_asked")
        begin = store.begin_tool

        async def by_another(*given: Any) -> Any:
            if given[7:]:
                store.begin_tool = begin  # type: ignore[method-assign]
                await begin(*given[:5], Caller(dead, "n2"), *given[6:])
            return await begin(*given)

        store.begin_tool = by_another  # type: ignore[method-assign]
        await say(made, key, answer="run again")
        async with asyncio.timeout(30):
            while (asked := await open_questions(made, key)) in ([], [1]):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert effects(made) == 0
        await say(made, key, approval=asked[0], answer="happened")
        events = await made.until(key, "turn_finished")

    assert "a person says that it took effect" in result(events)[1]
    assert effects(made) == 0


async def test_a_question_that_nobody_answers_in_time_leaves_the_outcome_unknown(
    made: Bench,
) -> None:
    agent(made, "on_unknown: ask, expires_seconds: 0.3")
    gateway = scripted(calls("effect"), says("So be it."))
    async with made.worker(gateway) as instance:
        key = await interrupted(made, "effect", f"{instance.split('-')[0]}-dead")
        await made.send(key, "go")
        events = await made.until(key, "turn_finished")

    assert "outcome of this call is unknown" in result(events)[1]
    assert effects(made) == 0


async def test_a_call_that_is_cancelled_with_its_turn_asks_nobody_any_more(made: Bench) -> None:
    gateway = scripted(calls("effect"), says("So be it."))
    async with made.worker(gateway) as instance:
        key = await interrupted(made, "effect", f"{instance.split('-')[0]}-dead")
        await made.send(key, "go")
        await made.until(key, "approval_asked")
        await made.front.accept(key, Inbound("stop", "cancel"))
        events = await made.until(key, "turn_finished")

    assert events[-1].body["outcome"] == "cancelled"
    assert await made.runtime.store.approvals(made.tenant, key.session) == []
    assert effects(made) == 0
