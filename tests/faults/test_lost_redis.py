"""A Redis that is killed in the middle of a stream, and comes back without anything."""

from pathlib import Path

import pytest
from redis_servers import BINARY, redis_server
from systems import SHORT, Plan, StartSystem, final_text

from everturn.reading import Transcript

pytestmark = pytest.mark.skipif(
    BINARY is None, reason="There is no redis-server; install redis-server."
)


async def test_a_stream_goes_on_in_a_new_epoch_when_redis_was_killed_in_its_middle(
    start_system: StartSystem, tmp_path: Path
):
    (tmp_path / "redis").mkdir()
    with redis_server(tmp_path / "redis") as redis:
        plans = {"order": Plan(steps=SHORT, held=frozenset({1}))}
        system = await start_system(plans, EVERTURN_REDIS_URL=redis.url)
        turn = await system.send("order")
        await system.held("order.1")
        before = await turn.saw("text_delta", step=1)

        redis.kill()
        # What is asked meanwhile does not wait for Redis.
        assert (await system.client.session("order")).status == "running"
        redis.start()
        snapshot = await turn.saw("snapshot")
        await system.release("order.1")
        evidence = await system.evidence(turn)

    allowed = {"order: a new epoch", "order: the watcher saw something else"}
    assert [one for one in evidence.problems() if one not in allowed] == []
    assert snapshot.epoch > before.epoch
    assert evidence.watched[-1].type == "turn_finished"
    warnings = [e.body["text"] for e in evidence.watched if e.type == "status"]
    assert any("Redis lost the event log" in text for text in warnings)
    page = Transcript()
    for event in evidence.watched:
        page.apply(event)
    told = {step.step: step.text for step in page.steps.values()}
    assert told == {
        step: message.text for step, message in evidence.messages if message.role == "assistant"
    }
    assert page.text(1) == final_text("order")
