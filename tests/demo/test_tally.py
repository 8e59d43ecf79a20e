"""What the demo counts, and when it says that something was repeated."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from everturn.events import Event
from everturn.reading import TurnResult

DONE = TurnResult(turn=1, outcome="completed")


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "demo", Path(__file__).parents[2] / "examples" / "demo.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["demo"] = module
    spec.loader.exec_module(module)
    return module


def request(key: str, event: str = "completed") -> str:
    return json.dumps({"event": event, "key": key})


def started(name: str, attempt: int) -> Event:
    body = {"name": name, "call_id": name}
    return Event(
        epoch=1, seq=1, type="tool_started", turn=1, step=3, attempt=attempt, time=0, body=body
    )


AGAIN = [started("slow_report", 1), started("call_owner", 1), started("slow_report", 2)]
EFFECTS = ["report k1 a title", "call k2 a reason"]


def complaints(demo: ModuleType, requests: list[str], effects: list[str], events: list[Event]):
    tally = demo.Tally.of(requests, effects, events)
    return list(demo._complaints(DONE, tally, demo.Kill(1, 1.0, 2.0, 3.0), moved=True))


def test_a_request_that_was_cut_off_is_no_repeated_call(demo: ModuleType):
    requests = [request("a", "received"), request("a", "received"), request("a")]

    assert complaints(demo, requests, EFFECTS, AGAIN) == []


def test_a_model_call_that_was_answered_twice_is_told(demo: ModuleType):
    [told] = complaints(demo, [request("a"), request("a"), request("b")], EFFECTS, AGAIN)

    assert told == "1 model calls were paid for twice"


def test_an_effect_that_happened_twice_is_told(demo: ModuleType):
    [told] = complaints(demo, [request("a")], [*EFFECTS, "report k1 a title"], AGAIN)

    assert told == "1 tool effects happened twice"


def test_a_once_tool_that_began_again_is_told(demo: ModuleType):
    [told] = complaints(demo, [request("a")], EFFECTS, [*AGAIN, started("call_owner", 2)])

    assert "call_owner" in told
