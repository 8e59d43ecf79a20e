"""A model endpoint where nothing answers."""

import logging
import socket

import pytest
from harness import Bench

from everturn_activities.gateways.chat_completions import ChatCompletionsGateway


async def test_a_dead_endpoint_is_tried_a_few_times_and_then_named_with_the_mend(
    made: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    key = await made.session()
    async with made.worker(ChatCompletionsGateway(base_url=url, key="none")):
        await made.send(key, "hello")
        events = await made.until(key, "turn_finished")

    tries = [event.attempt for event in events if event.type == "step_started"]
    assert tries == [1, 2, 3, 4]
    assert events[-1].body["outcome"] == "model_failed"
    assert "cannot be reached" in events[-1].body["reason"]
    assert "Check the endpoint's address" in events[-1].body["reason"]
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warned) == len(tries)
    assert all(record.exc_info is None for record in warned)
