"""Rows B1, B7, B15, B28, B30, E28, K26, T2: how a turn goes from step to step."""

import shutil
from pathlib import Path

from harness import Bench, calls, says, scripted
from model_servers import scripted_endpoint

from everturn.events import Event
from everturn.messages import ToolMessage, ToolResult
from everturn.session import SessionKey
from everturn_activities.gateways import ModelGateway
from everturn_activities.gateways.chat_completions import ChatCompletionsGateway
from everturn_activities.gateways.scripted import ScriptedGateway

SHOP = Path(__file__).parents[2] / "examples" / "demo"


async def work(made: Bench, gateway: ModelGateway, text: str) -> tuple[SessionKey, list[Event]]:
    """One turn on one message, and all that its watchers were told."""
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, text)
        return key, await made.until(key, "turn_finished")


def of_type(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event.type == kind]


def results_sent(gateway: ScriptedGateway, request: int) -> tuple[ToolResult, ...]:
    """The results that end the request of that number, counted from 0."""
    last = gateway.requests[request].messages[-1]
    assert isinstance(last, ToolMessage)
    return last.results


async def test_B1_a_scripted_model_reads_edits_and_ends_its_turn(made: Bench):
    shutil.copy(SHOP / "config.toml", made.workspace)
    gateway = scripted(
        calls("read_file", path="config.toml"),
        calls("edit_file", path="config.toml", old="port = 8080", new="port = 9090"),
        says("The port is 9090."),
    )

    _, events = await work(made, gateway, "set port 9090 in config.toml")

    assert len(gateway.requests) == 3
    assert len(of_type(events, "tool_finished")) == 2
    [finished] = of_type(events, "turn_finished")
    assert (finished.body["outcome"], finished.body["text"]) == ("completed", "The port is 9090.")
    assert "port = 8080" in results_sent(gateway, 1)[0].text
    before = (SHOP / "config.toml").read_text()
    after = (made.workspace / "config.toml").read_text()
    assert after == before.replace("port = 8080", "port = 9090") != before


async def test_B7_a_turn_that_nobody_watches_has_the_same_outcome(made: Bench):
    script = calls("add", a=1, b=2), says("It is 3.")
    watched, alone = await made.session("watched"), await made.session("alone")

    async with made.worker(scripted(*script)):
        await made.send(watched, "add 1 and 2")
        await made.until(watched, "turn_finished")
        await made.send(alone, "add 1 and 2")
        await made.closed(alone)

    [seen] = await made.runtime.store.turns(watched)
    [unseen] = await made.runtime.store.turns(alone)
    assert seen.outcome == unseen.outcome == "completed"
    assert seen.usage == unseen.usage
    assert await made.transcript(watched) == [
        # Ids of calls are made from the conversation, which is the same.
        *await made.transcript(alone)
    ]


async def test_B15_a_tool_use_goes_on_and_an_end_turn_makes_no_further_call(
    made: Bench, tmp_path: Path
):
    script = {"replies": [calls("add", a=1, b=2), says("It is 3."), says("Never asked for.")]}

    with scripted_endpoint(tmp_path, script) as model:
        gateway = ChatCompletionsGateway(base_url=model.url, key="sk-test")
        key, events = await work(made, gateway, "add 1 and 2")
        await made.closed(key)
        await gateway.close()

    asked = [(line["position"], line["finish"]) for line in model.events("completed")]
    assert asked == [(0, "tool_calls"), (1, "stop")]
    assert len(model.events("received")) == 2
    assert [e.body["stop"] for e in of_type(events, "step_finished")] == ["tool_use", "end_turn"]
    assert events[-1].body["text"] == "It is 3."


async def test_B28_unblocked_calls_run_together_and_results_are_in_call_order(made: Bench):
    asks = [
        {"name": "slow", "arguments": {"seconds": 1.0}},
        # Blocked: its arguments do not fit, so it is answered without being run.
        {"name": "slow", "arguments": {"seconds": "long"}},
        {"name": "slow", "arguments": {"seconds": 1.0}},
    ]
    gateway = scripted({"calls": asks}, says("Rested."))

    _, events = await work(made, gateway, "rest twice")

    first, blocked, third = results_sent(gateway, 1)
    ids = [call.id for call in gateway.requests[1].messages[-2].tool_calls]
    assert [first.call_id, blocked.call_id, third.call_id] == ids
    assert (first.text, third.text) == ("slept", "slept")
    assert blocked.failed
    assert "seconds" in blocked.text
    worked = {first.call_id, third.call_id}
    began, ended = (
        [event.time for event in of_type(events, kind) if event.body["call_id"] in worked]
        for kind in ("tool_started", "tool_finished")
    )
    assert max(began) < min(ended)
    assert max(ended) - min(began) >= 1.0


async def test_B30_an_unknown_tool_is_answered_so_and_the_model_is_called_again(made: Bench):
    gateway = scripted(calls("nope"), says("Then without it."))

    _, events = await work(made, gateway, "use nope")

    [result] = results_sent(gateway, 1)
    assert (result.text, result.failed) == ("Unknown tool: nope", True)
    assert len(gateway.requests) == 2
    assert events[-1].body["text"] == "Then without it."


async def test_E28_results_of_all_calls_of_a_step_are_in_the_next_request(made: Bench):
    asks = [
        {"name": "add", "arguments": {"a": 1, "b": 2}},
        {"name": "add", "arguments": {"a": 3, "b": 4}},
    ]
    gateway = scripted({"calls": asks}, says("3 and 7."))

    await work(made, gateway, "add twice")

    assert [result.text for result in results_sent(gateway, 1)] == ["3", "7"]


async def test_K26_a_tool_call_and_its_result_are_appended_and_the_model_is_called_again(
    made: Bench,
):
    gateway = scripted(calls("add", a=1, b=2), says("It is 3."))

    await work(made, gateway, "add 1 and 2")

    assert len(gateway.requests) == 2
    asked, second = gateway.requests
    assert second.messages[: len(asked.messages)] == asked.messages
    assert [message.role for message in second.messages] == ["user", "assistant", "tool"]
    assert results_sent(gateway, 1)[0].text == "3"


async def test_T2_one_tool_then_text_is_two_model_calls_and_completion(made: Bench):
    gateway = scripted(calls("effect"), says("Done."))

    _, events = await work(made, gateway, "have your effect")

    assert len(gateway.requests) == 2
    assert events[-1].body["outcome"] == "completed"
    assert len((made.workspace / "effects.log").read_text().splitlines()) == 1
