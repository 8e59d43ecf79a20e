"""A conversation that fills its model's window is summarised, and goes on."""

import json
from typing import Any

import pytest
from harness import Bench, calls, says, scripted

from everturn.context.summary import HEADING
from everturn.events import Event
from everturn.messages import Text, ToolMessage, UserMessage
from everturn.session import SessionKey
from everturn_activities.gateways.scripted import ScriptedGateway
from everturn_activities.gateways.wire import wire_tool
from everturn_activities.governor import ModelCall, Permit, Wait
from everturn_activities.tokens import count_message, count_text

SUMMARISER = "CRITICAL: answer with text only"
SUMMARISED = "was summarised to make room"
LONG = "word " * 300


def agent(made: Bench, **settings: Any) -> None:
    (made.workspace / "agents").mkdir(exist_ok=True)
    lines = "\n".join(f"{name}: {value}" for name, value in settings.items())
    (made.workspace / "agents" / "default.md").write_text(
        f"---\ntools: [add, echo]\n{lines}\n---\nBe brief.\n"
    )


def script(*summaries: dict[str, Any], steps: int, after: int = 0) -> ScriptedGateway:
    """Calls `echo` in `steps` steps, `after` more of them once it reads a summary."""
    return scripted(
        by_last_user={
            SUMMARISER: summaries,
            SUMMARISED: [*[calls("echo", text=LONG)] * after, says("All echoed.")],
            "": [*[calls("echo", text=LONG)] * steps, says("Echoed without a summary.")],
        }
    )


def of(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event.type == kind]


def asks_for_summary(request: Any) -> bool:
    return SUMMARISER in request.messages[-1].model_dump_json()


def text_of(message: object) -> str:
    assert isinstance(message, UserMessage)
    return "".join(part.text for part in message.parts if isinstance(part, Text))


async def worked(
    made: Bench, gateway: ScriptedGateway, text: str = "echo it", **settings: Any
) -> tuple[SessionKey, list[Event]]:
    key = await made.session()
    async with made.worker(gateway, **settings):
        await made.send(key, text)
        events = await made.until(key, "turn_finished")
        await made.closed(key)
    return key, events


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_B24_a_summary_replaces_early_history_and_the_last_messages_stay(
    made: Bench, placement: str
) -> None:
    agent(made, window_tokens=8000, compaction="{keep_last: 4}")
    gateway = script(says("THE GIST"), steps=20, after=5)

    key, events = await worked(made, gateway, placement=placement)

    assert events[-1].body["outcome"] == "completed"
    assert events[-1].body["text"] == "All echoed."
    (started,) = of(events, "compaction_started")
    (compacted,) = of(events, "compacted")
    assert compacted.body["tokens_after"] < compacted.body["tokens_before"] / 2
    (asked,) = [request for request in gateway.requests if asks_for_summary(request)]
    assert asked.tools == ()
    number = gateway.requests.index(asked)
    before, after = gateway.requests[number - 1], gateway.requests[number + 1]
    assert text_of(after.messages[0]).startswith(HEADING + "THE GIST")
    assert after.messages[1].role == "assistant"
    assert len(after.messages) == 5
    # All that was left out is in the request for the summary, all that was kept stands as it was.
    assert after.messages[1:3] == before.messages[-2:]
    transcript = await made.transcript(key)
    assert len(transcript) == 2 * events[-1].body["steps"]
    assert after.messages[1:] == tuple(transcript[compacted.body["last"] : started.step * 2 - 1])
    assert not any(SUMMARISED in message.model_dump_json() for message in transcript)


async def test_K10_a_summary_is_sent_first_and_only_where_there_is_one(made: Bench) -> None:
    agent(made, window_tokens=8000, compaction="{keep_last: 4}")
    gateway = script(says("THE GIST"), steps=20, after=3)
    await worked(made, gateway)
    step_requests = [request for request in gateway.requests if not asks_for_summary(request)]
    with_summary = [request for request in step_requests if SUMMARISED in request.model_dump_json()]
    assert 0 < len(with_summary) < len(step_requests)
    for request in with_summary:
        assert text_of(request.messages[0]).startswith(HEADING)
        assert "echo it" not in request.model_dump_json()


async def test_T20_each_step_tells_its_tokens_by_section(made: Bench) -> None:
    agent(made, window_tokens=8000)
    gateway = script(says("THE GIST"), steps=2)
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "one")
        await made.until(key, "turn_finished", turn=1)
        await made.send(key, "two")
        events = await made.until(key, "turn_finished", turn=2)
    first, *_, last = of(events, "step_started")
    tokens = first.body["tokens"]
    assert tokens["history"] == 0
    assert 0 < tokens["memory"] < 20
    assert 5 < tokens["system"] < 200
    assert tokens["tools"] > 50
    assert tokens["window"] == 8000
    assert first.body["context_tokens"] == sum(
        tokens[name] for name in ("system", "tools", "history", "memory")
    )
    assert tokens["remaining"] == 8000 - first.body["context_tokens"]
    assert tokens["budget"] == 8000 - first.body["context_tokens"]
    later = last.body["tokens"]
    assert later["history"] > 600
    assert later["memory"] > 600
    assert (later["system"], later["tools"]) == (tokens["system"], tokens["tools"])
    assert later["budget"] == later["remaining"] + later["history"]


