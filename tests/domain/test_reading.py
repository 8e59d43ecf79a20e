"""What a reader of events has on the page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from everturn.client import event_from_flat
from everturn.events import Draft, Event
from everturn.reading import Transcript


def events(*told: tuple[str, int, dict[str, object]]) -> list[Event]:
    return [
        Event(epoch=1, seq=seq, type=name, turn=1, step=1, attempt=attempt, time=seq, body=body)
        for seq, (name, attempt, body) in enumerate(told, 1)
    ]


def text(attempt: int, piece: str) -> tuple[str, int, dict[str, object]]:
    return ("text_delta", attempt, {"text": piece})


def read(told: list[Event]) -> Transcript:
    transcript = Transcript()
    for event in told:
        transcript.apply(event)
    return transcript


def test_u3_superseded_text_is_dropped_with_its_thinking_and_its_calls():
    """U3: a retried stream raises attempt, and clients drop the older text."""
    asked = {"call_id": "c", "name": "add", "text": '{"a"'}
    told = events(
        ("thinking_delta", 1, {"text": "hm"}),
        text(1, "one "),
        ("tool_call_delta", 1, asked),
        ("superseded", 2, {}),
    )
    step = read(told).steps[(1, 1)]

    assert (step.text, step.thinking, step.tools, step.attempt) == ("", "", {}, 2)


def test_u3_a_newer_attempt_drops_the_older_text_without_being_told_so():
    assert read(events(text(1, "one "), text(2, "one "), text(2, "two"))).text(1) == "one two"


def test_a_late_delta_of_an_older_attempt_is_dropped():
    assert read(events(text(1, "one "), text(2, "two"), text(1, "late"))).text(1) == "two"


def test_an_event_seen_twice_changes_nothing():
    told = events(text(1, "one "), text(1, "two"))

    transcript = read([*told, *told])

    assert transcript.text(1) == "one two"
    assert not transcript.apply(told[1])


def test_a_retried_tool_leaves_the_text_of_its_step():
    told = events(
        text(1, "adding"),
        ("step_finished", 1, {}),
        ("tool_started", 1, {"call_id": "c", "name": "add", "arguments": '{"a": 1}'}),
        ("superseded", 2, {"kind": "tool"}),
        ("tool_started", 2, {"call_id": "c", "name": "add", "arguments": '{"a": 1}'}),
        ("tool_finished", 2, {"call_id": "c", "name": "add", "text": "2", "duration_seconds": 0.1}),
    )
    step = read(told).steps[(1, 1)]

    assert step.text == "adding"
    assert (step.tools["c"].state, step.tools["c"].text) == ("done", "2")


def test_K28_what_a_running_tool_says_is_read_until_another_attempt_begins():
    call = {"call_id": "c", "name": "run_command"}
    told = events(
        ("tool_started", 1, call),
        ("tool_output", 1, {**call, "text": "old"}),
        ("tool_started", 2, call),
        ("tool_output", 2, {**call, "text": "one "}),
        ("tool_output", 1, {**call, "text": "late"}),
        ("tool_output", 2, {**call, "text": "two"}),
        ("tool_finished", 2, {**call, "text": "exit code: 0", "duration_seconds": 0.1}),
        ("tool_output", 2, {**call, "text": "late"}),
    )
    tool = read(told).steps[(1, 1)].tools["c"]

    assert (tool.output, tool.text) == ("one two", "exit code: 0")


def test_a_new_epoch_is_read_on_from_its_first_event():
    old = events(text(1, "one "))
    new = old[0].model_copy(update={"epoch": 2, "body": {"text": "two"}})

    assert read([*old, new]).text(1) == "one two"


def test_a_snapshot_that_came_over_http_drops_its_turn_and_what_follows():
    told = events(text(1, "lost"))
    snapshot = Event(epoch=2, seq=1, type="snapshot", turn=1, step=0, attempt=0, time=0)
    page = read([*told, event_from_flat(snapshot.flat())])

    assert page.steps == {}


@pytest.mark.parametrize("name", Event.model_fields)
def test_an_event_is_refused_whose_body_hides_what_every_event_has(name: str):
    with pytest.raises(ValidationError, match=f"an event has {name} itself"):
        Draft(id="e", type="status", body={"text": "so", name: 1})


def test_the_final_text_of_a_turn_wins_over_its_steps():
    finished = {"outcome": "completed", "text": "the end", "usage": {"input_tokens": 3, "new": 1}}

    transcript = read(events(text(1, "the"), ("turn_finished", 0, finished)))

    assert transcript.text(1) == "the end"
    assert transcript.results[1].usage.input_tokens == 3


@given(cuts=st.lists(st.integers(0, 20), max_size=5), data=st.data())
def test_u3_whatever_was_cut_the_last_attempt_is_what_stands(cuts, data):
    """U3: given any number of stalls after any number of tokens, no prefix is doubled."""
    words = [f"{number} " for number in range(20)]
    told = []
    for attempt, cut in enumerate(cuts, 1):
        told += [text(attempt, word) for word in words[:cut]]
        if data.draw(st.booleans()):
            told.append(("superseded", attempt + 1, {}))
    told += [text(len(cuts) + 1, word) for word in words]

    assert read(events(*told)).text(1) == "".join(words)
