"""A message that was accepted is worked, whatever died on its way to the turn."""

import signal
from pathlib import Path

import httpx
import pytest
from systems import SHORT, Plan, StartSystem, prompt

KILLING = str(Path(__file__).with_name("killing_api.py"))
PLANS = {"order": Plan(steps=SHORT)}


async def test_a_message_whose_api_died_between_commit_and_signal_is_worked(
    start_system: StartSystem,
):
    system = await start_system(PLANS)
    await system.client.create_session("order", workspace=str(system.workspace))
    await system.kill("api")
    system.api.module = (KILLING,)
    await system.restart("api")

    body = {"text": prompt("order"), "id": "to-order"}
    async with httpx.AsyncClient(trust_env=False) as sender:
        url = f"http://127.0.0.1:{system.api.environment['EVERTURN_PORT']}"
        with pytest.raises(httpx.TransportError):
            await sender.post(f"{url}/v1/sessions/order/messages", json=body)
    assert await system.api.ended() == -signal.SIGKILL

    system.api.module = ("everturn_workers.cli", "api")
    await system.restart("api")
    evidence = await system.evidence(system.watch("order"))
    assert evidence.problems() == []
    again = await system.client.send("order", prompt("order"), id="to-order")
    assert again.duplicate


async def test_a_message_that_comes_while_temporal_is_away_is_accepted_and_worked(
    start_system: StartSystem,
):
    system = await start_system(PLANS)
    await system.kill("temporal")

    turn = await system.send("order")
    accepted = await turn.saw("message_accepted")
    assert accepted.body["message_id"] == "to-order"
    await system.restart("temporal")

    evidence = await system.evidence(turn)
    assert evidence.problems() == []
    assert evidence.completed() == [1, 1]