async def test_B11_steered_messages_then_the_result_budget_then_the_compaction(
    made: Bench,
) -> None:
    """The budget frees enough that the level never asks; without it the same turn compacts."""
    agent(made, window_tokens=8000, tool_result_budget=6000)
    gateway = script(says("THE GIST"), steps=12)
    _, events = await worked(made, gateway)
    assert of(events, "compaction_started") == []
    assert events[-1].body["text"] == "Echoed without a summary."
    results = [
        result.text
        for message in gateway.requests[-1].messages
        if isinstance(message, ToolMessage)
        for result in message.results
    ]
    assert results[-1] == LONG
    assert results[0] != LONG
    assert sum(map(len, results)) <= 6000 + 12 * 80


async def test_B26_a_tool_call_as_summary_executes_nothing_and_counts_as_failed(
    made: Bench,
) -> None:
    agent(made, window_tokens=9000, compaction="{keep_last: 4, failures_max: 2}")
    gateway = script({**calls("effect"), "text": "I look first."}, steps=14)

    _, events = await worked(made, gateway)

    statuses = [event.body["text"] for event in of(events, "status")]
    assert len(statuses) == 2
    assert "answered with a tool call" in statuses[0]
    assert "After 2 failures the turn goes on without" in statuses[1]
    assert not (made.workspace / "effects.log").exists()
    assert of(events, "compacted") == []
    assert sum(map(asks_for_summary, gateway.requests)) == 2


async def test_a_turn_whose_request_cannot_be_made_to_fit_ends_with_the_reason(
    made: Bench,
) -> None:
    agent(made, window_tokens=1000, compaction="{keep_last: 4}")
    gateway = scripted(says("never asked"))
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, LONG * 4)
        events = await made.until(key, "turn_finished")
    assert events[-1].body["outcome"] == "failed"
    assert "the model's window has 1,000" in events[-1].body["reason"]
    assert gateway.requests == []


async def test_compaction_that_is_turned_off_leaves_the_provider_to_judge(made: Bench) -> None:
    agent(made, window_tokens=1000, compaction="{enabled: false}")
    gateway = scripted(says("I took it."))
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, LONG * 4)
        events = await made.until(key, "turn_finished")
    assert events[-1].body["text"] == "I took it."


async def test_the_same_summary_is_paid_for_once(made: Bench) -> None:
    """As for a fork: two sessions that said the same ask for the same summary."""
    agent(made, window_tokens=8000, compaction="{keep_last: 4}")
    gateway = script(says("THE GIST"), steps=20, after=3)
    first, second = await made.session("one"), await made.session("two")
    async with made.worker(gateway):
        for key in (first, second):
            await made.send(key, "echo it")
            events = await made.until(key, "turn_finished")
            assert len(of(events, "compacted")) == 1
    assert sum(map(asks_for_summary, gateway.requests)) == 1
    assert of(events, "compacted")[0].body["cost_usd"] == 0.0


async def test_a_cancel_ends_a_compaction_and_the_turn(made: Bench) -> None:
    agent(made, window_tokens=8000, compaction="{keep_last: 4}")
    gateway = script(says("THE GIST of it all", hold="summary"), steps=20)
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "echo it")
        await gateway.reached("summary")
        await made.cancel(key)
        events = await made.until(key, "turn_finished")
        await made.closed(key)
    assert events[-1].body["outcome"] == "cancelled"
    assert of(events, "compacted") == []


async def test_a_compaction_asked_for_by_hand_comes_before_the_next_step_and_can_be_undone(
    made: Bench,
) -> None:
    agent(made, compaction="{keep_last: 2}")
    gateway = scripted(by_last_user={SUMMARISER: [says("THE GIST")], "": [says(f"{LONG}. Noted.")]})
    key = await made.session()
    store = made.runtime.store
    async with made.worker(gateway):
        for turn in (1, 2):
            await made.send(key, f"message {turn}")
            await made.until(key, "turn_finished", turn=turn)
        await store.ask_compaction(key)
        await made.send(key, "message 3")
        events = await made.until(key, "turn_finished", turn=3)
        (compacted,) = of(events, "compacted")
        assert (compacted.turn, compacted.step, compacted.body["last"]) == (3, 1, 3)
        assert [text_of(gateway.requests[-1].messages[0])[:8]] == [HEADING[:8]]

        undone = await store.undo_compaction(key)
        await made.send(key, "message 4")
        events = await made.until(key, "turn_finished", turn=4)

    assert undone.last == 3
    assert len(of(events, "compacted")) == 1
    assert [m.role for m in gateway.requests[-1].messages] == ["user", "assistant"] * 3 + ["user"]


