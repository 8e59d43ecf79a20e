"""What goes wrong in a turn, and whom it is told to."""

import pytest
from harness import Bench, calls, says, scripted

from everturn.messages import ToolMessage


@pytest.mark.parametrize(("name", "told"), [("fly", "fly"), ("", "names no tool")])
async def test_b30_an_unknown_tool_is_reported_to_the_model_not_raised(
    made: Bench, name: str, told: str
) -> None:
    gateway = scripted(calls(name), says("I cannot fly"))
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "fly")
        events = await made.until(key, "turn_finished")
    results = gateway.requests[1].messages[-1]
    assert isinstance(results, ToolMessage)
    assert results.results[0].failed
    assert told in results.results[0].text
    assert events[-1].body["text"] == "I cannot fly"


async def test_u3_a_cut_stream_is_retried_and_its_text_is_not_told_twice(made: Bench) -> None:
    gateway = scripted(says("one two three four", cut_after=2, token_ms=40))
    key = await made.session()
    async with made.worker(gateway, placement="queued"):
        await made.send(key, "count")
        events = await made.until(key, "turn_finished")
    assert events[-1].body["text"] == "one two three four"
    assert [e.attempt for e in events if e.type == "superseded"] == [2]
    last = [e.body["text"] for e in events if e.type == "text_delta" and e.attempt == 2]
    assert "".join(last) == "one two three four"
    kinds = [e.type for e in events]
    first = [i for i, e in enumerate(events) if e.type == "text_delta" and e.attempt == 1]
    assert all(i < kinds.index("superseded") for i in first)
    assert [e.seq for e in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_a_provider_that_asks_to_wait_is_waited_for(made: Bench, placement: str) -> None:
    gateway = scripted(says("ok", status=429, retry_after=1.5))
    key = await made.session()
    async with made.worker(gateway, placement=placement):
        await made.send(key, "hello")
        events = await made.until(key, "turn_finished")
    began = [e.time for e in events if e.type == "step_started"]
    assert events[-1].body["outcome"] == "completed"
    assert len(began) == 2
    assert began[1] - began[0] >= 1.5


@pytest.mark.parametrize(
    ("finish", "outcome"), [("length", "max_tokens"), ("content_filter", "model_failed")]
)
async def test_a_reply_that_was_ended_early_ends_the_turn_with_a_reason(
    made: Bench, finish: str, outcome: str
) -> None:
    (made.workspace / "agents").mkdir()
    (made.workspace / "agents" / "default.md").write_text("---\nrecoveries_max: 0\n---\nGo.\n")
    gateway = scripted(says("half of", finish=finish))
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "hello")
        events = await made.until(key, "turn_finished")
    assert events[-1].body["outcome"] == outcome
    assert events[-1].body["reason"]
    assert events[-1].body["text"] == "half of"


async def test_a_turn_that_takes_too_many_steps_ends_and_says_so(made: Bench) -> None:
    (made.workspace / "agents").mkdir()
    (made.workspace / "agents" / "default.md").write_text("---\nsteps_max: 2\n---\nAdd.\n")
    gateway = scripted(*[calls("add", a=1, b=n) for n in range(5)])
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "add for ever")
        events = await made.until(key, "turn_finished")
    assert events[-1].body["outcome"] == "max_steps"
    assert "2 steps" in events[-1].body["reason"]
    assert len(gateway.requests) == 2
    assert (await made.transcript(key))[-1].role == "tool"


async def test_a_workspace_that_cannot_be_read_ends_the_turn_with_the_mend(made: Bench) -> None:
    (made.workspace / "everturn.toml").write_text("agent = [\n")
    gateway = scripted(says("never"))
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "hello")
        events = await made.until(key, "turn_finished")
    assert events[-1].body["outcome"] == "failed"
    assert "everturn.toml" in events[-1].body["reason"]
    assert gateway.requests == []


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_b28_tools_of_one_step_run_together_and_answer_in_call_order(
    made: Bench, placement: str
) -> None:
    asked = [{"name": "slow", "arguments": {"seconds": s}} for s in (3.0, 0.1, 1.5)]
    gateway = scripted({"calls": asked}, says("slept"))
    key = await made.session()
    async with made.worker(gateway, placement=placement):
        await made.send(key, "sleep")
        events = await made.until(key, "turn_finished")
    results = gateway.requests[1].messages[-1]
    assert isinstance(results, ToolMessage)
    reply = gateway.requests[1].messages[-2]
    assert [r.call_id for r in results.results] == [c.id for c in reply.tool_calls]  # type: ignore[union-attr]
    if placement == "queued":
        # Every call began before any ended, and the quickest ended first.
        tools = [(e.type, e.body["index"]) for e in events if e.type.startswith("tool_")
                 and e.type != "tool_call_delta"]  # fmt: skip
        assert [kind for kind, _ in tools] == ["tool_started"] * 3 + ["tool_finished"] * 3
        assert [index for _, index in tools[3:]] == [1, 2, 0]
