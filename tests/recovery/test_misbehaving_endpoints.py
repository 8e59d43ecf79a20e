"""Every way in which an endpoint misbehaves, streaming or not, and what comes of the turn."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest
from harness import Bench
from misbehaving import OK, Call, Refuses, Says, endpoint

from everturn.context import nudges
from everturn.events import Event
from everturn.messages import AssistantMessage
from everturn.reading import Transcript
from everturn.session import SessionKey
from everturn_activities.gateways.chat_completions import ChatCompletionsGateway
from everturn_workers import temporal

Bodies = list[dict]

ADD = Call("add", '{"a": 1, "b": 2}')
LONG = "x" * 99 + "\n"
AGENT = ("stall_seconds: 1", "retry_seconds: 0.02", "retries_max: 2", "tools: [add]")


def ends_with_tool_error(bodies: Bodies) -> bool:
    last = bodies[-1]["messages"][-1]
    return last["role"] == "tool" and "are not one JSON object" in last["content"]


def answers_each_call(bodies: Bodies) -> bool:
    calls, *results = bodies[-1]["messages"][-3:]
    asked = [call["id"] for call in calls["tool_calls"]]
    return asked == [result["tool_call_id"] for result in results] and asked[0] == "call-1"


def ends_with_nudge_and_no_call(bodies: Bodies) -> bool:
    partial, nudge = bodies[-1]["messages"][-2:]
    return nudge["content"] == nudges.CUT and "tool_calls" not in partial


def waits_as_asked(events: list[Event]) -> bool:
    first, second = (event.time for event in events if event.type == "step_started")
    return second - first >= 0.3


def counts_tokens_itself(events: list[Event]) -> bool:
    (usage,) = (event.body["usage"] for event in events if event.type == "step_finished")
    return usage["estimated"] and usage["input_tokens"] > 5 and usage["output_tokens"] > 0


@dataclass(frozen=True)
class Case:
    """What the endpoint answers, and what is then expected: the turn's outcome and text, a part
    of its reason, how often the endpoint was asked."""

    name: str
    replies: tuple[Says | Refuses, ...]
    requests: int
    outcome: str = "completed"
    text: str = OK.text
    reason: str | None = None
    asked: Callable[[Bodies], bool] = lambda bodies: True
    told: Callable[[list[Event]], bool] = lambda events: True


CASES = [
    Case("429", (Refuses(429), OK), 2),
    Case("429 with Retry-After", (Refuses(429, headers=(("retry_after", "0.3"),)), OK), 2,
         told=waits_as_asked),
    Case("500", (Refuses(500), OK), 2),
    Case("500 for ever", (Refuses(500),), 3, "model_failed", "", "HTTP 500"),
    Case("529", (Refuses(529), Refuses(529), OK), 3),
    Case("cut in a word", (Says("all is we", fault="cut"), OK), 2),
    Case("silent once", (Says("all is we", fault="silence"), OK), 2),
    Case("silent for ever", (Says("all is we", fault="silence"),), 3, "model_failed", "",
         "fell silent for 1 s"),
    Case("malformed arguments", (Says("Hm. ", (Call("add", '{"a": 1,'),)), OK), 2,
         asked=ends_with_tool_error),
    Case("duplicate call ids", (Says(calls=(ADD, Call("add", '{"a": 3, "b": 4}'))), OK), 2,
         asked=answers_each_call),
    Case("empty once", (Says(), OK), 2,
         asked=lambda bodies: bodies[-1]["messages"][-1]["content"] == nudges.EMPTY),
    Case("empty for ever", (Says(),), 4, "model_failed", "", "answered with nothing 4 times"),
    Case("empty after tools", (Says("Adding.", (ADD,)), Says()), 2, text="Adding."),
    Case("2 MB", (Says(LONG * 20_000),), 1, text=LONG * 20_000),
    Case("no usage", (Says(OK.text, usage=False),), 1, told=counts_tokens_itself),
    Case("length cut", (Says("all is ", finish="length"), Says("well")), 2),
    Case("length cut for ever", (Says("ha", finish="length"),), 4, "max_tokens", "hahahaha",
         "4 times in a row"),
    Case("length cut in a call", (Says("Hm. ", (Call("add", '{"a": '),), "length"), OK), 2,
         text="Hm. all is well", asked=ends_with_nudge_and_no_call),
    Case("length cut in a call alone", (Says("", (Call("add", '{"a": '),), "length"), OK), 2),
    Case("too long for the model",
         (Refuses(400, "This model's maximum context length is 8192 tokens."),), 1,
         "model_failed", "", "longer than the window"),
    Case("401", (Refuses(401, "bad key"),), 1, "model_failed", "", "OPENAI_API_KEY"),
]  # fmt: skip


@pytest.mark.parametrize("wire", ["stream", "whole"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_misbehaving_endpoint_ends_in_the_specified_outcome(
    made: Bench, case: Case, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Requests are counted: a machine that stalls for the usual 2 s would repeat an inline call.
    monkeypatch.setattr(temporal, "TASK_TIMEOUT", timedelta(seconds=10))
    (made.workspace / "agents").mkdir()
    text = "\n".join(["---", *AGENT, f"stream: {wire == 'stream'}", "---", "Work."])
    (made.workspace / "agents" / "default.md").write_text(text)
    key = await made.session()
    async with endpoint(wire, *case.replies) as server:
        gateway = ChatCompletionsGateway(base_url=f"{server.url}/v1", key="sk-test")
        # One placement a wire: how a call is placed and how it is answered are independent.
        placement = "queued" if wire == "stream" else "inline"
        async with made.worker(gateway, workflows_cached=10, placement=placement):
            await made.send(key, "work")
            events = await made.until(key, "turn_finished")

    finished = events[-1].body
    assert (finished["outcome"], finished["text"]) == (case.outcome, case.text)
    assert (case.reason or "") in (finished["reason"] or "")
    bodies = [request.body for request in server.requests]
    assert len(bodies) == case.requests
    assert {body["stream"] for body in bodies} == {wire == "stream"}
    assert case.asked(bodies)
    assert case.told(events)
    await watchers_read_what_is_stored(made, key, events)


async def watchers_read_what_is_stored(made: Bench, key: SessionKey, events: list[Event]) -> None:
    """Numbers without gaps, and of each finished step the text that the transcript has."""
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    page = Transcript()
    for event in events:
        page.apply(event)
    stored = {
        view.step: view.message.text
        for view in await made.runtime.store.messages(key, 0, 1000)
        if isinstance(view.message, AssistantMessage)
    }
    shown = {step.step: step.text for step in page.steps.values() if step.finished}
    assert {step: text for step, text in shown.items() if text} == {
        step: text for step, text in stored.items() if text
    }