async def test_asking_for_a_compaction_of_nothing_is_told(made: Bench) -> None:
    key = await made.session()
    await made.runtime.store.ask_compaction(key)
    async with made.worker(scripted(says("Hello."))):
        await made.send(key, "hi")
        events = await made.until(key, "turn_finished")
    (status,) = of(events, "status")
    assert "nothing yet" in status.body["text"]
    assert events[-1].body["outcome"] == "completed"


async def test_T16_a_turn_of_an_agent_that_keeps_the_newest_begins_with_what_fits(
    made: Bench,
) -> None:
    """T19: what a turn begins with stays the same in all of its steps."""
    agent(made, window_tokens=2000, history="tail_tokens", compaction="{enabled: false}")
    gateway = scripted(
        by_last_user={"last": [calls("add", a=1, b=n) for n in range(3)], "": [says(LONG)]}
    )
    key = await made.session()
    async with made.worker(gateway):
        for turn in range(1, 10):
            await made.send(key, f"message {turn}")
            await made.until(key, "turn_finished", turn=turn)
        before = len(gateway.requests)
        await made.send(key, "the last")
        events = await made.until(key, "turn_finished", turn=10)
    requests = gateway.requests[before:]
    first = requests[0].messages
    assert 1 < len(first) < 19
    assert text_of(first[-1]) == "the last"
    for request in requests[:3]:
        assert request.messages[: len(first)] == first
    started = [event for event in of(events, "step_started") if event.turn == 10]
    assert len({event.body["tokens"]["history"] for event in started}) == 1
    assert started[0].body["context_tokens"] <= 2000


async def test_T18_each_call_sends_the_prompt_the_history_and_what_the_turn_has_said(
    made: Bench,
) -> None:
    """T17: both layers are what the transcript holds, each message once."""
    agent(made)
    gateway = scripted(
        by_last_user={"first": [says("One.")], "second": [calls("add", a=1, b=2), says("Three.")]}
    )
    key = await made.session()
    async with made.worker(gateway):
        for turn, text in enumerate(("first", "second"), 1):
            await made.send(key, text)
            await made.until(key, "turn_finished", turn=turn)
    transcript = await made.transcript(key)
    assert all(request.system.startswith("Be brief.") for request in gateway.requests)
    assert [list(request.messages) for request in gateway.requests] == [
        transcript[:1],
        transcript[:3],
        transcript[:5],
    ]
    assert len(transcript) == 6


async def test_a_provider_that_refuses_a_summary_is_known_to_refuse(made: Bench) -> None:
    agent(made, window_tokens=8000, compaction="{keep_last: 4}")
    gateway = script(says("THE GIST", status=429, retry_after=0.5), steps=20, after=2)

    _, events = await worked(made, gateway)

    assert events[-1].body["outcome"] == "completed"
    (key,) = (await made.runtime.governor.state()).keys
    assert key.rate is not None


async def test_a_summariser_that_nobody_may_ask_for_long_counts_as_failed(made: Bench) -> None:
    """Else a turn whose window is full would ask for its summary without an end."""
    agent(made, window_tokens=9000, compaction="{keep_last: 4, failures_max: 2}")
    gateway = script(says("THE GIST"), steps=14)
    ask = made.runtime.governor.ask

    async def asked(call: ModelCall) -> Permit | Wait:
        if "/compaction/" in call.id:
            return Wait(seconds=1000.0, cause="open", waited_seconds=0.0)
        return await ask(call)

    made.runtime.governor.ask = asked  # type: ignore[method-assign]
    _, events = await worked(made, gateway)
    statuses = [event.body["text"] for event in of(events, "status")]
    assert "may not be asked within 60 s" in statuses[0]
    assert "After 2 failures the turn goes on without" in statuses[1]
    assert events[-1].body["outcome"] == "completed"
    assert not any(map(asks_for_summary, gateway.requests))


HINDI = "नमस्ते दुनिया, आज का दिन अच्छा है। " * 25


@pytest.mark.parametrize("model", ["openai/gpt-5-mini", "openai/gpt-4"])
async def test_K20_no_request_exceeds_the_window_as_its_own_model_counts(
    made: Bench, model: str
) -> None:
    """Each message has 277 tokens in one encoding and 925 in the other."""
    window, generation = 8_000, 500
    agent(made, model=model, window_tokens=window, tokens_max=generation)
    gateway = scripted(
        by_last_user={
            SUMMARISER: [says("A greeting.")],
            "": [says("नमस्ते।")],
        }
    )
    key = await made.session()
    async with made.worker(gateway):
        for turn in range(1, 13):
            await made.send(key, HINDI)
            events = await made.until(key, "turn_finished", turn=turn)
            assert events[-1].body["outcome"] == "completed", events[-1].body
        await made.closed(key)

    asked = [each for each in gateway.requests if not asks_for_summary(each)]
    assert len(asked) == 12
    for request in asked:
        counted = count_text(request.system, model) + sum(
            count_message(message, model) for message in request.messages
        )
        counted += sum(count_text(json.dumps(wire_tool(tool)), model) for tool in request.tools)
        assert counted + generation <= window
    assert bool(of(events, "compacted")) is (model == "openai/gpt-4")
