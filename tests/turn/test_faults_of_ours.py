"""A fault of Everturn's own ends a turn, and its watcher is told."""

import harness
import pytest
from harness import Bench, OneGateway, scripted

from everturn_workers import discreet


class Faulty(OneGateway):
    def route(self, candidate: object) -> object:
        raise ZeroDivisionError("with words of a person")


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_a_turn_that_fails_by_a_fault_of_ours_again_and_again_ends_with_that_reason(
    made: Bench, monkeypatch: pytest.MonkeyPatch, placement: str
):
    monkeypatch.setattr(discreet, "FAULTS_MAX", 3)
    monkeypatch.setattr(harness, "OneGateway", Faulty)
    key = await made.session()

    async with made.worker(scripted(), placement=placement):
        await made.send(key, "hello")
        ended = (await made.until(key, "turn_finished"))[-1]

    assert ended.body["outcome"] == "failed"
    assert ended.body["reason"] == (
        "Everturn itself failed at it again and again: ZeroDivisionError; the worker's log tells"
        " where."
    )
