"""Messages that stop the open turn: interrupt and rollback, on real workers."""

import asyncio

import pytest
from harness import Bench, calls, eventually, says, scripted

from everturn.messages import AssistantMessage, Text, ToolMessage, UserMessage
from everturn_activities.gateways.scripted import ScriptedGateway


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_an_interrupt_ends_a_stream_and_begins_the_next_turn_at_once(
    made: Bench, placement: str
) -> None:
    gateway = scripted(
        by_last_user={
            "talk": [says("one two three four", hold="mid"), says("never")],
            "stop": [says("stopped")],
        }
    )
    key = await made.session()
    async with made.worker(gateway, placement=placement):
        await made.send(key, "talk", message_id="a")
        await gateway.reached("mid")
        async with asyncio.timeout(3):
            await made.send(key, "stop", "interrupt", message_id="b")
            events = await made.until(key, "turn_finished", turn=2)
        await made.closed(key)

    first, second = [e.body for e in events if e.type == "turn_finished"]
    assert (first["outcome"], first["text"]) == ("cancelled", "one two ")
    assert first["reason"] == 'Message "stop" interrupted the turn.'
    assert (second["outcome"], second["text"]) == ("completed", "stopped")
    # What was said until then is part of the conversation.
    assert sent(gateway) == ["talk", "one two ", "stop"]


async def test_a_rollback_takes_back_what_a_turn_said_and_leaves_what_it_did(made: Bench) -> None:
    gateway = scripted(
        by_last_user={
            "first": [says("it stands")],
            "wrong": [{**calls("effect", "slow", seconds=60), "text": "I try"}, says("never")],
            "also": [says("never")],
            "right": [says("better")],
        }
    )
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "first")
        await made.until(key, "turn_finished", turn=1)
        await made.send(key, "wrong", message_id="b")
        await eventually((made.workspace / "slow.began").exists)
        await eventually((made.workspace / "effect.began").exists)
        await made.send(key, "also later", message_id="c")
        async with asyncio.timeout(3):
            await made.send(key, "right", "rollback", message_id="d")
            events = await made.until(key, "turn_finished", turn=3)
        await made.closed(key)

    finished = [e.body for e in events if e.type == "turn_finished"]
    assert [body["outcome"] for body in finished] == ["completed", "rolled_back", "completed"]
    taken_back = [e.body["message_id"] for e in events if e.type == "message_rolled_back"]
    assert taken_back == ["b"]
    assert sent(gateway) == ["first", "it stands", "also later", "right"]
    assert len((made.workspace / "effects.log").read_text().splitlines()) == 1


def sent(gateway: ScriptedGateway) -> list[str]:
    """The texts of the newest request."""
    messages: list[UserMessage | AssistantMessage | ToolMessage] = [*gateway.requests[-1].messages]
    return [
        "".join(part.text for part in message.parts if isinstance(part, Text))
        for message in messages
        if not isinstance(message, ToolMessage)
    ]
