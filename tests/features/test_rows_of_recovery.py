"""Rows B8, B16, B17, B18, B19, E27, C4, C5, C8: what ends a turn, and what does not yet."""

from collections.abc import AsyncGenerator

import pytest
from harness import Bench, calls, says, scripted

from everturn.context import nudges
from everturn.context.compose import Context
from everturn.events import Event
from everturn.messages import AssistantMessage, user_text
from everturn_activities.gateways import Delta, ModelGateway, Reply

CUT = says("half of ", finish="length")


def agent(made: Bench, *lines: str) -> None:
    """Define the default agent of the workspace by these lines of front matter."""
    (made.workspace / "agents").mkdir(exist_ok=True)
    text = "\n".join(["---", *lines, "---", "Work."])
    (made.workspace / "agents" / "default.md").write_text(text)


async def work(made: Bench, gateway: ModelGateway, placement: str = "auto") -> list[Event]:
    key = await made.session()
    async with made.worker(gateway, placement=placement):
        await made.send(key, "work")
        return await made.until(key, "turn_finished")


def statuses(events: list[Event]) -> list[str]:
    return [event.body["text"] for event in events if event.type == "status"]


class ByModel:
    """A gateway for each model."""

    def __init__(self, **gateways: ModelGateway) -> None:
        self._gateways = gateways

    async def stream(self, context: Context) -> AsyncGenerator[Delta | Reply]:
        async for item in self._gateways[context.model.removeprefix("openai/")].stream(context):
            yield item

    async def close(self) -> None:
        for gateway in self._gateways.values():
            await gateway.close()


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_B8_C8_endless_tool_calls_end_at_the_last_step_allowed_with_the_reason(
    made: Bench, placement: str
):
    agent(made, "steps_max: 2")
    gateway = scripted(*[calls("add", a=1, b=n) for n in range(5)])

    events = await work(made, gateway, placement)

    assert len(gateway.requests) == 2
    assert events[-1].body["outcome"] == "max_steps"
    assert "2 steps" in events[-1].body["reason"]


async def test_B8_a_failed_attempt_is_no_step(made: Bench):
    agent(made, "steps_max: 1", "retry_seconds: 0.01")
    gateway = scripted(says("done", status=503, times=2))

    events = await work(made, gateway)

    assert len(gateway.requests) == 3
    assert (events[-1].body["outcome"], events[-1].body["steps"]) == ("completed", 1)


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_B16_a_cut_reply_is_continued_after_a_nudge(made: Bench, placement: str):
    gateway = scripted(CUT, says("the answer"))

    events = await work(made, gateway, placement)

    partial, nudge = gateway.requests[1].messages[-2:]
    assert isinstance(partial, AssistantMessage)
    assert partial.text == "half of "
    assert nudge == user_text(nudges.CUT)
    assert (events[-1].body["outcome"], events[-1].body["text"]) == (
        "completed",
        "half of the answer",
    )


async def test_B17_the_fourth_cut_in_a_row_is_the_outcome(made: Bench):
    gateway = scripted(CUT, CUT, CUT, CUT, says("never asked for"))

    events = await work(made, gateway)

    assert len(gateway.requests) == 4
    assert gateway.requests[3].messages.count(user_text(nudges.CUT)) == 3
    assert (events[-1].body["outcome"], events[-1].body["text"]) == ("max_tokens", "half of " * 4)
    assert "4 times" in events[-1].body["reason"]


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_B18_a_fallback_answers_for_an_overloaded_model_and_the_next_step_asks_the_first(
    made: Bench, placement: str
):
    agent(
        made, "model: openai/main", "fallback_models: [openai/spare]", "retry_seconds: 0.01"
    )  # fmt: skip
    main = scripted({**calls("add", a=1, b=2), "status": 529, "times": 9}, says("It is 3."))
    spare = scripted(calls("add", a=1, b=2))

    events = await work(made, ByModel(main=main, spare=spare), placement)

    assert events[-1].body["outcome"] == "completed"
    assert events[-1].body["text"] == "It is 3."
    assert (len(main.requests), len(spare.requests)) == (3, 1)
    switches = [text for text in statuses(events) if "Switching" in text]
    assert len(switches) == 1
    assert "HTTP 529" in switches[0]
    assert "from openai/main to openai/spare" in switches[0]
    (turn,) = await made.runtime.store.turns(made.key())
    assert [step.model for step in turn.steps] == ["openai/spare", "openai/main"]


async def test_what_a_fallback_thought_is_kept_and_not_sent_to_the_first_model(made: Bench):
    agent(
        made, "model: openai/main", "fallback_models: [openai/spare]", "retry_seconds: 0.01"
    )  # fmt: skip
    main = scripted({**says("ok"), "status": 529, "times": 9}, says("It is 3."))
    spare = scripted({**calls("add", a=1, b=2), "thinking": "Adding is safe."})

    await work(made, ByModel(main=main, spare=spare))

    _, stored, *_ = await made.transcript(made.key())
    sent = main.requests[-1].messages[1]
    assert [getattr(part, "by", None) for part in stored.parts] == ["openai/spare", None]
    assert [part.type for part in sent.parts] == ["tool_call"]


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_B19_three_stalls_are_three_attempts_and_a_failed_model(made: Bench, placement: str):
    agent(made, "stall_seconds: 0.05", "retry_seconds: 0.01")
    gateway = scripted(says("one two three", stall_after=1, times=9))

    events = await work(made, gateway, placement)

    assert [e.attempt for e in events if e.type == "step_started"] == [1, 2, 3]
    assert events[-1].body["outcome"] == "model_failed"
    assert "fell silent for 0.05 s" in events[-1].body["reason"]


RESPONSE = '''
from everturn import tool


@tool(effect="pure", quick=True)
def response(text: str) -> str:
    """Answer the user."""
    if not text:
        raise ValueError("an answer has words")
    return text
'''


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_E27_C4_C5_a_turn_ends_on_the_tool_response_and_its_text_is_the_answer(
    made: Bench, placement: str
):
    (made.workspace / "tools" / "response.py").write_text(RESPONSE)
    gateway = scripted(
        calls("response", text=""),
        {**calls("response", text="It is 3."), "text": "Let me answer."},
        says("never asked for"),
    )

    events = await work(made, gateway, placement)

    assert len(gateway.requests) == 2
    assert events[-1].body["outcome"] == "completed"
    assert events[-1].body["text"] == "It is 3."
    assert (await made.transcript(made.key()))[-1].role == "tool"
